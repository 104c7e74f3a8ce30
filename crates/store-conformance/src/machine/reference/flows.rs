//! Flows of the reference: jobs that suspend step by step, and events for them.

use gristmill_model::{BatchId, JobId, JobState, Signal, Suspended, Timestamp, Wake};
use gristmill_store::{FlowEvent, FlowEventReceipt};

use crate::machine::reference::families::Parenthood;
use crate::machine::reference::{Place, Reference};

/// An event that its flow does not await yet.
#[derive(Debug)]
pub(super) struct KeptEvent {
    flow: JobId,
    name: String,
    value: String,
}

impl Reference {
    /// The jobs that have taken a step as a flow.
    pub fn flows(&self) -> Vec<JobId> {
        let flows = self.jobs.iter().filter(|(_, job)| !job.steps.is_empty());
        flows.map(|(id, _)| *id).collect()
    }

    /// Reports whether a job has taken a step as a flow.
    pub fn is_flow(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| !job.steps.is_empty())
    }

    /// Reports whether a job is a child of a flow.
    pub(super) fn is_step(&self, id: JobId) -> bool {
        let family = self.jobs.get(&id).and_then(|job| job.child_of);
        family.is_some_and(|family| self.families[family].flow.is_some()) && self.has_owners(id.batch)
    }

    /// Reports whether some parents of the children in a batch have not begun anew since.
    pub(super) fn has_owners(&self, batch: BatchId) -> bool {
        let jobs = self.jobs.iter().filter(|(id, _)| id.batch == batch);
        let mut families = jobs.filter_map(|(_, job)| job.child_of);
        families.any(|family| !self.families[family].is_left)
    }

    /// Reports whether a job is a child of a flow, and has ended without completing.
    pub fn is_ended_step(&self, id: JobId) -> bool {
        let place = self.jobs.get(&id).map(|job| &job.place);
        let is_over = matches!(place, Some(Place::Ended { state, .. }) if *state != JobState::Completed);
        is_over && self.is_step(id)
    }

    /// The children of all steps of a flow, in order, with the final states of those that have ended.
    pub fn children_of_steps(&self, id: JobId) -> Vec<(JobId, Option<JobState>)> {
        let steps = self.jobs.get(&id).into_iter().flat_map(|job| &job.steps);
        let children = steps.flat_map(|family| &self.families[*family].children);
        let stored = children.filter_map(|child| Some((*child, self.jobs.get(child)?)));
        let described = stored.map(|(id, child)| match child.place {
            Place::Ended { state, .. } => (id, Some(state)),
            _ => (id, None),
        });
        described.collect()
    }

    /// The memo of a job that finalizes; the memos of all steps of a flow.
    pub(super) fn memo_of(&self, id: JobId) -> Option<String> {
        let job = self.jobs.get(&id)?;
        let own = job.parenthood.as_ref()?;
        let family = &self.families[own.family];
        if family.flow.is_none() {
            return Some(family.memo.clone());
        }
        let memos = job.steps.iter().map(|step| self.families[*step].memo.as_str());
        Some(format!("[{}]", memos.collect::<Vec<_>>().join(",")))
    }

    /// The open children that a flow gives up.
    pub(super) fn given_up(&self, id: JobId, suspended: &Suspended) -> Vec<JobId> {
        let Some(chosen) = suspended.given_up.first() else {
            return Vec::new();
        };
        let children = self.children_of_steps(id).into_iter();
        let unwanted = children.filter(|(child, state)| chosen.contains(child) && state.is_none());
        unwanted.map(|(child, _)| child).collect()
    }

    /// The names and values of the events that children of a flow got, and that the flow gives up. Each goes back once.
    pub(super) fn unread_events(&mut self, id: JobId, suspended: &Suspended) -> Vec<(String, String)> {
        let Some(chosen) = suspended.given_up.first() else {
            return Vec::new();
        };
        let children = self.children_of_steps(id).into_iter();
        let unread = children.filter(|(child, _)| chosen.contains(child));
        let unread = unread.filter_map(|(child, _)| {
            let job = self.jobs.get_mut(&child)?;
            match (&job.signal, &job.place) {
                (
                    Some(Signal::Event(name)),
                    Place::Ended {
                        state: JobState::Completed,
                        value: Some(value),
                        ..
                    },
                ) if !job.is_returned => {
                    job.is_returned = true;
                    Some((name.clone(), value.clone()))
                }
                _ => None,
            }
        });
        unread.collect()
    }

    /// Gives events that a flow has not read to its oldest open waits for them, or keeps them before those that were sent
    /// later.
    pub(super) fn give_back(&mut self, flow: JobId, unread: Vec<(String, String)>, now: Timestamp) {
        let mut kept = Vec::new();
        for (name, value) in unread {
            match self.awaiting(flow, &name) {
                Some(child) => self.complete_with(child, value, now),
                None => kept.push(KeptEvent { flow, name, value }),
            }
        }
        self.kept.splice(0..0, kept);
    }

    /// The oldest open job that waits for an event of a flow.
    fn awaiting(&self, flow: JobId, name: &str) -> Option<JobId> {
        let awaiting = self.jobs.iter().find(|(_, job)| {
            let is_child = job
                .child_of
                .is_some_and(|family| self.families[family].parent() == flow);
            let awaits = job.signal == Some(Signal::Event(name.to_owned()));
            is_child && awaits && job.ended_at().is_none()
        });
        awaiting.map(|(child, _)| *child)
    }

    /// Reports whether a flow waits after a step. `seen` is the number of ended children that it has seen, if others were
    /// open.
    pub(super) fn waits_after(
        &self,
        id: JobId,
        wake: Wake,
        seen: Option<u32>,
        given_up_count: usize,
        has_new: bool,
    ) -> bool {
        let Some(seen) = seen else {
            return has_new;
        };
        let earlier = self.children_of_steps(id);
        let ended_count = earlier.iter().filter(|(_, state)| state.is_some()).count();
        let is_news = wake == Wake::Any && self.told_children(id) > seen as usize;
        !is_news && (ended_count + given_up_count < earlier.len() || has_new)
    }

    /// The number of ended children of all steps of a flow, without those that are together with open ones.
    pub fn told_children(&self, id: JobId) -> usize {
        let children = self.children_of_steps(id);
        let is_together = |child: &JobId| self.jobs.get(child).is_some_and(|job| job.together);
        let is_whole = |batch: BatchId| {
            let mut own = children.iter().filter(|(child, _)| child.batch == batch);
            own.all(|(_, state)| state.is_some())
        };
        let ended = children.iter().filter(|(_, state)| state.is_some());
        ended
            .filter(|(child, _)| !is_together(child) || is_whole(child.batch))
            .count()
    }

    /// Reports whether a flow that waits runs again.
    pub(super) fn wakes(&self, id: JobId, own: &Parenthood, wake: Wake) -> bool {
        match wake {
            Wake::Any => self.told_children(id) > own.told_before,
            Wake::All => self
                .children_of_steps(id)
                .iter()
                .all(|(_, state)| state.is_some()),
            Wake::Anew => true,
        }
    }

    /// Makes a flow forget its steps. Their open children are cancelled.
    pub(super) fn begin_anew(&mut self, id: JobId, now: Timestamp) {
        let left = self.children_of_steps(id).into_iter();
        let left = left.filter_map(|(child, state)| state.is_none().then_some(child));
        self.cancel_with_descendants(left.collect(), now);
        if let Some(job) = self.jobs.get_mut(&id) {
            (job.attempt, job.rescues, job.run_at) = (1, 0, now);
            for family in job.steps.drain(..) {
                self.families[family].is_left = true;
            }
        }
    }

    /// Cancels the children that ended flows have left open.
    pub(super) fn cancel_left_open(&mut self, now: Timestamp) {
        let ended = self.jobs.iter().filter(|(_, job)| job.ended_at().is_some());
        let left = ended.flat_map(|(id, _)| self.children_of_steps(*id));
        let left = left.filter(|(_, state)| state.is_none());
        let left: Vec<JobId> = left.map(|(child, _)| child).collect();
        if !left.is_empty() {
            self.cancel_with_descendants(left, now);
        }
    }

    /// Sends events to flows.
    pub fn send(&mut self, events: &[FlowEvent], now: Timestamp) -> Vec<FlowEventReceipt> {
        let receipts = events.iter().map(|event| self.send_one(event, now));
        let receipts = receipts.collect();
        self.settle(now);
        receipts
    }

    fn send_one(&mut self, event: &FlowEvent, now: Timestamp) -> FlowEventReceipt {
        let Some(flow) = self.jobs.get(&event.job) else {
            return FlowEventReceipt::Unknown;
        };
        let has_ended = flow.ended_at().is_some();
        let value = event.value().items().next().unwrap_or_default().to_owned();
        if let Some(child) = self.awaiting(event.job, &event.name) {
            self.complete_with(child, value, now);
            return FlowEventReceipt::Delivered;
        }
        if has_ended {
            return FlowEventReceipt::Ended;
        }
        self.kept.push(KeptEvent {
            flow: event.job,
            name: event.name.clone(),
            value,
        });
        FlowEventReceipt::Kept
    }

    /// Gives a new child of a flow the oldest kept event that it waits for.
    pub(super) fn deliver_kept(&mut self, flow: JobId, child: JobId, now: Timestamp) {
        let job = self.jobs.get(&child).filter(|job| job.ended_at().is_none());
        let Some(Signal::Event(name)) = job.and_then(|job| job.signal.clone()) else {
            return;
        };
        let mut kept = self.kept.iter();
        if let Some(place) = kept.position(|event| event.flow == flow && event.name == name) {
            let event = self.kept.remove(place);
            self.complete_with(child, event.value, now);
        }
    }

    fn complete_with(&mut self, id: JobId, given: String, now: Timestamp) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.end(JobState::Completed, now);
        if let Place::Ended { value, .. } = &mut job.place {
            *value = Some(given);
        }
    }

    /// Forgets the events of jobs that are gone.
    pub(super) fn forget_events(&mut self) {
        let jobs = &self.jobs;
        self.kept.retain(|event| jobs.contains_key(&event.flow));
    }
}
