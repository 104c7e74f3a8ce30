//! Micro-batches: jobs that travel to a handler together.

use std::sync::Arc;

use gristmill_model::{
    BatchId, Completed, JobError, JobId, JobLabels, LeaseId, LeasedSlice, PackedArray, PackedBuilder,
    PackedError, Positions, RetryPolicy, TraceParent,
};
use gristmill_store::ChildOutcome;

use crate::claims::held_slice::HeldSlice;
use crate::handler::outcomes::Outcomes;

/// Jobs of one kind and one timeout that a handler runs together. They may come from several batches and leases. The
/// handler and its [`Outcomes`] therefore number the jobs by their places in the micro-batch, from 0.
#[derive(Debug, Clone)]
pub struct MicroBatch {
    kind: Arc<str>,
    parts: Arc<[Part]>,
    payloads: PackedArray,
    timeout_ms: Option<u64>,
    /// The memos of jobs that finalize, one for each job.
    memos: Option<PackedArray>,
    /// The outcomes of the children of jobs that finalize, by the places of the jobs.
    children: Arc<[Vec<ChildOutcome>]>,
}

/// One job of a micro-batch.
#[derive(Debug, Clone, Copy)]
pub struct MicroBatchJob<'a> {
    /// The place of the job in the micro-batch.
    pub index: u32,
    /// The id of the job.
    pub id: JobId,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The payload of the job, as JSON.
    pub payload: &'a str,
    /// The memo of a job that finalizes, as JSON.
    pub memo: Option<&'a str>,
    /// The parts of the micro-batch, and the number of the job's own part.
    parts: &'a Arc<[Part]>,
    part: usize,
}

impl MicroBatchJob<'_> {
    /// Reports whether the job is dead if this attempt fails with `error`.
    pub fn is_last_attempt(&self, error: &JobError) -> bool {
        let policy = &self.parts[self.part].held.slice.retry;
        policy.is_last(self.attempt, error)
    }

    /// The origin of the job, for its context.
    pub(crate) fn origin(&self) -> JobOrigin {
        JobOrigin {
            parts: self.parts.clone(),
            part: self.part,
        }
    }
}

/// The origin of a job. Its details are read from the slice on demand.
#[derive(Clone)]
pub(crate) struct JobOrigin {
    parts: Arc<[Part]>,
    part: usize,
}

impl JobOrigin {
    pub fn slice(&self) -> &LeasedSlice {
        &self.parts[self.part].held.slice
    }

    pub fn traceparent(&self) -> Option<TraceParent> {
        self.parts[self.part].traceparent
    }
}

// A slice holds all of its payloads, so it is left out.
impl std::fmt::Debug for JobOrigin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("JobOrigin")
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}

/// The share of one slice in a micro-batch.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub held: HeldSlice,
    /// The parent for spans of its jobs: the submitter's span, or the span of the micro-batch if it has one.
    pub traceparent: Option<TraceParent>,
    /// The place of its first job in the micro-batch.
    first_index: u32,
}

impl MicroBatch {
    /// A micro-batch of slices with the same kind and the same timeout. Either all of them finalize, or none.
    ///
    /// # Panics
    ///
    /// There is no slice.
    pub fn new(slices: Vec<LeasedSlice>) -> MicroBatch {
        MicroBatch::of(slices.into_iter().map(HeldSlice::from).collect())
    }

    pub(crate) fn of(slices: Vec<HeldSlice>) -> MicroBatch {
        let first = &slices[0].slice;
        let (kind, timeout_ms) = (first.kind.clone(), first.timeout_ms);
        let is_alike = |held: &HeldSlice| held.slice.kind == kind && held.slice.timeout_ms == timeout_ms;
        let are_alike = slices.iter().all(is_alike);
        assert!(are_alike, "a micro-batch has one kind and one timeout");
        let payloads = match slices.as_slice() {
            [held] => held.slice.payloads.clone(),
            slices => PackedArray::concat(slices.iter().map(|held| &held.slice.payloads)),
        };
        let memos: Option<Vec<&PackedArray>> = slices.iter().map(|held| held.slice.memos.as_ref()).collect();
        let memos = memos.map(PackedArray::concat);
        assert_eq!(payloads.count(), slices.iter().map(HeldSlice::len).sum::<u32>());
        assert!(memos.as_ref().is_none_or(|all| all.count() == payloads.count()));
        let mut first_index = 0;
        let parts = slices.into_iter().map(|held| {
            let part = Part {
                traceparent: held.slice.traceparent,
                held,
                first_index,
            };
            first_index += part.held.len();
            part
        });
        MicroBatch {
            kind,
            parts: parts.collect(),
            payloads,
            timeout_ms,
            memos,
            children: Arc::default(),
        }
    }

    /// The parts of the micro-batch, before it runs.
    pub(crate) fn parts_mut(&mut self) -> &mut [Part] {
        Arc::make_mut(&mut self.parts)
    }

    /// Reports whether the jobs finalize: their children have ended.
    pub fn is_finalizing(&self) -> bool {
        self.memos.is_some()
    }

    /// Adds the outcomes of the children of each job.
    pub fn with_children(mut self, children: Vec<Vec<ChildOutcome>>) -> Self {
        self.children = children.into();
        self
    }

    /// The outcomes of the children of the job in this place. The list is empty for a job that does not finalize.
    pub fn children_of(&self, index: u32) -> &[ChildOutcome] {
        self.children.get(index as usize).map_or(&[], Vec::as_slice)
    }

    /// The kind of the jobs.
    pub fn kind(&self) -> &Arc<str> {
        &self.kind
    }

    /// The number of jobs.
    pub fn jobs_count(&self) -> u32 {
        self.payloads.count()
    }

    /// The places of all jobs, from 0.
    pub fn indexes(&self) -> Positions {
        Positions::all(self.jobs_count())
    }

    /// The input of jobs that finalize: for each of these places a JSON array of the payload, the memo and the outcomes
    /// of the children. `None` if the jobs do not finalize.
    ///
    /// # Errors
    ///
    /// The place of a job whose children's outcomes are too large for one JSON text, and the reason.
    pub fn finalizing_items(
        &self,
        places: &Positions,
        item_bytes_max: usize,
    ) -> Option<Result<PackedArray, (u32, PackedError)>> {
        let memos = self.memos.as_ref()?;
        let mut builder = PackedBuilder::with_item_bytes_max(item_bytes_max).of_wrapped();
        let (payloads, memos) = (self.payloads.select(places), memos.select(places));
        for ((place, payload), memo) in places.iter().zip(payloads.items()).zip(memos.items()) {
            let outcomes = serde_json::to_string(self.children_of(place)).unwrap_or_default();
            if let Err(error) = builder.push(&format!("[{payload},{memo},{outcomes}]")) {
                return Some(Err((place, error)));
            }
        }
        Some(Ok(builder.finish()))
    }

    /// The identity of the jobs in these places, for the process that runs them: one JSON object with their `kind` and
    /// their `parts`, in the order of the places. A part has `batch`, `positions` (in the text form of [`Positions`]),
    /// `attempt` and `queue`. It may also have `group`, `deadline` (seconds since 1970), `traceparent`, `keys` (one
    /// entry for each job) and `tags`: a list of name, value, and the positions of the jobs with the tag, or `null` if
    /// all jobs have it.
    pub fn identity_json(&self, places: &Positions) -> String {
        #[derive(serde::Serialize)]
        struct PartIdentity<'a> {
            batch: i64,
            positions: Positions,
            attempt: u32,
            queue: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            group: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            deadline: Option<f64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            traceparent: Option<TraceParent>,
            #[serde(flatten)]
            labels: Option<JobLabels>,
        }
        #[derive(serde::Serialize)]
        struct Identity<'a> {
            kind: &'a str,
            parts: Vec<PartIdentity<'a>>,
        }
        let parts = self.parts.iter().filter_map(|part| {
            let positions = part.positions_at(places);
            let slice = &part.held.slice;
            (!positions.is_empty()).then(|| PartIdentity {
                batch: part.batch().0,
                attempt: part.last_attempt(),
                queue: &slice.queue,
                group: slice.group.as_deref(),
                deadline: slice.deadline.map(|deadline| deadline.0 as f64 / 1_000.0),
                traceparent: part.traceparent,
                labels: slice.labels_of(&positions),
                positions,
            })
        });
        let identity = Identity {
            kind: &self.kind,
            parts: parts.collect(),
        };
        serde_json::to_string(&identity).unwrap_or_default()
    }

    /// The payloads, one for each job, in the order of the places.
    pub fn payloads(&self) -> &PackedArray {
        &self.payloads
    }

    /// The highest priority of the jobs.
    pub fn priority(&self) -> i16 {
        let priorities = self.parts.iter().map(|part| part.held.slice.priority);
        priorities.max().unwrap_or_default()
    }

    /// The time limit of one attempt, in milliseconds.
    pub fn timeout_ms(&self) -> Option<u64> {
        self.timeout_ms
    }

    /// The jobs, in the order of their places.
    pub fn jobs(&self) -> impl Iterator<Item = MicroBatchJob<'_>> {
        let ids = self.parts.iter().enumerate().flat_map(|(number, part)| {
            let id = |position| JobId {
                batch: part.batch(),
                position,
            };
            part.positions()
                .iter()
                .map(move |position| (number, id(position), part.last_attempt()))
        });
        let memos = self.memos.iter().flat_map(PackedArray::items);
        let memos = memos.map(Some).chain(std::iter::repeat(None));
        let numbered = (0..).zip(ids).zip(self.payloads.items()).zip(memos);
        numbered.map(|(((index, (part, id, attempt)), payload), memo)| MicroBatchJob {
            index,
            id,
            attempt,
            payload,
            memo,
            parts: &self.parts,
            part,
        })
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// The number of the part that holds the job in this place.
pub(crate) fn part_of(parts: &[Part], index: u32) -> usize {
    parts.partition_point(|part| part.indexes().end <= index)
}

impl Part {
    pub fn lease(&self) -> LeaseId {
        self.held.slice.lease
    }

    pub fn batch(&self) -> BatchId {
        self.held.slice.batch
    }

    /// The attempt for which the jobs were claimed.
    pub fn attempt(&self) -> u32 {
        self.held.slice.attempt
    }

    pub fn retry(&self) -> &RetryPolicy {
        &self.held.slice.retry
    }

    pub fn positions(&self) -> &Positions {
        &self.held.slice.positions
    }

    /// The running attempt.
    pub fn last_attempt(&self) -> u32 {
        self.attempt() + self.held.repeats
    }

    fn indexes(&self) -> std::ops::Range<u32> {
        self.first_index..self.first_index + self.held.len()
    }

    /// The places of these positions of the part's batch in the micro-batch.
    pub fn indexes_of(&self, positions: &Positions) -> Positions {
        self.positions()
            .indexes_of(positions)
            .shifted_up(self.first_index)
    }

    /// The positions in the batch of the jobs in these places. Places of other parts are ignored.
    fn positions_at(&self, indexes: &Positions) -> Positions {
        let own = indexes.intersection(&Positions::from(self.indexes()));
        self.positions().select(&own.shifted_down(self.first_index))
    }

    /// The id of the job in a place.
    pub fn job_at(&self, index: u32) -> JobId {
        let (batch, position) = (self.batch(), self.position_at(index));
        JobId { batch, position }
    }

    fn position_at(&self, index: u32) -> u32 {
        assert!(self.indexes().contains(&index), "a part has its indexes");
        let place = Positions::from(index - self.first_index..index - self.first_index + 1);
        self.positions().select(&place).first().unwrap_or_default()
    }

    /// Renumbers outcomes of this part by their positions in the batch.
    fn place(&self, mut outcomes: Outcomes) -> Outcomes {
        if let Some(completed) = &mut outcomes.completed {
            completed.positions = self.positions_at(&completed.positions);
        }
        for failed in &mut outcomes.failed {
            failed.position = self.position_at(failed.position);
        }
        outcomes.released = self.positions_at(&outcomes.released);
        outcomes.returned = self.positions_at(&outcomes.returned);
        for suspended in &mut outcomes.suspended {
            suspended.positions = self.positions_at(&suspended.positions);
        }
        for siblings in &mut outcomes.siblings {
            siblings.positions = self.positions_at(&siblings.positions);
        }
        for log in &mut outcomes.logs {
            log.position = self.position_at(log.position);
        }
        outcomes
    }
}

/// Divides outcomes between the parts. Each share is numbered by the positions in its batch.
pub(crate) fn share_out(parts: &[Part], outcomes: Outcomes) -> Vec<(usize, Outcomes)> {
    if let [part] = parts {
        return vec![(0, part.place(outcomes))];
    }
    let answered = outcomes.positions();
    let (Some(first), Some(last)) = (answered.first(), answered.last()) else {
        return Vec::new();
    };
    let part_of = |index: u32| part_of(parts, index);
    let first_part = part_of(first);
    let touched = &parts[first_part..=part_of(last)];
    let mut shares: Vec<Outcomes> = touched.iter().map(|_| Outcomes::default()).collect();
    if let Some(completed) = outcomes.completed {
        for (share, piece) in shares.iter_mut().zip(cut(touched, completed)) {
            share.completed = Some(piece).filter(|piece| !piece.positions.is_empty());
        }
    }
    for failed in outcomes.failed {
        shares[part_of(failed.position) - first_part].failed.push(failed);
    }
    for log in outcomes.logs {
        shares[part_of(log.position) - first_part].logs.push(log);
    }
    for (part, share) in touched.iter().zip(&mut shares) {
        let own = Positions::from(part.indexes());
        share.released = outcomes.released.intersection(&own);
        share.returned = outcomes.returned.intersection(&own);
        for (place, suspended) in outcomes.suspended.iter().enumerate() {
            if let Some(suspended) = suspended.select(&own) {
                share.suspended.push(suspended);
                share.suspended_us.extend(outcomes.suspended_us.get(place));
            }
        }
        let siblings = outcomes.siblings.iter();
        share.siblings = siblings.filter_map(|siblings| siblings.select(&own)).collect();
    }
    debug_assert_eq!(
        shares.iter().map(|share| share.positions().len()).sum::<u32>(),
        answered.len(),
        "each answered job is in the share of one part"
    );
    let numbered = (first_part..).zip(shares).filter(|(_, share)| !share.is_empty());
    numbered
        .map(|(number, share)| (number, parts[number].place(share)))
        .collect()
}

/// Cuts completed jobs into one piece for each part, in the order of the parts. The pieces keep the numbers of the places.
fn cut(parts: &[Part], completed: Completed) -> Vec<Completed> {
    let own = |part: &Part| completed.positions.intersection(&Positions::from(part.indexes()));
    let positions: Vec<Positions> = parts.iter().map(own).collect();
    let values = completed.values.cut(positions.iter().map(Positions::len));
    let mut durations_us = completed.durations_us.into_iter();
    let pieces = positions
        .into_iter()
        .zip(values)
        .map(|(positions, values)| Completed {
            durations_us: durations_us.by_ref().take(positions.len() as usize).collect(),
            positions,
            values,
        });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use gristmill_model::{FailedJob, JobLog, Spawn, Suspended, Tag, Timestamp};

    use super::*;
    use crate::handler::context::JobContext;

    fn slice(batch: i64, positions: &str) -> LeasedSlice {
        let positions: Positions = positions.parse().unwrap();
        let items: Vec<String> = positions
            .iter()
            .map(|position| format!("\"{batch}:{position}\""))
            .collect();
        LeasedSlice {
            lease: LeaseId(batch * 100),
            batch: BatchId(batch),
            kind: "shout".into(),
            queue: "default".into(),
            group: None,
            payloads: PackedArray::parse(&format!("[{}]", items.join(","))).unwrap(),
            positions,
            attempt: batch as u32,
            rescues: 0,
            timeout_ms: Some(9),
            priority: 0,
            retry: gristmill_model::RetryPolicy::default(),
            submitted_at: Timestamp(0),
            memos: None,
            deadline: None,
            labels: None,
            traceparent: None,
        }
    }

    fn completed(micro_batch: &MicroBatch, indexes: &str) -> Completed {
        let positions: Positions = indexes.parse().unwrap();
        Completed {
            values: micro_batch.payloads().select(&positions),
            durations_us: positions.iter().collect(),
            positions,
        }
    }

    #[test]
    fn the_places_of_jobs_continue_over_several_batches() {
        let micro_batch = MicroBatch::new(vec![slice(1, "3-4"), slice(2, "0"), slice(3, "7,9")]);
        assert_eq!((micro_batch.jobs_count(), micro_batch.timeout_ms()), (5, Some(9)));
        for (index, job) in micro_batch.jobs().enumerate() {
            assert_eq!(job.index as usize, index);
            assert_eq!(
                job.payload,
                format!("\"{}\"", job.id),
                "payloads stay with their jobs"
            );
            assert_eq!(i64::from(job.attempt), job.id.batch.0);
        }
        let ids: Vec<String> = micro_batch.jobs().map(|job| job.id.to_string()).collect();
        assert_eq!(ids, ["1:3", "1:4", "2:0", "3:7", "3:9"]);
    }

    #[test]
    fn outcomes_reach_their_batches() {
        let micro_batch = MicroBatch::new(vec![slice(1, "3-4"), slice(2, "0"), slice(3, "7,9")]);
        let failure = |position| FailedJob {
            position,
            error: JobError::new("E", "no"),
            duration_us: 1,
        };
        let log = |position| JobLog {
            position,
            text: "said".to_owned(),
        };
        let outcomes = Outcomes {
            completed: Some(completed(&micro_batch, "1-2,4")),
            failed: vec![failure(3)],
            released: Positions::from(0..1),
            suspended: Vec::new(),
            logs: vec![log(4), log(3)],
            ..Outcomes::default()
        };
        let parts = micro_batch.parts();
        let shares = share_out(parts, outcomes);
        let described: Vec<String> = shares
            .iter()
            .map(|(part, share)| {
                let completed = share.completed.as_ref();
                format!(
                    "{}: completed {} {:?}, failed {:?}, released {}, logs {:?}",
                    parts[*part].batch(),
                    completed
                        .map(|completed| completed.values.as_str())
                        .unwrap_or_default(),
                    completed
                        .map(|completed| (completed.positions.to_string(), completed.durations_us.clone())),
                    share
                        .failed
                        .iter()
                        .map(|failed| failed.position)
                        .collect::<Vec<_>>(),
                    share.released,
                    share.logs.iter().map(|log| log.position).collect::<Vec<_>>(),
                )
            })
            .collect();
        assert_eq!(
            described,
            [
                r#"1: completed ["1:4"] Some(("4", [1])), failed [], released 3, logs []"#,
                r#"2: completed ["2:0"] Some(("0", [2])), failed [], released , logs []"#,
                r#"3: completed ["3:9"] Some(("9", [4])), failed [7], released , logs [9, 7]"#,
            ]
        );
    }

    #[test]
    fn a_process_learns_the_identity_of_its_jobs() {
        let micro_batch = MicroBatch::new(vec![slice(1, "3-4"), slice(2, "0"), slice(3, "7,9")]);
        assert_eq!(
            micro_batch.identity_json(&"1,3-4".parse().unwrap()),
            concat!(
                r#"{"kind":"shout","parts":[{"batch":1,"positions":"4","attempt":1,"queue":"default"},"#,
                r#"{"batch":3,"positions":"7,9","attempt":3,"queue":"default"}]}"#
            )
        );
    }

    #[test]
    fn a_process_learns_the_keys_and_tags_of_its_own_jobs() {
        let tag = Tag {
            positions: Some("9,12".parse().unwrap()),
            ..Tag::all("page", "a")
        };
        let keys = PackedArray::parse(r#"["seven",null,null]"#).unwrap();
        let labels = JobLabels::new("7,9,12".parse().unwrap(), Some(keys), vec![tag]).unwrap();
        let labelled = LeasedSlice {
            group: Some("acme".into()),
            deadline: Some(Timestamp(1_500)),
            labels: Some(Arc::new(labels)),
            ..slice(3, "7,9,12")
        };
        let micro_batch = MicroBatch::new(vec![slice(1, "3-4"), labelled]);
        let told = |places: &str| {
            micro_batch
                .identity_json(&places.parse().unwrap())
                .replace('\n', "")
        };
        let part = |rest: &str| format!(r#"{{"kind":"shout","parts":[{{"batch":3,{rest}}}]}}"#);
        assert_eq!(
            [told("2"), told("3"), told("2-3")],
            [
                part(
                    r#""positions":"7","attempt":3,"queue":"default","group":"acme","deadline":1.5,"keys":["seven"]"#
                ),
                part(
                    r#""positions":"9","attempt":3,"queue":"default","group":"acme","deadline":1.5,"tags":[["page","a",null]]"#
                ),
                part(concat!(
                    r#""positions":"7,9","attempt":3,"queue":"default","group":"acme","deadline":1.5,"#,
                    r#""keys":["seven",null],"tags":[["page","a","9"]]"#
                )),
            ]
        );
        assert_eq!(
            told("0"),
            r#"{"kind":"shout","parts":[{"batch":1,"positions":"3","attempt":1,"queue":"default"}]}"#
        );
        let contexts: Vec<JobContext> = micro_batch.jobs().map(|job| JobContext::detached(&job)).collect();
        let keys: Vec<Option<String>> = contexts.iter().map(JobContext::key).collect();
        assert_eq!(keys, [None, None, Some("seven".to_owned()), None, None]);
        let job = &contexts[3];
        assert_eq!(
            (job.id().to_string().as_str(), job.attempt(), job.batch()),
            ("3:9", 3, BatchId(3))
        );
        assert_eq!(
            (job.kind(), job.queue(), job.group()),
            ("shout", "default", Some("acme"))
        );
        assert_eq!((job.tags().len(), job.deadline()), (1, Some(Timestamp(1_500))));
        assert_eq!(
            (
                contexts[0].group(),
                contexts[0].tags().len(),
                contexts[0].deadline()
            ),
            (None, 0, None)
        );
    }

    #[test]
    fn failed_jobs_run_again_with_the_next_attempt() {
        let held = HeldSlice::from(slice(3, "7,9"));
        let once_more = |held: &HeldSlice| HeldSlice {
            repeats: held.repeats + 1,
            ..held.select(&"9".parse().unwrap())
        };
        let again = once_more(&held);
        for (held, attempt) in [(again.clone(), 4), (once_more(&again), 5)] {
            let micro_batch = MicroBatch::of(vec![held]);
            let job = micro_batch.jobs().next().unwrap();
            assert_eq!((job.index, job.id.to_string().as_str()), (0, "3:9"));
            assert_eq!((job.attempt, job.payload), (attempt, "\"3:9\""));
        }
    }

    #[test]
    fn suspended_jobs_reach_their_batches() {
        let micro_batch = MicroBatch::new(vec![slice(1, "3-4"), slice(2, "0"), slice(3, "7,9")]);
        let suspended = |index| {
            let spawn = Spawn::new().children("child", [index]).unwrap();
            Suspended::one(index, spawn)
        };
        let outcomes = Outcomes {
            suspended: Suspended::pack([4, 0, 1].map(suspended).into()),
            ..Outcomes::default()
        };
        let parts = micro_batch.parts();
        let described: Vec<String> = share_out(parts, outcomes)
            .iter()
            .map(|(part, share)| {
                let suspended = &share.suspended[0];
                let payloads = suspended.children[0].payloads.as_str();
                format!("{}: {} {payloads}", parts[*part].batch(), suspended.positions)
            })
            .collect();
        assert_eq!(described, ["1: 3-4 [0\n,1]", "3: 9 [4]"]);
    }

    #[test]
    fn a_job_that_finalizes_has_a_memo() {
        let finalizing = |batch, positions, memos: &str| LeasedSlice {
            memos: Some(PackedArray::parse(memos).unwrap()),
            ..slice(batch, positions)
        };
        let micro_batch = MicroBatch::new(vec![finalizing(1, "3-4", "[3,4]"), finalizing(2, "0", "[null]")]);
        assert!(micro_batch.is_finalizing());
        let memos: Vec<&str> = micro_batch.jobs().filter_map(|job| job.memo).collect();
        assert_eq!(memos, ["3", "4", "null"]);
        assert!(micro_batch.children_of(2).is_empty());
        assert!(!MicroBatch::new(vec![slice(1, "0")]).is_finalizing());
    }

    #[test]
    fn outcomes_of_one_part_make_no_share_for_others() {
        let micro_batch = MicroBatch::new(vec![slice(1, "3-4"), slice(2, "0"), slice(3, "7,9")]);
        let parts = micro_batch.parts();
        let outcomes = Outcomes {
            completed: Some(completed(&micro_batch, "2")),
            ..Outcomes::default()
        };
        let shares = share_out(parts, outcomes);
        assert_eq!(shares.len(), 1);
        assert_eq!(parts[shares[0].0].batch(), BatchId(2));
        assert!(share_out(parts, Outcomes::default()).is_empty());
        assert_eq!(parts[2].indexes_of(&"0,9".parse().unwrap()).to_string(), "4");
    }
}
