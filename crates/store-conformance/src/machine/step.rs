//! The operations of a random sequence.

use gristmill_model::{Debounce, DebouncedPayloads, OnChildFailure, OnDuplicate, OnFailure, Wake};
use proptest::prelude::*;

/// One operation. A number that chooses an item is taken modulo the number of existing items.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Submit(Submission),
    Register,
    /// Submits while a worker waits. The worker then goes away.
    SubmitAwaited {
        worker: usize,
        kind: usize,
        count: u32,
        priority: i16,
        jobs_max: u32,
        wanted: Option<usize>,
    },
    /// Reports a slice that was claimed earlier and may be lost or reported already. Then claims.
    Exchange {
        worker: usize,
        slice: usize,
        /// The fate of each position.
        fates: Vec<Fate>,
        jobs_max: u32,
        kind: Option<usize>,
    },
    Heartbeat(usize),
    Leave(usize),
    Die(usize),
    /// Submits jobs with keys. Each key is `None` or one of a few.
    SubmitKeyed {
        kind: usize,
        keys: Vec<Option<u8>>,
        on_duplicate: OnDuplicate,
        period_ms: Option<u64>,
        after: Vec<(usize, Option<u32>)>,
    },
    /// Submits debounced jobs of a kind with a priority. Each has one of a few keys.
    SubmitDebounced(usize, Vec<u8>, Debounce, i16),
    /// Sends events with one of the names to jobs, usually to flows.
    Send(Vec<usize>, usize),
    /// Finds the jobs with a key, and with its tag.
    Find(u8),
    Pause(usize),
    Resume(usize),
    /// Sets the largest number of running jobs of a kind.
    Limit(usize, Option<u32>),
    /// Changes jobs by hand.
    Manual(Manual),
    Expire,
    Advance(i64),
    Prune,
    /// Begins the cleanup after cancelled flows.
    BeginCleanups(usize),
    /// Compacts batches with more than this many reports.
    Compact(u32),
    Reopen,
    /// Goes on with the other handle, which knows what it knew.
    Swap,
}

/// The fate of a running job.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    Completed,
    Failed,
    FailedForGood,
    Released,
    NotYet,
    /// The job waits for this many children. The policy says whether a failed child kills it.
    Suspended(u32, OnChildFailure),
    /// The job completed and spawned this many siblings.
    Spread(u32),
    /// The job takes a step as a flow, with this many children, and perhaps one that waits for a signal.
    Step(u32, Wake, Option<Await>),
}

/// What a child of a flow waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Await {
    /// An event with one of the names, perhaps for a limited time in milliseconds.
    Event(usize, Option<u64>),
    /// The end of a time in milliseconds.
    Sleep(u64),
}

/// A batch without keys.
#[derive(Debug, Clone)]
pub(super) struct Submission {
    pub kind: usize,
    pub count: u32,
    pub priority: i16,
    pub delay_ms: Option<i64>,
    pub expires_ms: Option<i64>,
    /// The time limit for all attempts together.
    pub within_ms: Option<u64>,
    /// The time for which values of its kind and payloads are reused.
    pub cached_ms: Option<u64>,
    pub attempts_max: u32,
    /// The prerequisites: up to two batches, or jobs of them, and the effect of their failure.
    pub after: Vec<(usize, Option<u32>)>,
    pub on_failure: OnFailure,
    /// Whether they are flows that begin with memos. Such a batch has no prerequisites here.
    pub has_memos: bool,
}

impl Submission {
    /// Jobs that can be claimed at once.
    pub fn of(count: u32) -> Self {
        Submission {
            kind: 0,
            count,
            priority: 0,
            delay_ms: None,
            expires_ms: None,
            within_ms: None,
            cached_ms: None,
            attempts_max: 2,
            after: Vec::new(),
            on_failure: OnFailure::Cancel,
            has_memos: false,
        }
    }
}

/// A change by hand of some jobs, of all jobs of a kind, or of all jobs.
#[derive(Debug, Clone)]
pub(super) enum Manual {
    Cancel(Vec<(usize, u32)>),
    CancelKind(usize),
    CancelKeyed(u8),
    Retry(Vec<(usize, u32)>),
    RetryAll,
    Discard(Vec<(usize, u32)>),
    Prioritise(Vec<(usize, u32)>, i16),
    /// Pauses jobs for one of the reasons, without end or for a time.
    Pause(Vec<(usize, u32)>, usize, Option<i64>),
    /// Ends the pauses with one of the reasons, or all pauses.
    Resume(Vec<(usize, u32)>, Option<usize>),
}

/// Any operation.
pub(super) fn step() -> impl Strategy<Value = Step> {
    let jobs = || proptest::collection::vec((any::<usize>(), 0u32..9), 1..6);
    prop_oneof![
        4 => submission().prop_map(Step::Submit),
        3 => (0usize..2, keys(), on_duplicate(), proptest::option::weighted(0.3, 1u64..40), after()).prop_map(
            |(kind, keys, on_duplicate, period_ms, after)| Step::SubmitKeyed { kind, keys, on_duplicate, period_ms, after }
        ),
        4 => (0usize..2, proptest::collection::vec(0u8..5, 1..6), debounce(), -1i16..2).prop_map(
            |(kind, keys, debounce, priority)| Step::SubmitDebounced(kind, keys, debounce, priority)
        ),
        6 => (proptest::collection::vec(any::<usize>(), 1..5), 0usize..2).prop_map(|(jobs, name)| Step::Send(jobs, name)),
        2 => (0u8..5).prop_map(Step::Find),
        1 => (0usize..2).prop_map(Step::Pause),
        2 => (0usize..2).prop_map(Step::Resume),
        2 => (0usize..2, proptest::option::of(1u32..6)).prop_map(|(kind, jobs_max)| Step::Limit(kind, jobs_max)),
        1 => Just(Step::Register),
        24 => (any::<usize>(), any::<usize>(), fates(), 0u32..12, any_kind())
            .prop_map(|(worker, slice, fates, jobs_max, kind)| Step::Exchange { worker, slice, fates, jobs_max, kind }),
        4 => (any::<usize>(), 0usize..2, 1u32..9, -1i16..2, 0u32..12, any_kind()).prop_map(
            |(worker, kind, count, priority, jobs_max, wanted)| {
                Step::SubmitAwaited { worker, kind, count, priority, jobs_max, wanted }
            }
        ),
        1 => any::<usize>().prop_map(Step::Heartbeat),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::Die),
        2 => jobs().prop_map(|chosen| Step::Manual(Manual::Cancel(chosen))),
        1 => (0usize..2).prop_map(|chosen| Step::Manual(Manual::CancelKind(chosen))),
        1 => (0u8..5).prop_map(|key| Step::Manual(Manual::CancelKeyed(key))),
        2 => jobs().prop_map(|chosen| Step::Manual(Manual::Retry(chosen))),
        1 => Just(Step::Manual(Manual::RetryAll)),
        2 => jobs().prop_map(|chosen| Step::Manual(Manual::Discard(chosen))),
        2 => (jobs(), -2i16..3).prop_map(|(jobs, priority)| Step::Manual(Manual::Prioritise(jobs, priority))),
        2 => (jobs(), 0usize..2, option(0i64..40)).prop_map(|(jobs, reason, for_ms)| Step::Manual(Manual::Pause(jobs, reason, for_ms))),
        2 => (jobs(), proptest::option::weighted(0.7, 0usize..2)).prop_map(|(jobs, reason)| Step::Manual(Manual::Resume(jobs, reason))),
        1 => Just(Step::Expire),
        3 => (0i64..40).prop_map(Step::Advance),
        2 => Just(Step::Prune),
        2 => any::<usize>().prop_map(Step::BeginCleanups),
        2 => (1u32..4).prop_map(Step::Compact),
        1 => Just(Step::Reopen),
        2 => Just(Step::Swap),
    ]
}

/// An operation on flows, which take several steps within one sequence.
pub(super) fn step_of_flows() -> impl Strategy<Value = Step> {
    let jobs = || proptest::collection::vec((any::<usize>(), 0u32..9), 1..4);
    let step = || {
        (0u32..3, wake(), awaits()).prop_map(|(children, wake, awaits)| Fate::Step(children, wake, awaits))
    };
    let fates = prop_oneof![
        4 => Just(vec![Fate::Completed]),
        6 => step().prop_map(|step| vec![step]),
        4 => proptest::collection::vec(prop_oneof![1 => Just(Fate::Completed), 1 => step(), 1 => Just(Fate::NotYet)], 3),
        2 => proptest::collection::vec(fate(), 8),
    ];
    prop_oneof![
        2 => (1u32..5, any::<bool>())
            .prop_map(|(count, has_memos)| Step::Submit(Submission { has_memos, ..Submission::of(count) })),
        30 => (any::<usize>(), any::<usize>(), fates, 4u32..12)
            .prop_map(|(worker, slice, fates, jobs_max)| Step::Exchange { worker, slice, fates, jobs_max, kind: None }),
        4 => (proptest::collection::vec(any::<usize>(), 1..5), 0usize..2).prop_map(|(jobs, name)| Step::Send(jobs, name)),
        1 => any::<usize>().prop_map(Step::Die),
        1 => Just(Step::Register),
        1 => jobs().prop_map(|chosen| Step::Manual(Manual::Cancel(chosen))),
        1 => jobs().prop_map(|chosen| Step::Manual(Manual::Retry(chosen))),
        1 => Just(Step::Manual(Manual::RetryAll)),
        1 => jobs().prop_map(|chosen| Step::Manual(Manual::Pause(chosen, 0, None))),
        1 => jobs().prop_map(|chosen| Step::Manual(Manual::Resume(chosen, None))),
        2 => Just(Step::Expire),
        2 => (0i64..30).prop_map(Step::Advance),
        1 => Just(Step::Prune),
        3 => any::<usize>().prop_map(Step::BeginCleanups),
        1 => (0usize..2).prop_map(|chosen| Step::Manual(Manual::CancelKind(chosen))),
        1 => Just(Step::Reopen),
        1 => Just(Step::Swap),
    ]
}

/// Half of the slices complete as a whole, so that families reach their end.
fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let steps = (1u32..3, wake(), awaits());
    prop_oneof![
        3 => Just(vec![Fate::Completed]),
        // Flows that take a step together share batches of children.
        1 => steps.prop_map(|(children, wake, awaits)| vec![Fate::Step(children, wake, awaits)]),
        3 => proptest::collection::vec(fate(), 8),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    let on_failure = prop_oneof![Just(OnChildFailure::Fail), Just(OnChildFailure::Collect)];
    prop_oneof![
        4 => Just(Fate::Completed),
        2 => Just(Fate::Failed),
        2 => Just(Fate::FailedForGood),
        2 => Just(Fate::Released),
        2 => Just(Fate::NotYet),
        4 => (0u32..4, on_failure).prop_map(|(children, on_failure)| Fate::Suspended(children, on_failure)),
        3 => (1u32..3).prop_map(Fate::Spread),
        8 => (0u32..4, wake(), awaits()).prop_map(|(children, wake, awaits)| Fate::Step(children, wake, awaits)),
    ]
}

fn wake() -> impl Strategy<Value = Wake> {
    prop_oneof![4 => Just(Wake::All), 4 => Just(Wake::Any), 1 => Just(Wake::Anew)]
}

fn awaits() -> impl Strategy<Value = Option<Await>> {
    let event = (0usize..2, proptest::option::weighted(0.3, 1u64..40));
    prop_oneof![
        2 => Just(None),
        2 => event.prop_map(|(name, expires_in_ms)| Some(Await::Event(name, expires_in_ms))),
        1 => (1u64..30).prop_map(|for_ms| Some(Await::Sleep(for_ms))),
    ]
}

fn submission() -> impl Strategy<Value = Submission> {
    let size = (0usize..2, 1u32..9, -1i16..2);
    let times = (option(0i64..50), option(1i64..80), within(), within());
    (size, times, 1u32..4, after(), on_failure(), 0u32..8).prop_map(
        |(size, times, attempts_max, after, on_failure, memos)| {
            let (kind, count, priority) = size;
            let (delay_ms, expires_ms, within_ms, cached_ms) = times;
            Submission {
                kind,
                count,
                priority,
                delay_ms,
                expires_ms,
                within_ms,
                cached_ms,
                attempts_max,
                has_memos: memos == 0 && after.is_empty(),
                after,
                on_failure,
            }
        },
    )
}

/// Usually nothing: most batches have no prerequisites.
fn after() -> impl Strategy<Value = Vec<(usize, Option<u32>)>> {
    let one = (any::<usize>(), proptest::option::of(0u32..9));
    prop_oneof![
        1 => Just(Vec::new()),
        1 => proptest::collection::vec(one, 1..3),
    ]
}

fn on_failure() -> impl Strategy<Value = OnFailure> {
    prop_oneof![
        Just(OnFailure::Cancel),
        Just(OnFailure::Fail),
        Just(OnFailure::Ignore),
    ]
}

/// Few different keys, so that they collide.
fn keys() -> impl Strategy<Value = Vec<Option<u8>>> {
    proptest::collection::vec(proptest::option::weighted(0.8, 0u8..5), 1..6)
}

fn debounce() -> impl Strategy<Value = Debounce> {
    let payloads = prop_oneof![
        1 => Just(DebouncedPayloads::Last),
        3 => Just(DebouncedPayloads::Merged),
    ];
    (1u64..20, proptest::option::weighted(0.5, 20u64..40), payloads).prop_map(
        |(delay_ms, wait_ms_max, payloads)| Debounce {
            delay_ms,
            wait_ms_max,
            payloads,
        },
    )
}

fn on_duplicate() -> impl Strategy<Value = OnDuplicate> {
    prop_oneof![
        2 => Just(OnDuplicate::Skip),
        2 => Just(OnDuplicate::Replace),
        1 => Just(OnDuplicate::Reject),
    ]
}

fn any_kind() -> impl Strategy<Value = Option<usize>> {
    proptest::option::weighted(0.3, 0usize..2)
}

fn within() -> impl Strategy<Value = Option<u64>> {
    proptest::option::weighted(0.3, 1u64..60)
}

fn option(range: std::ops::Range<i64>) -> impl Strategy<Value = Option<i64>> {
    proptest::option::weighted(0.3, range)
}
