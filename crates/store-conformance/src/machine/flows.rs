//! Flows of random sequences: events, and what flows are told of their children.

use gristmill_model::{Clock, JobId, JobState, LeasedSlice};
use gristmill_store::FlowEvent;

use crate::fixture::*;
use crate::machine::Machine;

/// The names of events.
pub(super) const EVENTS: [&str; 2] = ["approve", "deny"];

impl Machine<'_> {
    /// Sends events to jobs, usually to flows, and sometimes to no job.
    pub(super) async fn send(&mut self, chosen: Vec<usize>, name: usize) {
        let flows = self.reference.flows();
        let all: Vec<JobId> = self.reference.jobs.keys().copied().collect();
        let mut events = Vec::new();
        for number in chosen {
            let among = if flows.is_empty() || number.is_multiple_of(5) {
                &all
            } else {
                &flows
            };
            let unknown = job(gristmill_model::BatchId(1 << 40), 0);
            let flow = match number.is_multiple_of(13) {
                true => None,
                false => among.get(number / 5 % among.len().max(1)).copied(),
            };
            let value = self.new_payload().to_string();
            events.push(FlowEvent::new(flow.unwrap_or(unknown), EVENTS[name], &value).unwrap());
        }
        let receipts = self.store.send_events(events.clone()).await.unwrap();
        let now = self.database.clock().now();
        assert_eq!(receipts, self.reference.send(&events, now), "{events:?}");
    }

    /// Reads the children of claimed flows, as their worker does, and checks them.
    pub(super) async fn read_children(&mut self, slice: &LeasedSlice) {
        let flows = slice.positions.iter().map(|position| job(slice.batch, position));
        let flows: Vec<JobId> = flows.collect();
        if slice.memos.is_none() || !flows.iter().any(|flow| self.reference.is_flow(*flow)) {
            return;
        }
        let told = self
            .children
            .outcomes(&*self.store, slice.batch, &slice.positions)
            .await
            .unwrap();
        for (flow, told) in flows.into_iter().zip(told) {
            if !self.reference.is_flow(flow) {
                continue;
            }
            let told: Vec<(JobId, JobState)> = told.iter().map(|child| (child.job, child.state)).collect();
            let children = self.reference.children_of_steps(flow);
            let expected = children
                .iter()
                .map(|(child, state)| (*child, state.unwrap_or(JobState::Waiting)));
            assert_eq!(told, expected.collect::<Vec<_>>(), "{flow}");
            if let Some((child, _)) = told.last() {
                let (parent, suspension) = self.store.suspension_of(*child).await.unwrap().unwrap();
                let only = positions(&flow.position.to_string());
                let all = self.store.suspensions(flow.batch, &only).await.unwrap().remove(0);
                assert!(
                    parent == flow && all.contains(&suspension),
                    "{child}: {suspension:?}"
                );
                let jobs = &suspension.children;
                let is_theirs = |jobs: &gristmill_store::BatchPositions| {
                    jobs.batch == child.batch && jobs.positions.contains(child.position)
                };
                assert!(jobs.iter().any(is_theirs), "{child}: {suspension:?}");
            }
            if children.iter().any(|(_, state)| state.is_none()) {
                let told_count = self.reference.told_children(flow);
                self.seen.insert((slice.lease, flow), told_count as u32);
            }
        }
    }
}
