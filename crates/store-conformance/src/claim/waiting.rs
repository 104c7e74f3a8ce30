//! Workers that wait with a claim: submits claim for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_model::{After, Control, Effect, JobId, LeasedSlice, NewBatch, Scope, TraceParent, WorkerId};
use gristmill_store::{Exchanged, JobFilter, Store, Want, WorkSeen};

use crate::Database;
use crate::fixture::*;

/// Starts to wait, so that the next submit claims for the worker. Earlier news is already known.
fn waiting<'s>(
    store: &'s dyn Store,
    worker: WorkerId,
    want: Want,
    seen: &'s WorkSeen,
) -> BoxFuture<'s, Option<Exchanged>> {
    loop {
        let mut call = store.wait_for_claim(worker, want.clone(), seen);
        match call.as_mut().now_or_never() {
            None => return call,
            Some(handed) => assert_eq!(handed, None, "nothing was submitted"),
        }
    }
}

/// A claim of a worker for one kind.
fn want_of(kind: &str, jobs_max: u32) -> Want {
    Want {
        kinds: vec![Arc::from(kind)],
        ..want(jobs_max)
    }
}

/// A submit claims its jobs for a waiting worker, like the worker would have done, before the submit is answered.
pub async fn a_submit_claims_for_a_waiting_worker(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let seen = WorkSeen::default();
    // The store learns its lanes, and that they are empty.
    let traceparent = Some(TraceParent {
        trace_id: 10,
        span_id: 11,
    });
    let mut first = batch(1);
    first.options.traceparent = traceparent;
    submit(&*store, first).await;
    let first = claim(&*store, worker, 9).await;
    assert_eq!(only(first).traceparent, traceparent);
    for count in [1, 3] {
        let call = waiting(&*store, worker, want(4), &seen);
        let mut new = batch(count);
        new.options.priority = 2;
        new.options.timeout_ms = Some(70);
        new.options.traceparent = traceparent;
        let id = submit(&*store, new.clone()).await;
        let handed = call
            .now_or_never()
            .expect("the lease is ready with the submit's answer");
        let slice = only(handed.expect("the submit claimed the job").lease);
        assert_eq!((slice.batch, slice.len()), (id, count));
        assert_eq!(slice.payloads, new.payloads);
        assert_eq!((slice.attempt, slice.rescues), (1, 0));
        assert_eq!((slice.priority, slice.timeout_ms), (2, Some(70)));
        assert_eq!(slice.traceparent, traceparent);
        assert_eq!(claim(&*store, worker, 9).await, None, "no more jobs are left");
        let counts = store.counts(&JobFilter::default()).await.unwrap();
        assert_eq!(counts.waiting, 0);
        let receipts = exchange(&*store, worker, vec![completed(&slice)], None)
            .await
            .receipts;
        assert_eq!(receipts[0].accepted, slice.positions);
    }
    // A single job is handed over as well.
    let call = waiting(&*store, worker, want(4), &seen);
    let single = store.submit_one(batch(1)).await.unwrap();
    let slice = only(
        call.now_or_never()
            .flatten()
            .expect("the submit claimed the job")
            .lease,
    );
    assert_eq!(
        (slice.batch, slice.positions.first()),
        (single.batch, Some(single.position))
    );
    // Jobs of other workers do not matter. Its own jobs come back when it leaves.
    store.leave(worker, Default::default()).await.unwrap();
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.waiting, counts.running, counts.completed), (2, 0, 4));
}

/// Several workers wait and several callers submit. Each job goes to one worker. A worker that gets none can still claim.
pub async fn no_job_is_handed_over_twice(database: &dyn Database) {
    const JOBS: usize = 60;
    let store = database.open().await;
    let ended = AtomicUsize::new(0);
    let run = async |worker: WorkerId| {
        let (mut jobs, seen) = (Vec::new(), WorkSeen::default());
        let mut reports = Vec::new();
        loop {
            let answer = exchange(&*store, worker, std::mem::take(&mut reports), Some(want(2))).await;
            let is_over = store.counts(&JobFilter::default()).await.unwrap().completed >= JOBS as u64;
            let lease = match answer.lease {
                None if !is_over => {
                    let handed = store.wait_for_claim(worker, want(2), &seen).await;
                    handed.and_then(|handed| handed.lease)
                }
                lease => lease,
            };
            for slice in lease.iter().flat_map(|lease| &lease.slices) {
                jobs.extend(slice.positions.iter().map(|position| job(slice.batch, position)));
                reports.push(completed(slice));
            }
            if is_over {
                ended.fetch_add(1, Ordering::Relaxed);
                return jobs;
            }
        }
    };
    let (left, right) = (worker(&*store).await, worker(&*store).await);
    let submits = async {
        for number in 0..JOBS / 2 {
            let both = futures::join!(store.submit_one(batch(1)), store.submit(vec![batch(1)], None));
            both.0.unwrap();
            both.1.unwrap();
            if number % 4 == 0 {
                tokio::task::yield_now().await;
            }
        }
        // Further submits wake the waiting workers until all jobs are done.
        while ended.load(Ordering::Relaxed) < 2 {
            submit(&*store, batch_of("end", 1)).await;
            tokio::task::yield_now().await;
        }
    };
    let (left, right, ()) = futures::join!(run(left), run(right), submits);
    let jobs: Vec<JobId> = left.into_iter().chain(right).collect();
    let once: BTreeSet<_> = jobs.iter().copied().collect();
    assert_eq!(once.len(), jobs.len(), "each once");
    assert!(jobs.len() >= JOBS);
}

/// Paused jobs are not handed over. Limited jobs are handed over only up to the limit.
pub async fn controls_hold_for_waiting_workers(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let seen = WorkSeen::default();
    let scope = |kind: &str| Scope {
        kind: Some(kind.to_owned()),
        ..Scope::default()
    };
    let pause = Effect::Pause {
        reason: "check".to_owned(),
        until: None,
    };
    let controls = vec![
        Control {
            scope: scope("paused"),
            effect: pause,
        },
        Control {
            scope: scope("limited"),
            effect: Effect::Concurrency { jobs_max: 2 },
        },
    ];
    // Another handle sets the controls. The submitting handle has not learned of them.
    submit(&*store, batch_of("limited", 1)).await;
    assert!(claim(&*store, worker, 9).await.is_some());
    database.open().await.put_controls(controls).await.unwrap();
    let mut held = 1;
    for (kind, count) in [("paused", 1), ("limited", 3), ("paused", 2), ("limited", 1)] {
        let call = waiting(&*store, worker, want(9), &seen);
        submit(&*store, batch_of(kind, count)).await;
        let handed = call.now_or_never().flatten().and_then(|handed| handed.lease);
        let claimed = claim(&*store, worker, 9).await;
        for slice in handed.iter().chain(&claimed).flat_map(|lease| &lease.slices) {
            assert_eq!(&*slice.kind, "limited");
            held += slice.len();
        }
        assert!(held <= 2, "{kind}");
    }
    assert_eq!(held, 2);
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.running, counts.total()), (2, 8));
}

/// A submit hands over the jobs that a claim would have taken: the most urgent due jobs of the wanted kinds.
pub async fn the_order_holds_for_waiting_workers(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let seen = WorkSeen::default();
    let urgent = |kind: &str, priority: i16| {
        let mut new = batch_of(kind, 1);
        new.options.priority = priority;
        new
    };
    submit(&*store, urgent("other", 0)).await;
    let call = waiting(&*store, worker, want_of("wanted", 1), &seen);
    // Another handle submits a more urgent job. This handle has not learned of it.
    let other = database.open().await;
    let first = submit(&*other, urgent("wanted", 5)).await;
    let second = submit(&*store, urgent("wanted", 1)).await;
    let handed = call.now_or_never().flatten().and_then(|handed| handed.lease);
    let lease = match handed {
        Some(lease) => Some(lease),
        None => {
            exchange(&*store, worker, Vec::new(), Some(want_of("wanted", 1)))
                .await
                .lease
        }
    };
    assert_eq!(only(lease).batch, first);
    // A submit does not hand over jobs that are less urgent than wanted, of another kind, or not due.
    let least = Want {
        priority_min: Some(3),
        ..want_of("wanted", 9)
    };
    let mut later = urgent("wanted", 7);
    later.options.run_at = Some(store.now().plus_ms(10));
    for new in [urgent("wanted", 2), urgent("other", 9), later] {
        let call = waiting(&*store, worker, least.clone(), &seen);
        submit(&*store, new).await;
        let handed = call.now_or_never().flatten();
        assert!(handed.is_none(), "{handed:?}");
    }
    let call = waiting(&*store, worker, least, &seen);
    let third = submit(&*store, urgent("wanted", 3)).await;
    assert_eq!(only(call.now_or_never().flatten().unwrap().lease).batch, third);
    let rest = claim(&*store, worker, 9).await;
    let batches: Vec<_> = rest
        .iter()
        .flat_map(|lease| &lease.slices)
        .map(|slice| slice.batch)
        .collect();
    assert_eq!(batches.len(), 4);
    assert!(batches.contains(&second));
}

/// A caller that goes away leaves no jobs under its lease, whenever it goes.
pub async fn a_worker_that_goes_away_gives_back(database: &dyn Database) {
    let store = database.open().await;
    let (left, right) = (worker(&*store).await, worker(&*store).await);
    let seen = WorkSeen::default();
    let heard = WorkSeen::default();
    submit(&*store, batch(1)).await;
    assert!(claim(&*store, left, 1).await.is_some());
    // The caller goes before the submit. The job stays in the queue.
    drop(waiting(&*store, left, want(4), &seen));
    let id = submit(&*store, batch(2)).await;
    assert_eq!(held(&claim(&*store, right, 9).await), [format!("{id}:0-1")]);
    // The caller goes with the lease in its hands. Another worker learns of the job.
    let call = waiting(&*store, left, want(4), &seen);
    let id = submit(&*store, batch(2)).await;
    drop(call);
    let found = loop {
        match claim(&*store, right, 9).await {
            Some(lease) => break lease,
            None => store.wait_for_work(&heard).await,
        }
    };
    let slice = only(Some(found));
    assert_eq!((slice.batch, slice.positions), (id, positions("0-1")));
    assert_eq!((slice.attempt, slice.rescues), (1, 0), "the job is not charged");
}

/// An unregistered worker gets no jobs.
pub async fn unregistered_workers_get_no_jobs(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let seen = WorkSeen::default();
    submit(&*store, batch(1)).await;
    assert!(claim(&*store, worker, 9).await.is_some());
    let call = waiting(&*store, WorkerId(77), want(4), &seen);
    let id = submit(&*store, batch(1)).await;
    assert_eq!(
        call.now_or_never(),
        Some(None),
        "the worker looks by itself, and learns the reason"
    );
    assert_eq!(held(&claim(&*store, worker, 9).await), [format!("{id}:0")]);
}

/// Workers report jobs that others wait for and jobs that nobody waits for, in turn and together. Each exchange claims the job that
/// comes next, whatever the store has learnt from the last one.
pub async fn a_claim_finds_what_its_reports_release(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let urgent = |after: Vec<After>| {
        let mut new = NewBatch { after, ..batch(1) };
        new.options.priority = 5;
        new
    };
    let mut chain = vec![urgent(Vec::new())];
    chain.extend((0..6).map(|index| urgent(vec![After::earlier(index)])));
    let chain = store.submit(chain, None).await.unwrap();
    let plain = submit(&*store, batch(20)).await;
    let mut held = claim(&*store, worker, 2).await.unwrap().slices;
    assert_eq!((held[0].batch, held[1].batch), (chain[0], plain));
    let mut claimed_next = 1;
    // Whether the chain's job is reported, and the other batch's job.
    for (of_chain, of_others) in [
        (true, false),
        (false, true),
        (true, true),
        (false, true),
        (false, true),
        (true, false),
        (true, false),
        (true, true),
    ] {
        let (reported, kept): (Vec<_>, Vec<_>) = held
            .into_iter()
            .partition(|slice| if slice.batch == plain { of_others } else { of_chain });
        let wanted = u32::from(of_chain) + u32::from(of_others);
        assert_eq!(reported.len(), wanted as usize);
        let reports = reported.iter().map(completed).collect();
        let exchanged = exchange(&*store, worker, reports, Some(want(wanted))).await;
        let claimed = exchanged.lease.expect("jobs are left").slices;
        if of_chain {
            assert_eq!(
                claimed[0].batch, chain[claimed_next],
                "it comes before the others"
            );
            claimed_next += 1;
        }
        assert_eq!(claimed.iter().map(LeasedSlice::len).sum::<u32>(), wanted);
        held = kept.into_iter().chain(claimed).collect();
    }
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.completed, counts.running), (10, 2));
}

/// Checks that jobs that an exchange takes itself wake nobody, and that those that it leaves wake others. `wakes` is
/// [`wakes_others`] on a new store.
pub async fn an_exchange_wakes_others_for_jobs_that_it_leaves(
    wakes: impl AsyncFn(&'static str, u32) -> bool,
) {
    assert!(!wakes(KIND, 100).await);
    assert!(wakes(KIND, 1).await);
    assert!(wakes("another", 100).await);
}

/// Completes the first job of a kind, for which two jobs of kind `dependent` wait, by an exchange that asks for `jobs_max` more
/// of the first kind. Reports whether that wakes waiting workers of the store's process. The store must not have a listener,
/// which wakes them from time to time.
///
/// It does so twice, because a store may learn from the first exchange that jobs wait for others. Both must have the same result.
pub async fn wakes_others(store: &dyn Store, dependent: &str, jobs_max: u32) -> bool {
    let worker = worker(store).await;
    let first = wakes_others_once(store, worker, dependent, jobs_max).await;
    claim(store, worker, 100).await;
    let second = wakes_others_once(store, worker, dependent, jobs_max).await;
    assert_eq!(first, second, "the first exchange and the second one");
    second
}

async fn wakes_others_once(store: &dyn Store, worker: WorkerId, dependent: &str, jobs_max: u32) -> bool {
    let after = NewBatch {
        after: vec![After::earlier(0)],
        ..batch_of(dependent, 2)
    };
    store.submit(vec![batch(1), after], None).await.unwrap();
    let seen = WorkSeen::default();
    store.wait_for_work(&seen).await;
    let slice = only(claim(store, worker, 1).await);
    let want = Want {
        kinds: vec![KIND.into()],
        ..want(jobs_max)
    };
    let exchanged = exchange(store, worker, vec![completed(&slice)], Some(want)).await;
    let claimed = exchanged.lease.map_or(0, |lease| lease.jobs());
    assert_eq!(claimed, if dependent == KIND { jobs_max.min(2) } else { 0 });
    store.wait_for_work(&seen).now_or_never().is_some()
}
