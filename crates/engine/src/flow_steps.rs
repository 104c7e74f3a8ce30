//! Flows as people see them: their steps, what they wait for, and the jobs to which events go.
//!
//! A flow's memo has a part for each suspension. It names the children that the suspension spawned, in their order. A memo
//! of another form, such as that of a parent, names none: its children are told by their kinds.

mod kept;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::signal::{EVENT_KIND, SLEEP_KIND};
use gristmill_model::{BatchId, JobId, JobState, Signal, Timestamp};
use gristmill_store::{BatchPositions, JobCounts, JobFilter, JobRow, Page, Store, StoreError, Suspension};
use gristmill_worker::flow::{StepEntry, named_steps};
pub use gristmill_worker::flow::{name_and_version, step_of};
use serde::Serialize;

use kept::{beginning, kept, suspensions_of};

/// Steps that are read at a time, at most.
pub const STEPS_PAGE_MAX: u32 = 1_000;

/// The maximum number of open steps that a listing shows of each flow.
const AWAITED_MAX: usize = 5;

/// Batches of children whose states are read at a time.
const BATCHES_PER_PAGE: u32 = 1_000;

/// Jobs with one deduplication key that are looked at.
const SAME_KEY_MAX: u32 = 2;

/// One step of a flow: a job, the jobs of one map, or the jobs of one kind that a suspension without names spawned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = StepView))]
pub struct FlowStep {
    /// Its number among the steps of the flow, from 0.
    pub number: u32,
    /// Its name, if the flow keeps names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its key, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The kind of its jobs; none where they are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub kind: Option<Arc<str>>,
    /// Its job; the first one of several.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "42:7"))]
    pub job: JobId,
    /// The number of its jobs, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Its state. Of several jobs: the state of one that has not ended, or of one that did not complete. None where they are
    /// deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "completed"))]
    pub state: Option<JobState>,
    /// Its jobs by state, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub states: Option<JobCounts>,
    /// The attempt of its job; none for several jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The time at which the flow asked for it. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub submitted_at: Option<Timestamp>,
    /// The time at which its job was claimed, while it runs. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub claimed_at: Option<Timestamp>,
    /// The time at which its job ended; none for several jobs. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub finished_at: Option<Timestamp>,
    /// The event for which it waits or waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The moment up to which it waits, while it does. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub until: Option<Timestamp>,
    /// The message of its last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl FlowStep {
    /// Whether it is a sleep.
    pub fn is_sleep(&self) -> bool {
        self.kind.as_deref() == Some(SLEEP_KIND)
    }
}

/// A page of the steps of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowStepsPage {
    /// Whether the job is a flow. Another job that waited for its children has them as steps, too.
    pub is_flow: bool,
    /// The number of all steps.
    pub total: u32,
    /// The flow of which this one is a fork. Its first steps are from there.
    pub origin: Option<String>,
    /// How often the flow has begun anew, with an empty memo.
    pub continued: u64,
    /// Whether it cleans up after its origin, which was cancelled.
    pub cleans_up: bool,
    /// The steps of the page, in the order in which the flow asked for them.
    pub steps: Vec<FlowStep>,
}

/// The flows of one kind on one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowKind {
    /// The kind: the name, or the name, `@` and the version.
    pub kind: Arc<str>,
    /// The name of the flow.
    pub name: String,
    /// Its version, if it has one.
    pub version: Option<String>,
    /// The queue.
    pub queue: Arc<str>,
    /// Whether a registered worker serves the kind on the queue.
    pub has_worker: bool,
    /// The flows by state.
    pub counts: JobCounts,
}

impl FlowKind {
    /// Whether there are flows in one of these states, or any flows where none is named.
    pub fn has(&self, states: &[JobState]) -> bool {
        let mut counts = self.counts;
        states.is_empty() || states.iter().any(|state| *counts.get_mut(*state) > 0)
    }
}

/// A flow in a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedFlow {
    /// Its job.
    pub row: JobRow,
    /// The name of the flow.
    pub name: String,
    /// Its version, if it has one.
    pub version: Option<String>,
    /// The first steps for which it waits.
    pub awaited: Vec<FlowStep>,
}

/// A page of flows.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowsPage {
    /// The flows, in the order of their ids.
    pub flows: Vec<ListedFlow>,
    /// Whether there are more.
    pub has_more: bool,
}

/// Counts the flows of each kind of which one has waited, or only of those with this name or kind.
pub async fn flow_kinds(store: &dyn Store, named: Option<&str>) -> Result<Vec<FlowKind>, StoreError> {
    let kinds = store.flow_kinds().await?;
    let is_meant = |kind: &str| match named {
        Some(named) => kind == named || name_and_version(kind).0 == named,
        None => true,
    };
    let workers = store.workers().await?;
    let counted = store.kind_counts(true).await?.into_iter();
    let counted = counted.filter(|counted| kinds.contains(&counted.kind) && is_meant(&counted.kind));
    let flows = counted.map(|counted| {
        let (name, version) = name_and_version(&counted.kind);
        FlowKind {
            name: name.to_owned(),
            version: version.map(str::to_owned),
            // One that drains takes no more jobs.
            has_worker: workers.iter().any(|known| {
                known.drain_at.is_none() && known.worker.may_serve(&counted.queue, &counted.kind)
            }),
            kind: counted.kind,
            queue: counted.queue,
            counts: counted.counts,
        }
    });
    Ok(flows.collect())
}

/// Lists the flows of these kinds that are in one of these states, or in any where none is named.
pub async fn flows(
    store: &dyn Store,
    kinds: &[FlowKind],
    states: &[JobState],
    page: Page,
) -> Result<FlowsPage, StoreError> {
    // One more than is shown says whether there is a next page.
    let limit = page.limit;
    let page = Page {
        limit: limit + 1,
        ..page
    };
    let mut rows: Vec<JobRow> = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.has(states)) {
        let filter = JobFilter {
            kind: Some(kind.kind.to_string()),
            queue: Some(kind.queue.to_string()),
            states: states.to_vec(),
            no_steps: true,
            ..JobFilter::default()
        };
        rows.extend(store.jobs(&filter, page).await?);
        rows.sort_by_key(|row| row.job);
        rows.truncate(page.limit as usize);
    }
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let mut flows = Vec::with_capacity(rows.len());
    for row in rows {
        let awaited = match row.state {
            JobState::Blocked => awaited(store, row.job).await?,
            _ => Vec::new(),
        };
        let (name, version) = name_and_version(&row.kind);
        flows.push(ListedFlow {
            name: name.to_owned(),
            version: version.map(str::to_owned),
            row,
            awaited,
        });
    }
    Ok(FlowsPage { flows, has_more })
}

/// Reads a page of the steps of a flow: those from the number `from` on, at most `limit`, at most [`STEPS_PAGE_MAX`]. A job that
/// never waited has none.
pub async fn steps(
    store: &dyn Store,
    flow: JobId,
    from: u32,
    limit: u32,
) -> Result<FlowStepsPage, StoreError> {
    let suspensions = suspensions_of(store, flow).await?;
    let beginning = beginning(&suspensions);
    let is_flow = suspensions.iter().any(|suspension| suspension.flow.is_some());
    let mut steps = kept(&beginning);
    let kept_count = steps.len();
    let places = places(suspensions);
    let total = kept_count + places.len();
    let first = total.min(from as usize);
    let end = total.min(first + limit.min(STEPS_PAGE_MAX) as usize);
    let shown: Vec<usize> = (first.max(kept_count)..end.max(kept_count))
        .map(|number| number - kept_count)
        .collect();
    let mut own = described(store, flow, &places, &shown).await?;
    own.iter_mut().for_each(|step| step.number += kept_count as u32);
    steps.truncate(end);
    steps.drain(..first.min(steps.len()));
    steps.extend(own);
    Ok(FlowStepsPage {
        is_flow,
        total: total as u32,
        origin: beginning.as_ref().and_then(|kept| kept.origin.clone()),
        continued: beginning.as_ref().map_or(0, |kept| kept.continued),
        cleans_up: beginning.is_some_and(|kept| kept.cleans_up),
        steps,
    })
}

/// Reads the first steps for which a flow waits.
pub async fn awaited(store: &dyn Store, flow: JobId) -> Result<Vec<FlowStep>, StoreError> {
    let filter = JobFilter {
        parent: Some(flow),
        states: open_states().collect(),
        ..JobFilter::default()
    };
    let open = store.job_ids(&filter, None, AWAITED_MAX as u32).await?;
    let suspensions = suspensions_of(store, flow).await?;
    let kept_count = kept(&beginning(&suspensions)).len() as u32;
    let places = places(suspensions);
    let mut shown: Vec<usize> = Vec::new();
    for jobs in &open {
        for position in jobs.positions.iter() {
            let job = JobId {
                batch: jobs.batch,
                position,
            };
            let place = places
                .partition_point(|place| place.first <= job)
                .saturating_sub(1);
            if shown.last() != Some(&place) && place < places.len() {
                shown.push(place);
            }
            if shown.len() == AWAITED_MAX {
                break;
            }
        }
    }
    shown.truncate(AWAITED_MAX);
    let mut steps = described(store, flow, &places, &shown).await?;
    steps.iter_mut().for_each(|step| step.number += kept_count);
    Ok(steps)
}

/// The flow to which an event for a deduplication key goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyedFlow {
    /// The only open job with the key.
    Open(JobId),
    /// No open job has the key. This is the latest one that had it.
    Ended(JobId),
    /// Open jobs of several kinds or queues have the key.
    Ambiguous,
    /// No job has the key.
    Unknown,
}

/// Finds the flow with a deduplication key. The filter may name its kind and queue.
pub async fn with_key(store: &dyn Store, key: &str, filter: JobFilter) -> Result<KeyedFlow, StoreError> {
    let mut filter = JobFilter {
        key: Some(key.to_owned()),
        states: open_states().collect(),
        ..filter
    };
    let page = Page {
        after: None,
        limit: SAME_KEY_MAX,
    };
    match store.jobs(&filter, page).await?.as_slice() {
        [] => {}
        [one] => return Ok(KeyedFlow::Open(one.job)),
        _ => return Ok(KeyedFlow::Ambiguous),
    }
    filter.states = Vec::new();
    let latest = store.newest_jobs(&filter, 1).await?;
    Ok(latest
        .first()
        .map_or(KeyedFlow::Unknown, |row| KeyedFlow::Ended(row.job)))
}

fn open_states() -> impl Iterator<Item = JobState> {
    JobState::ALL.into_iter().filter(|state| !state.is_final())
}

/// A step, before its jobs are read.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    name: Option<String>,
    key: Option<String>,
    first: JobId,
    /// Its jobs, if there are several.
    several: Option<Vec<BatchPositions>>,
}

/// The steps of these suspensions, in order.
fn places(suspensions: Vec<Suspension>) -> Vec<Place> {
    let mut places = Vec::new();
    for suspension in suspensions {
        let mut left: VecDeque<BatchPositions> = suspension.children.into();
        let count: u32 = left.iter().map(|jobs| jobs.positions.len()).sum();
        let named = named_steps(&suspension.memo).filter(|named| {
            let told = named.iter().map(|named| named.count.unwrap_or(1));
            told.map(u64::from).sum::<u64>() == u64::from(count)
        });
        let Some(named) = named else {
            places.extend(left.into_iter().filter_map(|jobs| place(None, None, vec![jobs])));
            continue;
        };
        for StepEntry { name, key, count, .. } in named {
            let jobs = take(&mut left, count.unwrap_or(1));
            // A step that was cancelled before it began has no job.
            let mut found = place(Some(name), key, jobs);
            if let Some(found) = &mut found
                && count.is_none()
            {
                found.several = None;
            }
            places.extend(found);
        }
    }
    places
}

/// Takes the first jobs.
fn take(left: &mut VecDeque<BatchPositions>, mut count: u32) -> Vec<BatchPositions> {
    let mut taken = Vec::new();
    while count > 0
        && let Some(jobs) = left.front_mut()
    {
        let positions = jobs.positions.take_first(count);
        count -= positions.len();
        taken.push(BatchPositions {
            batch: jobs.batch,
            positions,
        });
        if jobs.positions.is_empty() {
            left.pop_front();
        }
    }
    taken
}

fn place(name: Option<String>, key: Option<String>, jobs: Vec<BatchPositions>) -> Option<Place> {
    let first = jobs.first()?;
    let first = JobId {
        batch: first.batch,
        position: first.positions.first()?,
    };
    let count: u32 = jobs.iter().map(|jobs| jobs.positions.len()).sum();
    Some(Place {
        several: (name.is_some() || count > 1).then_some(jobs),
        name,
        key,
        first,
    })
}

/// Reads the jobs of these steps.
async fn described(
    store: &dyn Store,
    flow: JobId,
    places: &[Place],
    shown: &[usize],
) -> Result<Vec<FlowStep>, StoreError> {
    let rows = rows_of(store, flow, places, shown).await?;
    let states = states_of(store, flow, places, shown).await?;
    let mut steps = Vec::with_capacity(shown.len());
    for &number in shown {
        let place = &places[number];
        let row = rows.get(&place.first);
        let counts = states.get(&number).copied();
        let mut step = FlowStep {
            number: number as u32,
            name: place.name.clone(),
            key: place.key.clone(),
            kind: row.map(|row| row.kind.clone()),
            job: place.first,
            jobs: place
                .several
                .as_ref()
                .map(|jobs| jobs.iter().map(|jobs| jobs.positions.len()).sum()),
            state: counts.map_or(row.map(|row| row.state), state_of),
            states: counts,
            attempt: None,
            submitted_at: row.map(|row| row.submitted_at),
            claimed_at: None,
            finished_at: None,
            event: None,
            until: None,
            error: None,
        };
        if let Some(row) = row.filter(|_| counts.is_none()) {
            step.attempt = Some(row.attempt);
            step.claimed_at = row.claimed_at;
            step.finished_at = row.finished_at;
            step.error.clone_from(&row.error);
            await_signal(store, &mut step, row).await?;
        }
        steps.push(step);
    }
    Ok(steps)
}

/// Adds what a step waits for that is an event or a sleep.
async fn await_signal(store: &dyn Store, step: &mut FlowStep, row: &JobRow) -> Result<(), StoreError> {
    if ![EVENT_KIND, SLEEP_KIND].contains(&&*row.kind) {
        return Ok(());
    }
    let name = step.name.as_deref().and_then(|name| name.strip_prefix('@'));
    step.event = name.filter(|_| &*row.kind == EVENT_KIND).map(str::to_owned);
    if row.state.is_final() && step.name.is_some() {
        return Ok(());
    }
    let Some(details) = store.job(row.job).await? else {
        return Ok(());
    };
    step.until = details.options.expires_at.filter(|_| !row.state.is_final());
    if let Some(Signal::Event(name)) = details.options.signal {
        step.event = Some(name);
    }
    Ok(())
}

/// Reads the first job of each of these steps.
async fn rows_of(
    store: &dyn Store,
    flow: JobId,
    places: &[Place],
    shown: &[usize],
) -> Result<BTreeMap<JobId, JobRow>, StoreError> {
    let filter = JobFilter {
        parent: Some(flow),
        ..JobFilter::default()
    };
    let mut rows = BTreeMap::new();
    let shown: Vec<&Place> = shown.iter().map(|&number| &places[number]).collect();
    // Steps of one job that follow on each other are read together, with the first job of what comes next.
    for run in shown.chunk_by(|place, _| place.several.is_none()) {
        let Some(first) = run.first() else { continue };
        let page = Page {
            after: Some(before(first.first)),
            limit: run.len() as u32,
        };
        let found = store.jobs(&filter, page).await?;
        rows.extend(found.into_iter().map(|row| (row.job, row)));
    }
    Ok(rows)
}

/// A place before a job, behind all jobs before it.
fn before(job: JobId) -> JobId {
    match job.position.checked_sub(1) {
        Some(position) => JobId { position, ..job },
        None => JobId {
            batch: BatchId(job.batch.0 - 1),
            position: BATCH_JOBS_MAX,
        },
    }
}

/// Counts the jobs of those of these steps that have several, by state.
async fn states_of(
    store: &dyn Store,
    flow: JobId,
    places: &[Place],
    shown: &[usize],
) -> Result<BTreeMap<usize, JobCounts>, StoreError> {
    let several = shown
        .iter()
        .copied()
        .filter(|&number| places[number].several.is_some());
    let mut states: BTreeMap<usize, JobCounts> =
        several.map(|number| (number, JobCounts::default())).collect();
    let Some(first) = states.keys().next().map(|&number| places[number].first.batch) else {
        return Ok(states);
    };
    for state in JobState::ALL {
        let filter = JobFilter {
            parent: Some(flow),
            states: vec![state],
            ..JobFilter::default()
        };
        let mut after = Some(BatchId(first.0 - 1));
        loop {
            let found = store.job_ids(&filter, after, BATCHES_PER_PAGE).await?;
            let Some(last) = found.last() else { break };
            after = Some(last.batch);
            for (number, counts) in &mut states {
                *counts.get_mut(state) += common(places[*number].several.iter().flatten(), &found);
            }
        }
    }
    Ok(states)
}

/// The number of jobs that both have. Both are in ascending order of batch.
fn common<'p>(own: impl Iterator<Item = &'p BatchPositions>, found: &[BatchPositions]) -> u64 {
    let common = own.map(|jobs| {
        let place = found.binary_search_by_key(&jobs.batch, |found| found.batch);
        place.map_or(0, |place| {
            jobs.positions.intersection(&found[place].positions).len()
        })
    });
    common.map(u64::from).sum()
}

/// The state of several jobs together: that of one that has not ended, or that of one that did not complete.
fn state_of(mut counts: JobCounts) -> Option<JobState> {
    let order = [
        JobState::Running,
        JobState::Waiting,
        JobState::Scheduled,
        JobState::Paused,
        JobState::Blocked,
        JobState::Dead,
        JobState::Cancelled,
        JobState::Expired,
        JobState::Completed,
    ];
    order.into_iter().find(|state| *counts.get_mut(*state) > 0)
}

#[cfg(test)]
mod tests {
    use gristmill_model::Wake;

    use super::*;

    fn suspension(memo: &str, children: &[(i64, &str)]) -> Suspension {
        Suspension {
            memo: memo.to_owned(),
            flow: Some(Wake::Any),
            children: children
                .iter()
                .map(|(batch, positions)| BatchPositions {
                    batch: BatchId(*batch),
                    positions: positions.parse().unwrap(),
                })
                .collect(),
        }
    }

    fn shown(suspensions: Vec<Suspension>) -> Vec<String> {
        let shown = |place: Place| {
            let several = place.several.map(|jobs| {
                let jobs = jobs
                    .iter()
                    .map(|jobs| format!("{}:{}", jobs.batch, jobs.positions));
                jobs.collect::<Vec<_>>().join(" ")
            });
            let (name, key) = (
                place.name.as_deref().unwrap_or("-"),
                place.key.as_deref().unwrap_or("-"),
            );
            format!(
                "{} {name} {key} {}",
                place.first,
                several.as_deref().unwrap_or("-")
            )
        };
        places(suspensions).into_iter().map(shown).collect()
    }

    #[test]
    fn a_memo_names_the_children_in_their_order() {
        let first = suspension(
            r#"{"steps":[["fetch",7],["@approve",0],["gone",3,null,0],["embed",9,"k",5]],"seed":3}"#,
            &[(4, "3"), (5, "0"), (6, "8-9"), (7, "0-2")],
        );
        let second = suspension(r#"{"seen":[0],"steps":[["fetch",7,"again"]]}"#, &[(9, "12")]);
        assert_eq!(
            shown(vec![first, second]),
            [
                "4:3 fetch - -",
                "5:0 @approve - -",
                "6:8 embed k 6:8-9 7:0-2",
                "9:12 fetch again -"
            ]
        );
    }

    #[test]
    fn children_without_names_are_told_by_batch() {
        for memo in [
            "7",
            "{}",
            r#"{"steps":[["a",1]]}"#,
            r#"{"steps":[[1]]}"#,
            r#"{"steps":"a"}"#,
        ] {
            assert_eq!(
                shown(vec![suspension(memo, &[(4, "3"), (5, "0-1")])]),
                ["4:3 - - -", "5:0 - - 5:0-1"],
                "{memo}"
            );
        }
    }

    #[test]
    fn several_jobs_have_one_state() {
        let counts = |running, dead, completed| JobCounts {
            running,
            dead,
            completed,
            ..JobCounts::default()
        };
        assert_eq!(state_of(counts(1, 2, 3)), Some(JobState::Running));
        assert_eq!(state_of(counts(0, 2, 3)), Some(JobState::Dead));
        assert_eq!(state_of(counts(0, 0, 3)), Some(JobState::Completed));
        assert_eq!(state_of(counts(0, 0, 0)), None);
    }
}
