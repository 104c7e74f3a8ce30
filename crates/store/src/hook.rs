//! Completion hooks: the job that a store submits when a batch ends.
//!
//! A batch with hooks has an edge of the policy [`HOOK`] to itself, so that an operation that ends its jobs settles its
//! edges anyway. When all jobs of the batch have ended, the store deletes this edge and stores the hook's job in the
//! same transaction. The edge never comes back, so a job that is retried later submits no second one. Batches without
//! hooks cost nothing extra.

use gristmill_model::{BatchId, BatchOptions, HookTarget, JobState, NewBatch, PackedBuilder, Timestamp};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::rules::lanes::LaneName;

/// The policy of an edge from a batch with hooks to itself.
pub const HOOK: &str = "hook";

/// The part of a batch in such an edge. No jobs have it.
pub const HOOK_PART: u32 = 1 << 19;

/// A summary of the end of a batch, or of a run: the payload of a hook's job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSummary {
    /// `success` if all jobs completed, or else `failure`.
    pub outcome: String,
    /// The name of the work: the name in the hooks, or else the name of the schedule or the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The batch; `None` for a run, which has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The kind of its jobs.
    pub kind: String,
    /// Their queue.
    pub queue: String,
    /// Their number.
    pub jobs: u64,
    /// The completed ones.
    pub completed: u64,
    /// The dead ones.
    pub dead: u64,
    /// The cancelled ones.
    pub cancelled: u64,
    /// The expired ones.
    pub expired: u64,
    /// The time of the submit, by RFC 3339.
    pub submitted_at: String,
    /// The time of the end, by RFC 3339.
    pub ended_at: String,
}

/// The payload of a job of [`WEBHOOK_KIND`](gristmill_model::WEBHOOK_KIND).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookPayload<Body> {
    /// The address.
    pub url: String,
    /// The body of the request.
    pub body: Body,
}

/// The data of a batch in a summary, besides the counts of jobs.
#[derive(Debug, Clone, Copy)]
pub struct EndedBatch<'a> {
    /// The batch.
    pub batch: BatchId,
    /// The kind of its jobs.
    pub kind: &'a str,
    /// Their queue.
    pub queue: &'a str,
    /// The time of their submit.
    pub submitted_at: Timestamp,
    /// Their options.
    pub options: &'a BatchOptions,
}

impl EndSummary {
    /// Adds jobs that ended in this state.
    pub fn add(&mut self, state: JobState, jobs: u64) {
        assert!(state.is_final() || jobs == 0, "a summary counts ended jobs");
        self.jobs += jobs;
        match state {
            JobState::Completed => self.completed += jobs,
            JobState::Dead => self.dead += jobs,
            JobState::Cancelled => self.cancelled += jobs,
            JobState::Expired => self.expired += jobs,
            _ => {}
        }
        self.outcome = if self.is_success() { "success" } else { "failure" }.to_owned();
        assert_eq!(
            self.completed + self.dead + self.cancelled + self.expired,
            self.jobs,
            "the counts of a summary add up"
        );
    }

    /// Whether all jobs completed.
    pub fn is_success(&self) -> bool {
        self.completed == self.jobs
    }

    /// Makes the hook's job.
    ///
    /// # Errors
    ///
    /// [`StoreError::InvalidInput`] if the summary is longer than a payload may be.
    pub fn job(&self, target: &HookTarget, queue: &str) -> Result<NewBatch, StoreError> {
        let mut payloads = PackedBuilder::new();
        let pushed = match target {
            HookTarget::Kind(_) => payloads.push_value(self),
            HookTarget::Url(url) => payloads.push_value(&WebhookPayload {
                url: url.clone(),
                body: self,
            }),
        };
        pushed.map_err(|error| StoreError::InvalidInput(format!("a hook's summary: {error}")))?;
        Ok(NewBatch {
            queue: queue.to_owned(),
            ..NewBatch::new(target.kind(), payloads.finish())
        })
    }
}

impl EndedBatch<'_> {
    /// Makes the job of the batch's hook, if the batch has one for this end.
    ///
    /// # Errors
    ///
    /// The errors of [`EndSummary::job`].
    pub fn hook(
        &self,
        counts: impl IntoIterator<Item = (JobState, u64)>,
        ended_at: Timestamp,
    ) -> Result<Option<NewBatch>, StoreError> {
        let Some(hooks) = &self.options.hooks else {
            return Ok(None);
        };
        let mut summary = EndSummary {
            outcome: String::new(),
            name: hooks.name.clone(),
            batch: Some(self.batch),
            run: None,
            kind: self.kind.to_owned(),
            queue: self.queue.to_owned(),
            jobs: 0,
            completed: 0,
            dead: 0,
            cancelled: 0,
            expired: 0,
            submitted_at: self.submitted_at.to_string(),
            ended_at: ended_at.to_string(),
        };
        for (state, jobs) in counts {
            summary.add(state, jobs);
        }
        let target = hooks.target(summary.is_success());
        target.map(|target| summary.job(target, self.queue)).transpose()
    }
}

/// The lanes of the jobs of a batch's hooks. A store interns them with the batch, so that the end of the batch cannot
/// exceed the limit of lanes.
pub fn lanes_of_hooks(batch: &NewBatch) -> impl Iterator<Item = LaneName<'_>> {
    let targets = batch.options.hooks.iter().flat_map(|hooks| hooks.targets());
    targets.map(|target| LaneName {
        queue: &batch.queue,
        kind: target.kind(),
        group: "",
    })
}
