//! Flows of random sequences: events, and what flows are told of their children.

use std::collections::BTreeMap;

use gristmill_model::positions::by_batch;
use gristmill_model::{Clock, JobId, JobState, LeasedSlice, PackedArray};
use gristmill_store::{BatchPositions, CleanupBatch, DueCleanup, FlowEvent, JobFilter};

use crate::fixture::*;
use crate::machine::{KINDS, Machine};

/// How long after the cancel of a flow that ran its cleanup begins.
pub(super) const AFTER_RUN_MS: i64 = 20;

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

    /// Begins the cleanup after some of the cancelled flows for which it is due, or none ever. Another process cannot begin it again.
    pub(super) async fn begin_cleanups(&mut self, chosen: usize) {
        let now = self.database.clock().now();
        let ran_before = now.plus_ms(-AFTER_RUN_MS);
        let due = self.store.cleanups_due(ran_before, 1_000).await.unwrap();
        let of_row = |cleanup: &DueCleanup| {
            let flows = cleanup.flows.positions.iter();
            let (batch, within_ms) = (cleanup.flows.batch, cleanup.within_ms);
            flows
                .map(move |position| (job(batch, position), within_ms))
                .collect::<Vec<_>>()
        };
        let due: Vec<(JobId, u64)> = due.iter().flat_map(of_row).collect();
        let by_flow: BTreeMap<JobId, u64> = due.iter().copied().collect();
        assert_eq!(by_flow.len(), due.len(), "each flow is due once");
        assert_eq!(by_flow, self.reference.cleanups_due(ran_before));
        let Some((_, within_ms)) = due.first().copied() else {
            return;
        };
        let alike = due.iter().filter(|(_, other_ms)| *other_ms == within_ms);
        let flows: Vec<JobId> = alike.map(|(flow, _)| *flow).take(1 + chosen % 4).collect();
        let packed = by_batch(flows.iter().copied())
            .into_iter()
            .map(BatchPositions::from);
        let packed: Vec<BatchPositions> = packed.collect();
        let mut batch = batch_of(KINDS[chosen % KINDS.len()], flows.len() as u32);
        let memos: Vec<u32> = flows.iter().map(|_| self.new_payload()).collect();
        batch.memos = Some(PackedArray::parse(&serde_json::to_string(&memos).unwrap()).unwrap());
        let cleanup = CleanupBatch {
            batch: batch.clone(),
            within_ms,
        };
        let cleanup = Some(cleanup).filter(|_| !chosen.is_multiple_of(7));
        let has_batch = cleanup.is_some();
        assert!(
            self.store
                .begin_cleanups(packed.clone(), cleanup.clone())
                .await
                .unwrap()
        );
        assert!(!self.store.begin_cleanups(packed, cleanup).await.unwrap());
        if has_batch {
            let newest = self.store.newest_jobs(&JobFilter::default(), 1).await.unwrap();
            let id = newest[0].job.batch;
            assert!(self.batches.iter().all(|before| *before < id), "batch ids ascend");
            self.batches.push(id);
            self.reference.begin_cleanups(&flows, Some((id, &batch)), now);
        } else {
            self.reference.begin_cleanups(&flows, None, now);
        }
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
