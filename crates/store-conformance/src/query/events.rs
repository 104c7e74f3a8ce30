//! Events are read in order and from any place, while anyone listens.

use gristmill_model::limits::EVENTS_KEPT_MS;
use gristmill_model::{Backoff, BatchId, Clock, JobProgress, NewBatch, Progress, RetryPolicy};
use gristmill_store::{Change, Event, EventCursor, EventJobs, JobFilter, RecordedEvent, Selection, Store};

use crate::Database;
use crate::fixture::*;

/// The events after a place. The function reads this many rows at a time, until there are `count` events. Another
/// transaction on the same server may delay them for a moment.
async fn read(store: &dyn Store, after: EventCursor, limit: u32, count: usize) -> Vec<RecordedEvent> {
    let (mut all, mut next) = (Vec::new(), after);
    loop {
        let page = store.events(Some(next), limit).await.unwrap();
        if page.next == next && all.len() >= count {
            assert!(page.events.is_empty());
            return all;
        }
        next = page.next;
        all.extend(page.events);
        tokio::task::yield_now().await;
    }
}

/// Events in short form: `dead 4:1-2 on 3`.
fn told(events: &[RecordedEvent]) -> Vec<String> {
    let jobs = |jobs: &EventJobs| format!("{}:{}", jobs.batch, jobs.positions);
    let told = events.iter().map(|event| match &event.event {
        Event::Submitted { jobs: all } => format!("submitted {}", jobs(all)),
        Event::Retried {
            jobs: failed,
            attempt,
            ..
        } => format!("retried {} on {attempt}", jobs(failed)),
        Event::Completed { jobs: ended, attempt }
        | Event::Dead { jobs: ended, attempt }
        | Event::Cancelled { jobs: ended, attempt }
        | Event::Expired { jobs: ended, attempt } => {
            format!("{} {} on {attempt}", event.event.name(), jobs(ended))
        }
        Event::Progress { running, .. } => format!("progress of {}", running.len()),
        Event::Missed => "missed".to_owned(),
    });
    told.collect()
}

fn retried_at_once(count: u32) -> NewBatch {
    let mut new = batch(count);
    new.options.retry = RetryPolicy {
        attempts_max: 2,
        backoff: Backoff::Constant,
        delay_ms: 500,
        delay_ms_max: 500,
    };
    new
}

/// One process acts, and another reads the events in order. A reader that comes back continues at its place.
pub async fn events_come_in_order_from_any_place(database: &dyn Database) {
    let store = database.open().await;
    let other = database.open().await;
    let worker = worker(&*store).await;
    let begin = other.listen().await.unwrap();
    let id = submit(&*store, retried_at_once(4)).await;
    let lease = claim(&*store, worker, 4).await.unwrap();
    let slice = &lease.slices[0];
    let failed = failed_at(slice, &positions("1-3"), &error());
    exchange(
        &*store,
        worker,
        vec![completed_at(slice, &positions("0")), failed],
        None,
    )
    .await;
    database.clock().advance_ms(500);
    let run_at = database.clock().now();
    let again = claim(&*store, worker, 4).await.unwrap();
    let reports = vec![
        completed_at(&again.slices[0], &positions("1")),
        failed_at(&again.slices[0], &positions("2-3"), &error()),
    ];
    exchange(&*store, worker, reports, None).await;
    let all = read(&*other, begin, 1_000, 5).await;
    let mut expected = vec![
        format!("submitted {id}:0-3"),
        format!("completed {id}:0 on 1"),
        format!("retried {id}:1-3 on 1"),
        format!("completed {id}:1 on 2"),
        format!("dead {id}:2-3 on 2"),
    ];
    let mut found = told(&all);
    assert_eq!(
        found[0], expected[0],
        "a submit comes before the events of its jobs"
    );
    // The events of one exchange happen at the same time.
    found[1..3].sort();
    found[3..].sort();
    expected[1..3].sort();
    expected[3..].sort();
    assert_eq!(found, expected);
    assert!(all.is_sorted_by_key(|event| event.cursor));
    let Event::Retried {
        jobs, run_at: then, ..
    } = &all
        .iter()
        .find(|event| event.event.name() == "retried")
        .unwrap()
        .event
    else {
        panic!("{all:?}");
    };
    assert_eq!(
        (jobs.kind.as_deref(), jobs.queue.as_deref()),
        (Some(KIND), Some("default"))
    );
    assert_eq!(*then, run_at);
    for event in &all {
        let behind: Vec<&RecordedEvent> = all.iter().filter(|other| other.cursor > event.cursor).collect();
        let rest = read(&*store, event.cursor, 1_000, behind.len()).await;
        assert_eq!(rest.iter().collect::<Vec<_>>(), behind);
    }
    // The result is the same row by row, except for failures that a page splits.
    let kinds = |events: &[RecordedEvent]| {
        let mut names: Vec<_> = events.iter().map(|event| event.event.name()).collect();
        names.dedup();
        names
    };
    assert_eq!(kinds(&read(&*store, begin, 1, 5).await), kinds(&all));
}

/// Every kind of end has an event: cancellation, expiry, rejection, the failure of a prerequisite, and death by rescues.
pub async fn every_end_is_an_event(database: &dyn Database) {
    let store = database.open().await;
    let begin = store.listen().await.unwrap();
    let waiting = submit(&*store, batch(3)).await;
    let cancelled = store
        .change(
            Selection::Jobs(vec![job(waiting, 0), job(waiting, 2)]),
            Change::Cancel,
        )
        .await;
    assert_eq!(cancelled.unwrap().changed, 2);
    let mut late = batch(2);
    late.options.expires_at = Some(database.clock().now().plus_ms(10));
    let late = submit(&*store, late).await;
    let first = submit(&*store, batch_of("first", 1)).await;
    let mut second = batch_of("second", 1);
    second.after = vec![gristmill_model::After::batch(first)];
    let second = submit(&*store, second).await;
    let gone = JobFilter {
        batch: Some(first),
        ..JobFilter::default()
    };
    change(&*store, gone, Change::Cancel).await;
    database.clock().advance_ms(10);
    assert_eq!(store.expire().await.unwrap(), 2);
    let mut rejected = batch(1);
    rejected.rejected = vec![gristmill_model::Rejected {
        position: 0,
        error: error(),
    }];
    let rejected = submit(&*store, rejected).await;
    let mut found = told(&read(&*store, begin, 1_000, 10).await);
    let mut expected: Vec<String> = [waiting, late, first, second, rejected]
        .iter()
        .map(|batch: &BatchId| {
            let last = match () {
                () if *batch == waiting => "0-2",
                () if *batch == late => "0-1",
                () => "0",
            };
            format!("submitted {batch}:{last}")
        })
        .collect();
    expected.extend([
        format!("cancelled {waiting}:0,2 on 0"),
        format!("expired {late}:0-1 on 0"),
        format!("cancelled {first}:0 on 0"),
        format!("cancelled {second}:0 on 0"),
        format!("dead {rejected}:0 on 0"),
    ]);
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

/// Without a listener no event is kept. A listener that returns too late learns of it.
pub async fn events_are_kept_for_those_who_listen(database: &dyn Database) {
    let store = database.open().await;
    submit(&*store, batch(1)).await;
    assert_eq!(store.events(None, 10).await.unwrap().events, []);
    let begin = store.listen().await.unwrap();
    assert_eq!(store.events(Some(begin), 10).await.unwrap().events, []);
    let first = submit(&*store, batch(1)).await;
    // A listener may be away for an hour.
    database.clock().advance_ms(EVENTS_KEPT_MS - 1);
    store.expire().await.unwrap();
    let second = submit(&*store, batch(1)).await;
    let both = [format!("submitted {first}:0"), format!("submitted {second}:0")];
    assert_eq!(told(&read(&*store, begin, 10, 2).await), both);
    assert_eq!(told(&store.events(None, 10).await.unwrap().events), both);

    // Another listener comes within this time. Events older than an hour are forgotten, and the others are kept.
    store.listen().await.unwrap();
    database.clock().advance_ms(2);
    store.listen().await.unwrap();
    let left = ["missed".to_owned(), both[1].clone()];
    assert_eq!(told(&read(&*store, begin, 10, 2).await), left);
    assert_eq!(told(&store.events(None, 10).await.unwrap().events), left[1..]);

    database.clock().advance_ms(EVENTS_KEPT_MS + 1);
    store.expire().await.unwrap();
    submit(&*store, batch(1)).await;
    assert_eq!(store.events(None, 10).await.unwrap().events, []);
    assert_eq!(store.events(Some(begin), 10).await.unwrap().events, []);
    let anew = store.listen().await.unwrap();
    assert!(anew > begin);
    let last = submit(&*store, batch(1)).await;
    let expected = ["missed".to_owned(), format!("submitted {last}:0")];
    assert_eq!(told(&read(&*store, begin, 10, 2).await), expected);
}

/// The progress of workers' jobs is an event. One event holds all jobs of one message.
pub async fn progress_is_an_event(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(2)).await;
    let worker = worker(&*store).await;
    claim(&*store, worker, 2).await.unwrap();
    let begin = store.listen().await.unwrap();
    let said = |done: u64| -> Vec<JobProgress> {
        let of = |position| JobProgress {
            job: job(id, position),
            attempt: 1,
            progress: Progress::of(done, 10),
            rate_per_s: None,
        };
        vec![of(0), of(1)]
    };
    store.put_progress(worker, said(1)).await.unwrap();
    store.put_progress(worker, said(2)).await.unwrap();
    let events = read(&*store, begin, 10, 2).await;
    let words: Vec<_> = events
        .iter()
        .map(|event| match &event.event {
            Event::Progress { worker, running } => (*worker, running.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(words, [(worker, said(1)), (worker, said(2))]);
}
