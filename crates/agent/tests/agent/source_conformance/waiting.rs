//! Tests of waiting for work, and of the announcements to a waiting source.

use std::sync::Arc;
use std::time::Duration;

use gristmill_batching::BatchStats;
use gristmill_model::{BatchId, Completed, Control, Effect, JobState, PackedBuilder, Report, Scope};
use gristmill_worker::{Source, WorkerSettings};

use super::{Fixture, doubled};
use crate::support::worker::doubling;
use crate::support::{PATIENCE, batch, rows, states, submit, want};

pub(super) async fn waiting_ends_when_there_is_work(fixture: Fixture) {
    let source = fixture.registered().await;
    assert!(source.exchange(vec![], want(10)).await.unwrap().lease.is_none());
    let waiting = {
        let source = source.clone();
        tokio::spawn(async move { source.wait_for_work().await })
    };
    submit(&fixture.engine, batch("double", 3)).await;
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    // A wake-up may come early. The work is there soon after one.
    let claim = async {
        loop {
            if let Some(lease) = source.exchange(vec![], want(10)).await.unwrap().lease {
                return lease;
            }
            source.wait_for_work().await;
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, claim).await.unwrap().jobs(), 3);
}

pub(super) async fn waiting_may_be_left_and_taken_up_again(fixture: Fixture) {
    let source = fixture.registered().await;
    source.exchange(vec![], want(10)).await.unwrap();
    for _ in 0..5 {
        let _ = tokio::time::timeout(Duration::from_millis(1), source.wait_for_work()).await;
    }
    let id = submit(&fixture.engine, batch("double", 3)).await;
    let mut jobs = 0;
    while jobs < 3 {
        tokio::time::timeout(PATIENCE, source.wait_for_work())
            .await
            .unwrap();
        if let Some(lease) = source.exchange(vec![], want(10)).await.unwrap().lease {
            jobs += lease.jobs();
        }
    }
    source.leave(BatchStats::default()).await.unwrap();
    assert!(
        rows(fixture.store(), id)
            .await
            .iter()
            .all(|row| row.state == JobState::Waiting)
    );
}

pub(super) async fn delayed_jobs_are_announced(fixture: Fixture) {
    let mut delayed = batch("double", 1);
    let at = fixture.engine.clock().now().plus_ms(3_600_000);
    delayed.options.run_at = Some(at);
    submit(&fixture.engine, delayed).await;
    let source = fixture.registered().await;
    let answer = source.exchange(vec![], want(1)).await.unwrap();
    assert!(answer.lease.is_none());
    // Over HTTP the time is converted to this machine's clock, which may be read some milliseconds later.
    assert!(answer.next_run_at.unwrap().since_ms(at).abs() < 1_000);
}

/// Limits these kinds to one running job.
async fn limit_to_one(fixture: &Fixture, kind: &str) {
    let control = Control {
        scope: Scope {
            kind: Some(kind.to_owned()),
            ..Scope::default()
        },
        effect: Effect::Concurrency { jobs_max: 1 },
    };
    fixture.store().put_controls(vec![control]).await.unwrap();
}

/// Starts to wait for work, and drops the wait.
async fn begin_to_wait(source: &Arc<dyn Source>) {
    let _ = tokio::time::timeout(Duration::from_millis(1), source.wait_for_work()).await;
}

pub(super) async fn jobs_under_a_limit_are_announced_while_waiting(fixture: Fixture) {
    limit_to_one(&fixture, "double").await;
    submit(&fixture.engine, batch("double", 3)).await;
    let source = fixture.registered().await;
    let mut done = 0;
    while done < 3 {
        let answer = source.exchange(vec![], want(10)).await.unwrap();
        let Some(mut lease) = answer.lease else {
            assert!(
                answer.limited || answer.next_run_at.is_some(),
                "after {done} jobs"
            );
            tokio::time::timeout(PATIENCE, source.wait_for_work())
                .await
                .unwrap();
            continue;
        };
        // Other jobs wait behind the running one, and the source gets claims while it waits for them itself.
        for _ in 0..3 {
            if done < 2 {
                let answer = source.exchange(vec![], want(10)).await.unwrap();
                assert!(answer.limited && answer.lease.is_none(), "after {done} jobs");
            }
            begin_to_wait(&source).await;
        }
        // The answer to a claim together with a report must not say that nothing is left.
        let positions = lease.slices.remove(0).positions.to_string();
        let mut report = Report::new(lease.id, BatchId(1), 1);
        let mut values = PackedBuilder::new();
        values.push_value(&0).unwrap();
        report.completed = Some(Completed {
            positions: positions.parse().unwrap(),
            values: values.finish(),
            durations_us: vec![1],
        });
        assert_eq!(
            source.exchange(vec![report], None).await.unwrap().receipts.len(),
            1
        );
        done += 1;
    }
    // The end is known soon, however long the server would let a request wait.
    let begun = std::time::Instant::now();
    loop {
        let answer = source.exchange(vec![], want(10)).await.unwrap();
        assert!(answer.lease.is_none());
        if !answer.limited && answer.next_run_at.is_none() {
            break;
        }
        source.wait_for_work().await;
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

pub(super) async fn the_end_of_a_drain_is_known_without_a_pause(fixture: Fixture) {
    let source = fixture.registered().await;
    let mut fastest = Duration::MAX;
    // The fastest of several runs counts, so that a busy machine does not matter.
    for _ in 0..8 {
        submit(&fixture.engine, batch("double", 1)).await;
        let lease = loop {
            match source.exchange(vec![], want(10)).await.unwrap().lease {
                Some(lease) => break lease,
                None => source.wait_for_work().await,
            }
        };
        begin_to_wait(&source).await;
        source.exchange(vec![doubled(&lease, "0")], None).await.unwrap();
        let begun = std::time::Instant::now();
        loop {
            let answer = source.exchange(vec![], want(10)).await.unwrap();
            if !answer.limited && answer.next_run_at.is_none() {
                break;
            }
            source.wait_for_work().await;
        }
        fastest = fastest.min(begun.elapsed());
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
}

pub(super) async fn a_drain_runs_what_waits_under_a_limit(fixture: Fixture) {
    limit_to_one(&fixture, "double").await;
    let id = submit(&fixture.engine, batch("double", 6)).await;
    let settings = || WorkerSettings {
        until_empty: true,
        concurrency: 4,
        ..WorkerSettings::default()
    };
    // The second worker ends when nothing is left, although the first may have run all jobs.
    let workers = [(); 2].map(|()| tokio::spawn(doubling(fixture.source(), settings()).run()));
    let mut completed = 0;
    for worker in workers {
        let ended = tokio::time::timeout(PATIENCE, worker).await.unwrap().unwrap();
        completed += ended.unwrap().completed;
    }
    assert_eq!(completed, 6);
    assert!(states(fixture.store(), id).await.iter().all(Option::is_some));
}
