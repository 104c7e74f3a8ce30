//! Families of the reference: parents that wait for their children.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::{
    BatchId, ChildBatch, JobId, JobState, NewBatch, OnChildFailure, PackedArray, Report, Siblings, Suspended,
    Timestamp, Wake,
};

use crate::machine::reference::{Place, Reference};

/// The children of one parent.
#[derive(Debug)]
pub struct Family {
    parent: JobId,
    on_failure: OnChildFailure,
    /// When the parent runs again, if it is a flow.
    pub(super) flow: Option<Wake>,
    pub(super) memo: String,
    pub(super) children: BTreeSet<JobId>,
    /// How long an instance may clean up after the parent, if it is a flow and is cancelled after this step.
    pub(super) cleanup_ms: Option<u64>,
    /// Whether the parent, a flow, has begun anew since.
    pub(super) is_left: bool,
    /// The tag of the parent and of its children.
    tag: Option<String>,
}

/// The latest family of a job, by its place in the list of all families.
#[derive(Debug, Clone)]
pub struct Parenthood {
    pub(super) family: usize,
    /// The number of told children of a flow when it began to wait.
    pub(super) told_before: usize,
}

/// The jobs that the store made in a step, by kind and payload. Such jobs of a sequence never have the same payload.
#[derive(Debug, Default)]
pub struct Created(pub BTreeMap<(String, String), JobId>);

impl Created {
    /// The id that the store chose for a new job.
    ///
    /// # Panics
    ///
    /// The store made no such job.
    pub fn take(&mut self, kind: &str, payload: &str) -> JobId {
        let key = (kind.to_owned(), payload.to_owned());
        let id = self.0.remove(&key);
        id.unwrap_or_else(|| panic!("no {kind} job with payload {payload} was made, but {:?}", self.0))
    }

    /// Checks that the reference knows all of these jobs.
    pub fn check_empty(&self) {
        assert!(self.0.is_empty(), "only the store made {self:?}");
    }
}

impl Family {
    pub(super) fn parent(&self) -> JobId {
        self.parent
    }
}

impl Reference {
    /// Makes a held job wait for its children. A job without children runs again at once.
    pub(super) fn suspend(
        &mut self,
        id: JobId,
        suspended: &Suspended,
        created: &mut Created,
        now: Timestamp,
    ) {
        let unread = self.unread_events(id, suspended);
        if suspended.begins_anew() {
            self.begin_anew(id, now);
        }
        let family = self.families.len();
        let has_new = suspended
            .children
            .iter()
            .any(|children| children.payloads.count() > 0);
        let given_up = self.given_up(id, suspended);
        let waits = match suspended.flow {
            Some(Wake::Anew) => false,
            Some(wake) => {
                self.waits_after(id, wake, suspended.seen.first().copied(), given_up.len(), has_new)
            }
            None => has_new,
        };
        if !given_up.is_empty() {
            self.cancel_with_descendants(given_up, now);
        }
        self.families.push(Family {
            parent: id,
            on_failure: suspended.on_failure,
            flow: suspended.flow,
            memo: suspended.memos.as_str().trim_matches(['[', ']']).to_owned(),
            children: BTreeSet::new(),
            cleanup_ms: suspended.cleanup_ms,
            is_left: false,
            tag: self.jobs.get(&id).and_then(|job| job.tag.clone()),
        });
        // Steps come before the flows that have not begun.
        let place = self.jobs.get(&id).filter(|_| suspended.flow.is_some());
        let place = place.map(|job| job.run_at.min(now).plus_ms(-1));
        for children in &suspended.children {
            self.add_children(family, children, place, created, now);
        }
        let told_before = self.told_children(id);
        for waiting in &mut self.waiting {
            waiting.jobs.remove(&id);
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.parenthood = Some(Parenthood { family, told_before });
        if suspended.flow.is_some() {
            job.steps.push(family);
        }
        job.run_at = job.run_at.min(now);
        job.expires_at = None;
        if waits {
            job.place = Place::Blocked
        } else {
            job.come_back(now)
        }
        self.give_back(id, unread, now);
        for child in self.families[family].children.clone() {
            self.deliver_kept(id, child, now);
        }
    }

    /// Gives the flows of a new batch the memos with which they begin.
    pub(super) fn begin_with_memos(&mut self, batch: BatchId, new: &NewBatch) {
        for (position, memo) in (0..).zip(new.memos.iter().flat_map(PackedArray::items)) {
            let (parent, family) = (JobId { batch, position }, self.families.len());
            self.families.push(Family {
                parent,
                on_failure: OnChildFailure::Collect,
                flow: Some(Wake::Anew),
                memo: memo.to_owned(),
                children: BTreeSet::new(),
                cleanup_ms: None,
                is_left: false,
                tag: None,
            });
            if let Some(job) = self.jobs.get_mut(&parent) {
                let told_before = 0;
                job.parenthood = Some(Parenthood { family, told_before });
                job.steps.push(family);
            }
        }
    }

    fn add_children(
        &mut self,
        family: usize,
        children: &ChildBatch,
        place: Option<Timestamp>,
        created: &mut Created,
        now: Timestamp,
    ) {
        let mut options = children.options.clone();
        if options.signal.is_none() {
            options.run_at = options.run_at.or(place);
        }
        if let Some(expires_in_ms) = children.expires_in_ms {
            options.expires_at = Some(now.plus_ms(expires_in_ms as i64));
        }
        let new = NewBatch {
            options,
            ..NewBatch::new(&children.kind, children.payloads.clone())
        };
        for payload in new.payloads.items() {
            let id = created.take(&new.kind, payload);
            self.insert_job(id, &new, payload, None, Vec::new(), now);
            if let Some(child) = self.jobs.get_mut(&id) {
                child.child_of = Some(family);
                child.together = children.together;
                child.tag.clone_from(&self.families[family].tag);
            }
            self.families[family].children.insert(id);
        }
    }

    /// Reports whether a job has a stored parent and may therefore spawn siblings.
    pub(super) fn has_parent(&self, id: JobId) -> bool {
        let family = self.jobs.get(&id).and_then(|job| job.child_of);
        let is_stored = |family: usize| self.jobs.contains_key(&self.families[family].parent);
        family.is_some_and(is_stored) && self.has_owners(id.batch)
    }

    /// Adds the siblings of a completed job, if its parent waits or is a flow that is open.
    pub(super) fn spread(&mut self, id: JobId, siblings: &Siblings, created: &mut Created, now: Timestamp) {
        let Some(child) = self.jobs.get(&id) else {
            return;
        };
        let (Some(family), run_at) = (child.child_of, child.batch_run_at) else {
            return;
        };
        let parent = self.families[family].parent;
        let is_flow = self.families[family].flow.is_some();
        let is_open = self.jobs.get(&parent).is_some_and(|job| job.ended_at().is_none());
        let is_open_flow = is_flow && is_open;
        if !is_open_flow && !self.may_wait(parent, family) {
            return;
        }
        let place = is_flow.then(|| run_at.min(now));
        for children in &siblings.children {
            self.add_children(family, children, place, created, now);
        }
        if is_flow {
            return;
        }
        if let Some(parent) = self.jobs.get_mut(&parent) {
            parent.place = Place::Blocked;
        }
    }

    /// Reports whether a parent waits for its children, or was paused while it waited.
    fn may_wait(&self, parent: JobId, family: usize) -> bool {
        self.jobs.get(&parent).is_some_and(|job| {
            job.parenthood.as_ref().is_some_and(|own| own.family == family) && job.is_kept_back()
        })
    }

    /// The children of a job that does not finalize yet; the open children of a flow.
    pub(super) fn children_of(&self, id: JobId) -> Vec<JobId> {
        if self.is_flow(id) && self.jobs.get(&id).is_some_and(|job| job.ended_at().is_none()) {
            let open = self
                .children_of_steps(id)
                .into_iter()
                .filter(|(_, state)| state.is_none());
            return open.map(|(child, _)| child).collect();
        }
        let parenthood = self.jobs.get(&id).filter(|job| job.is_kept_back());
        let parenthood = parenthood.and_then(|job| job.parenthood.as_ref());
        let children = parenthood.map(|own| self.families[own.family].children.iter().copied());
        children.into_iter().flatten().collect()
    }

    /// Ends one parent with a failed child, or finalizes one whose children have all ended. Returns whether there was one.
    pub(super) fn settle_family(&mut self, now: Timestamp) -> bool {
        let ended = self.jobs.iter().find_map(|(id, job)| {
            let own = job.parenthood.as_ref();
            let own = own.filter(|_| matches!(job.place, Place::Blocked))?;
            let family = &self.families[own.family];
            if let Some(wake) = family.flow {
                return self.wakes(*id, own, wake).then_some((*id, false));
            }
            let mut children = family.children.iter().filter_map(|child| self.jobs.get(child));
            let fails = family.on_failure == OnChildFailure::Fail
                && children
                    .clone()
                    .any(|child| child.ended_at().is_some() && !child.has_completed());
            (fails || children.all(|child| child.ended_at().is_some())).then_some((*id, fails))
        });
        let Some((id, fails)) = ended else {
            return false;
        };
        let children = self.children_of(id);
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        if fails {
            job.end(JobState::Dead, now);
            self.cancel_with_descendants(children, now);
        } else {
            job.place = Place::Ready;
        }
        true
    }
}

/// The siblings that a job of a report spawned.
pub(super) fn siblings_of(report: &Report, position: u32) -> Option<Siblings> {
    let only = (position..position + 1).into();
    report.siblings.iter().find_map(|siblings| siblings.select(&only))
}

/// The children that a job of a report waits for.
pub(super) fn suspended_of(report: &Report, position: u32) -> Option<Suspended> {
    let only = (position..position + 1).into();
    report
        .suspended
        .iter()
        .find_map(|suspended| suspended.select(&only))
}
