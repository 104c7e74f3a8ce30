//! An exchange: reports and a claim go to the server, and receipts and a lease come back.

use std::sync::Arc;

use bytes::Bytes;
use gristmill_model::limits::{ATTEMPTS_MAX, BATCH_JOBS_MAX, LOG_BYTES_MAX};
use gristmill_model::{
    BatchId, Completed, EarlierFailure, FailedJob, Followed, JobLabels, JobLog, Lease, LeaseId, LeasedSlice,
    PackedArray, Positions, Receipt, Report, RetryPolicy, Siblings, Suspended, Timestamp, TraceParent,
    bounded,
};
use gristmill_store::{Exchanged, Want};
use serde::{Deserialize, Deserializer, Serialize};

use super::frame::{self, FrameError, Segment};
use crate::limits::{
    ENTRIES_PER_EXCHANGE_MAX, ITEM_BYTES_MAX, KINDS_READ_MAX, LOG_BYTES_PER_EXCHANGE_MAX, REPORTED_READ_MAX,
    REPORTS_PER_EXCHANGE_MAX, REPORTS_READ_MAX,
};

/// The request of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeRequest {
    /// The request's number, from 1 upwards for each registered worker. A repeated request has the same number.
    pub number: u64,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// All requests up to this number have been answered and will not be sent again.
    pub acknowledged: u64,
    /// The server that the agent expects, as in the last answer.
    pub instance: String,
    /// The outcomes.
    pub reports: Vec<Report>,
    /// The agent's claim.
    pub want: Option<Want>,
    /// The longest wait of the server for jobs, if there are none and the request has no reports. Milliseconds.
    pub wait_ms: u64,
}

/// The answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeResponse {
    /// The server that answers.
    pub instance: String,
    /// Receipts, a lease, and the time when more can be claimed, by the server's clock.
    pub exchanged: Exchanged,
    /// The server's clock, so that an agent with another clock can compute the delay to the next time.
    pub now: Timestamp,
    /// True if an earlier attempt of this request may have a claim that the agent never received.
    pub claim_unknown: bool,
    /// True if the server did not claim because the agent did not name it.
    pub not_claimed: bool,
    /// All followed jobs, if the list has changed.
    pub followed: Option<Vec<Followed>>,
}

impl ExchangeResponse {
    /// Reports whether the agent can repeat the claim to the server that answered, because no job was claimed.
    pub fn is_left_to_another(&self) -> bool {
        self.not_claimed && !self.claim_unknown
    }
}

#[derive(Serialize, Deserialize)]
struct RequestHead {
    number: u64,
    attempt: u32,
    acknowledged: u64,
    instance: String,
    #[serde(default, deserialize_with = "bounded::list::<_, _, REPORTS_READ_MAX>")]
    reports: Vec<ReportHead>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_want"
    )]
    want: Option<Want>,
    #[serde(default)]
    wait_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct ReportHead {
    lease: LeaseId,
    batch: BatchId,
    attempt: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    repeats: u32,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "read_reported"
    )]
    earlier: Vec<EarlierFailure>,
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    completed: Positions,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "read_reported"
    )]
    failed: Vec<FailedJob>,
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    released: Positions,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "read_reported"
    )]
    suspended: Vec<Suspended>,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "read_reported"
    )]
    siblings: Vec<Siblings>,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "read_reported"
    )]
    logs: Vec<JobLog>,
}

/// Reads one list of a report.
fn read_reported<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    bounded::list::<_, _, REPORTED_READ_MAX>(deserializer)
}

/// Reads a claim, whose lists are bounded.
fn read_want<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Want>, D::Error> {
    #[derive(Deserialize)]
    struct WantHead {
        jobs_max: u32,
        #[serde(deserialize_with = "bounded::list::<_, _, KINDS_READ_MAX>")]
        queues: Vec<Arc<str>>,
        #[serde(deserialize_with = "bounded::list::<_, _, KINDS_READ_MAX>")]
        kinds: Vec<Arc<str>>,
        #[serde(default)]
        priority_min: Option<i16>,
    }
    let want = Option::<WantHead>::deserialize(deserializer)?;
    Ok(want.map(|want| Want {
        jobs_max: want.jobs_max,
        queues: want.queues,
        kinds: want.kinds,
        priority_min: want.priority_min,
    }))
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_ordinary(priority: &i16) -> bool {
    *priority == 0
}

fn is_default(retry: &RetryPolicy) -> bool {
    *retry == RetryPolicy::default()
}

#[derive(Serialize, Deserialize)]
struct ResponseHead {
    instance: String,
    receipts: Vec<Receipt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseHead>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_run_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    limited: bool,
    now: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    claim_unknown: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    not_claimed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    followed: Option<Vec<Followed>>,
}

#[derive(Serialize, Deserialize)]
struct LeaseHead {
    id: LeaseId,
    slices: Vec<SliceHead>,
}

#[derive(Serialize, Deserialize)]
struct SliceHead {
    batch: BatchId,
    kind: Arc<str>,
    queue: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<Arc<str>>,
    positions: Positions,
    attempt: u32,
    rescues: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "is_ordinary")]
    priority: i16,
    #[serde(default, skip_serializing_if = "is_default")]
    retry: RetryPolicy,
    submitted_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memos: Option<PackedArray>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    /// True if a segment with keys and tags follows the segment with the payloads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    labelled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<TraceParent>,
}

impl ExchangeRequest {
    /// Writes the request.
    pub fn encode(self) -> Bytes {
        let mut segments = Vec::new();
        let mut reports = Vec::with_capacity(self.reports.len());
        for report in self.reports {
            let Report {
                lease,
                batch,
                attempt,
                repeats,
                earlier,
                completed,
                failed,
                released,
                suspended,
                siblings,
                logs,
                writes: _,
            } = report;
            let completed = completed.map_or_else(Positions::new, |completed| {
                assert_eq!(
                    (completed.values.count(), completed.durations_us.len()),
                    (completed.positions.len(), completed.positions.len() as usize),
                    "each completed job has a value and a duration"
                );
                let durations = completed
                    .durations_us
                    .iter()
                    .flat_map(|us| us.to_le_bytes())
                    .collect();
                assert!(!completed.positions.is_empty(), "a part completes jobs");
                segments.push(Segment::Text(completed.values.text().clone()));
                segments.push(Segment::Bytes(durations));
                completed.positions
            });
            reports.push(ReportHead {
                lease,
                batch,
                attempt,
                repeats,
                earlier,
                completed,
                failed,
                released,
                suspended,
                siblings,
                logs,
            });
        }
        let head = RequestHead {
            number: self.number,
            attempt: self.attempt,
            acknowledged: self.acknowledged,
            instance: self.instance,
            reports,
            want: self.want,
            wait_ms: self.wait_ms,
        };
        frame::encode(&head, &segments)
    }

    /// Reads a request from a foreign machine. Each list of values must be one JSON array with a value for each
    /// position, and no position may appear twice. Texts are cut at their limits.
    pub fn decode(message: &[u8]) -> Result<ExchangeRequest, FrameError> {
        let read = || frame::decode::<RequestHead>(message);
        let (head, segments) = bounded::within(ENTRIES_PER_EXCHANGE_MAX, read)?;
        if head.reports.len() > REPORTS_PER_EXCHANGE_MAX {
            return Err(FrameError::Head(format!(
                "it has over {REPORTS_PER_EXCHANGE_MAX} reports"
            )));
        }
        let named = 2 * head
            .reports
            .iter()
            .filter(|report| !report.completed.is_empty())
            .count();
        if named != segments.len() {
            return Err(FrameError::Segments {
                named,
                found: segments.len(),
            });
        }
        let mut segments = segments.into_iter();
        let mut log_bytes_left = LOG_BYTES_PER_EXCHANGE_MAX;
        let mut reports = Vec::with_capacity(head.reports.len());
        for report in head.reports {
            let completed = if report.completed.is_empty() {
                None
            } else {
                Some(completed(&report, segments.next(), segments.next())?)
            };
            reports.push(checked(report, completed, &mut log_bytes_left)?);
        }
        assert!(segments.next().is_none(), "each segment belongs to a report");
        Ok(ExchangeRequest {
            number: head.number,
            attempt: head.attempt,
            acknowledged: head.acknowledged,
            instance: head.instance,
            reports,
            want: head.want,
            wait_ms: head.wait_ms,
        })
    }
}

/// The completed jobs of one report, from its two segments.
fn completed(
    report: &ReportHead,
    values: Option<&[u8]>,
    durations: Option<&[u8]>,
) -> Result<Completed, FrameError> {
    let wrong = |what: String| {
        FrameError::Segment(format!(
            "the report of batch {} under lease {}: {what}",
            report.batch, report.lease
        ))
    };
    let positions = report.completed.clone();
    let text = std::str::from_utf8(values.unwrap_or_default())
        .map_err(|error| wrong(format!("the values are not UTF-8: {error}")))?;
    let values = PackedArray::parse(text).map_err(|error| wrong(format!("the values: {error}")))?;
    let durations_us: Vec<u32> = durations
        .unwrap_or_default()
        .chunks(4)
        .map(|bytes| bytes.try_into().map(u32::from_le_bytes))
        .collect::<Result<_, _>>()
        .map_err(|_| wrong("the durations are not 32-bit numbers".to_owned()))?;
    let jobs = positions.len();
    if values.count() != jobs || durations_us.len() != jobs as usize {
        return Err(wrong(format!(
            "{} values and {} durations for {jobs} completed jobs",
            values.count(),
            durations_us.len()
        )));
    }
    if let Some((index, item)) = values
        .items()
        .enumerate()
        .find(|(_, item)| item.len() > ITEM_BYTES_MAX)
    {
        let bytes = item.len();
        return Err(wrong(format!(
            "value {index} has {bytes} bytes; the limit is {ITEM_BYTES_MAX}"
        )));
    }
    Ok(Completed {
        positions,
        values,
        durations_us,
    })
}

fn checked(
    report: ReportHead,
    completed: Option<Completed>,
    log_bytes_left: &mut usize,
) -> Result<Report, FrameError> {
    let wrong = |what: String| {
        FrameError::Head(format!(
            "the report of batch {} under lease {} {what}",
            report.batch, report.lease
        ))
    };
    let last_attempt = report.attempt.saturating_add(report.repeats);
    if last_attempt > ATTEMPTS_MAX {
        return Err(wrong(format!("speaks of attempt {last_attempt}")));
    }
    let failed = positions_of(&report.failed);
    if let Some(position) = failed.last().filter(|position| **position >= BATCH_JOBS_MAX) {
        return Err(wrong(format!("speaks of position {position}")));
    }
    let mut listed = report.completed.len() as usize + report.released.len() as usize + failed.len();
    let mut spoken_of = report.completed.union(&report.released);
    failed.into_iter().for_each(|position| spoken_of.insert(position));
    for suspended in &report.suspended {
        if let Err(error) = suspended.check() {
            return Err(wrong(format!("suspends jobs that cannot be: {error}")));
        }
        listed += suspended.positions.len() as usize;
        for range in suspended.positions.ranges() {
            spoken_of.insert_range(range.clone());
        }
    }
    for siblings in &report.siblings {
        if !report.completed.contains_all(&siblings.positions) {
            return Err(wrong(
                "spawns siblings of jobs that it does not complete".to_owned(),
            ));
        }
        if let Err(error) = siblings.check() {
            return Err(wrong(format!("spawns siblings that cannot be: {error}")));
        }
    }
    assert!(
        listed >= spoken_of.len() as usize,
        "{listed} listed jobs cannot have {} positions",
        spoken_of.len()
    );
    listed -= spoken_of.len() as usize;
    if listed > 0 {
        return Err(wrong("speaks of a position twice".to_owned()));
    }
    debug_assert!(spoken_of.last().is_none_or(|last| last < BATCH_JOBS_MAX));
    let logs = checked_logs(report.logs, &spoken_of, log_bytes_left, wrong)?;
    let mut failed: Vec<FailedJob> = report.failed.into_iter().map(cut).collect();
    failed.sort_by_key(|failed| failed.position);
    debug_assert!(failed.windows(2).all(|pair| pair[0].position < pair[1].position));
    let earlier = checked_earlier(report.earlier, log_bytes_left)?;
    Ok(Report {
        lease: report.lease,
        batch: report.batch,
        attempt: report.attempt,
        repeats: report.repeats,
        earlier,
        completed,
        failed,
        released: report.released,
        suspended: report.suspended,
        siblings: report.siblings,
        logs,
        writes: Vec::new(),
    })
}

/// The logs of a report, each of another of its jobs.
fn checked_logs(
    received: Vec<JobLog>,
    jobs: &Positions,
    log_bytes_left: &mut usize,
    wrong: impl Fn(String) -> FrameError,
) -> Result<Vec<JobLog>, FrameError> {
    let mut logs: Vec<JobLog> = Vec::with_capacity(received.len());
    for mut log in received {
        if !jobs.contains(log.position) || logs.last().is_some_and(|last| last.position >= log.position) {
            return Err(wrong(
                "has logs that are not of its jobs, by position ascending".to_owned(),
            ));
        }
        log.text = clean(log.text, LOG_BYTES_MAX);
        take_log_bytes(log_bytes_left, log.text.len())?;
        logs.push(log);
    }
    Ok(logs)
}

/// The failed attempts before the last one, with their texts cut.
fn checked_earlier(
    received: Vec<EarlierFailure>,
    log_bytes_left: &mut usize,
) -> Result<Vec<EarlierFailure>, FrameError> {
    let mut earlier = Vec::with_capacity(received.len());
    for failure in received {
        let log = failure.log.map(|log| clean(log, LOG_BYTES_MAX));
        take_log_bytes(log_bytes_left, log.as_ref().map_or(0, String::len))?;
        earlier.push(EarlierFailure {
            error: failure.error.cleaned(),
            log,
            ..failure
        });
    }
    Ok(earlier)
}

/// Subtracts the bytes of a log from those that the exchange may carry.
fn take_log_bytes(left: &mut usize, bytes: usize) -> Result<(), FrameError> {
    *left = left
        .checked_sub(bytes)
        .ok_or_else(|| FrameError::Head(format!("the logs are over {LOG_BYTES_PER_EXCHANGE_MAX} bytes")))?;
    Ok(())
}

/// The positions of failed jobs, ascending.
fn positions_of(failed: &[FailedJob]) -> Vec<u32> {
    let mut positions: Vec<u32> = failed.iter().map(|failed| failed.position).collect();
    positions.sort_unstable();
    positions
}

/// The same failure with its texts cut.
fn cut(failed: FailedJob) -> FailedJob {
    FailedJob {
        error: failed.error.cleaned(),
        ..failed
    }
}

/// The text, cut, and without NUL characters.
pub fn clean(mut text: String, bytes_max: usize) -> String {
    let cut = |text: &mut String| text.truncate(text.floor_char_boundary(bytes_max));
    cut(&mut text);
    if text.contains('\0') {
        // A replaced character is longer.
        text = text.replace('\0', "\u{fffd}");
        cut(&mut text);
    }
    assert!(
        text.len() <= bytes_max,
        "a cleaned text stays within {bytes_max} bytes"
    );
    text
}

impl ExchangeResponse {
    /// Writes the answer.
    pub fn encode(self) -> Bytes {
        let mut segments = Vec::new();
        let lease = self.exchanged.lease.map(|lease| LeaseHead {
            id: lease.id,
            slices: lease
                .slices
                .into_iter()
                .map(|slice| {
                    assert_eq!(
                        slice.payloads.count(),
                        slice.positions.len(),
                        "each leased job has a payload"
                    );
                    assert!(
                        slice
                            .memos
                            .as_ref()
                            .is_none_or(|memos| memos.count() == slice.positions.len()),
                        "each job that finalizes has a memo"
                    );
                    segments.push(Segment::Text(slice.payloads.text().clone()));
                    let labels = slice.labels_of(&slice.positions);
                    if let Some(labels) = &labels {
                        segments.push(Segment::Text(labels.to_text().into()));
                    }
                    SliceHead {
                        batch: slice.batch,
                        kind: slice.kind,
                        queue: slice.queue,
                        group: slice.group,
                        positions: slice.positions,
                        attempt: slice.attempt,
                        rescues: slice.rescues,
                        timeout_ms: slice.timeout_ms,
                        priority: slice.priority,
                        retry: slice.retry,
                        submitted_at: slice.submitted_at,
                        memos: slice.memos,
                        deadline: slice.deadline,
                        labelled: labels.is_some(),
                        traceparent: slice.traceparent,
                    }
                })
                .collect(),
        });
        let head = ResponseHead {
            instance: self.instance,
            receipts: self.exchanged.receipts,
            lease,
            next_run_at: self.exchanged.next_run_at,
            limited: self.exchanged.limited,
            now: self.now,
            claim_unknown: self.claim_unknown,
            not_claimed: self.not_claimed,
            followed: self.followed,
        };
        frame::encode(&head, &segments)
    }

    /// Reads an answer of a server. Payloads are not checked, because the server packed and checked them.
    pub fn decode(message: &[u8]) -> Result<ExchangeResponse, FrameError> {
        let (head, segments) = frame::decode::<ResponseHead>(message)?;
        let slices = head.lease.iter().flat_map(|lease| &lease.slices);
        let named = slices.map(|slice| 1 + usize::from(slice.labelled)).sum();
        if named != segments.len() {
            return Err(FrameError::Segments {
                named,
                found: segments.len(),
            });
        }
        let lease = head.lease.map(|lease| read_lease(lease, &segments)).transpose()?;
        Ok(ExchangeResponse {
            instance: head.instance,
            exchanged: Exchanged {
                receipts: head.receipts,
                lease,
                next_run_at: head.next_run_at,
                limited: head.limited,
            },
            now: head.now,
            claim_unknown: head.claim_unknown,
            not_claimed: head.not_claimed,
            followed: head.followed,
        })
    }
}

fn read_lease(lease: LeaseHead, segments: &[&[u8]]) -> Result<Lease, FrameError> {
    let mut slices = Vec::with_capacity(lease.slices.len());
    let mut segments = segments.iter().copied();
    for slice in lease.slices {
        let segment = segments.next().unwrap_or_default();
        let wrong = |what: &str| FrameError::Segment(format!("the payloads of batch {} {what}", slice.batch));
        let text = std::str::from_utf8(segment).map_err(|_| wrong("are not UTF-8"))?;
        if !(text.starts_with('[') && text.ends_with(']') && text.len() >= 2) {
            return Err(wrong("are not a JSON array"));
        }
        let payloads = PackedArray::from_stored(text);
        if payloads.count() != slice.positions.len() {
            return Err(wrong("are not one for each position"));
        }
        if slice
            .memos
            .as_ref()
            .is_some_and(|memos| memos.count() != slice.positions.len())
        {
            return Err(wrong("are not as many as their memos"));
        }
        let labels = if slice.labelled {
            Some(read_labels(&slice, segments.next().unwrap_or_default())?)
        } else {
            None
        };
        slices.push(LeasedSlice {
            lease: lease.id,
            batch: slice.batch,
            kind: slice.kind,
            queue: slice.queue,
            group: slice.group,
            positions: slice.positions,
            payloads,
            attempt: slice.attempt,
            rescues: slice.rescues,
            timeout_ms: slice.timeout_ms,
            priority: slice.priority,
            retry: slice.retry,
            submitted_at: slice.submitted_at,
            memos: slice.memos,
            deadline: slice.deadline,
            labels,
            traceparent: slice.traceparent,
        });
    }
    assert!(segments.next().is_none(), "each segment belongs to a slice");
    Ok(Lease { id: lease.id, slices })
}

fn read_labels(slice: &SliceHead, segment: &[u8]) -> Result<Arc<JobLabels>, FrameError> {
    let wrong = |what: String| {
        FrameError::Segment(format!(
            "the keys and tags of batch {}, positions {}: {what}",
            slice.batch, slice.positions
        ))
    };
    let text = std::str::from_utf8(segment).map_err(|error| wrong(format!("not UTF-8: {error}")))?;
    let labels = JobLabels::read(text, slice.positions.clone());
    labels.map(Arc::new).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests;
