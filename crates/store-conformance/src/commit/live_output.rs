//! The output of running jobs, for their followers.

use gristmill_batching::BatchStats;
use gristmill_model::limits::{
    FOLLOWED_FOR_MS, FOLLOWED_MAX, LIVE_OUTPUT_BYTES_PER_WRITE_MAX, LIVE_OUTPUT_KEPT_MS, LIVE_OUTPUT_ROWS_MAX,
};
use gristmill_model::{Followed, JobId, Printed, WorkerId};
use gristmill_store::{Store, StoreError};

use crate::Database;
use crate::fixture::*;

fn printed(job: JobId, offset: u64, text: &str) -> Printed {
    Printed {
        job,
        kind: KIND.into(),
        attempt: 1,
        offset,
        text: text.to_owned(),
    }
}

async fn followed(store: &dyn Store, worker: WorkerId) -> Vec<Followed> {
    let heartbeat = store.heartbeat(worker, BatchStats::default()).await.unwrap();
    heartbeat.followed
}

async fn put(store: &dyn Store, worker: WorkerId, pieces: Vec<Printed>) {
    assert_eq!(store.put_output(worker, pieces).await.unwrap(), []);
}

async fn texts(store: &dyn Store, followed: &[Followed], after: i64) -> Vec<String> {
    let page = store.live_output(followed.to_vec(), after).await.unwrap();
    page.pieces.into_iter().map(|piece| piece.printed.text).collect()
}

/// Output is kept only for followed jobs. Workers learn of followers from their heartbeats.
pub async fn output_is_kept_while_somebody_follows(database: &dyn Database) {
    let (store, other) = (database.open().await, database.open().await);
    let (worker, foreign) = (worker(&*store).await, worker(&*store).await);
    let (first, second) = (
        job(submit(&*store, batch(1)).await, 0),
        job(submit(&*store, batch(8)).await, 7),
    );
    claim(&*store, worker, 9).await.unwrap();
    let all = [Followed::Kind(KIND.into())];
    assert_eq!(followed(&*store, worker).await, []);
    put(&*store, worker, vec![printed(first, 0, "lost")]).await;
    assert_eq!(texts(&*other, &all, 0).await, [""; 0]);

    other.follow("a", vec![Followed::Job(first)]).await.unwrap();
    let by_batch = vec![Followed::Batch(second.batch), Followed::Job(first)];
    other.follow("b", by_batch).await.unwrap();
    let expected = [Followed::Job(first), Followed::Batch(second.batch)];
    assert_eq!(followed(&*store, worker).await, expected, "each once");
    let pieces = vec![printed(first, 0, "one\n"), printed(second, 3, "nul\0é")];
    put(&*store, worker, pieces).await;
    // No worker can write output for jobs of others, for another kind, or for ended jobs.
    let theirs = vec![printed(first, 4, "forged"), printed(second, 3, "forged")];
    let refused = store.put_output(foreign, theirs).await.unwrap();
    assert_eq!(refused, [first, second]);
    let as_another_kind = Printed {
        kind: "other".into(),
        ..printed(first, 4, "forged")
    };
    let beyond = printed(job(second.batch, 8), 0, "forged");
    let refused = store
        .put_output(worker, vec![as_another_kind, beyond])
        .await
        .unwrap();
    assert_eq!(refused, [first, job(second.batch, 8)]);
    assert_eq!(texts(&*other, &all, 0).await, ["one\n", "nul é"]);
    assert_eq!(texts(&*other, &[Followed::Job(first)], 0).await, ["one\n"]);
    assert_eq!(
        texts(&*other, &[Followed::Batch(second.batch)], 0).await,
        ["nul é"]
    );
    assert_eq!(
        texts(&*other, &[Followed::Kind("other".into())], 0).await,
        [""; 0]
    );
    let page = other.live_output(all.to_vec(), 0).await.unwrap();
    assert_eq!(page.pieces[1].printed, printed(second, 3, "nul é"));
    assert_eq!(page.pieces[1].at, {
        use gristmill_model::Clock;
        database.clock().now()
    });
    assert_eq!(page.last, page.pieces[1].id);
    assert_eq!(texts(&*other, &all, page.pieces[0].id).await, ["nul é"]);

    // A follower that goes away is forgotten. The output disappears with the last follower.
    database.clock().advance_ms(FOLLOWED_FOR_MS - 1);
    other.follow("b", vec![Followed::Job(second)]).await.unwrap();
    database.clock().advance_ms(1);
    assert_eq!(followed(&*store, worker).await, [Followed::Job(second)]);
    assert_eq!(texts(&*other, &all, 0).await.len(), 2);
    other.unfollow("b").await.unwrap();
    assert_eq!(followed(&*store, worker).await, []);
    assert_eq!(texts(&*other, &all, 0).await, [""; 0]);
}

/// Output has limits of age, of rows and of bytes in one write. The followed jobs have a limit as well.
pub async fn live_output_is_bounded(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let first = job(submit(&*store, batch(1)).await, 0);
    claim(&*store, worker, 1).await.unwrap();
    let all = vec![Followed::Kind(KIND.into())];
    store.follow("a", all.clone()).await.unwrap();
    put(&*store, worker, vec![printed(first, 0, "old")]).await;
    database.clock().advance_ms(LIVE_OUTPUT_KEPT_MS + 1);
    store.follow("a", all.clone()).await.unwrap();
    let many = u64::try_from(LIVE_OUTPUT_ROWS_MAX).unwrap() + 5;
    let pieces = (0..many).map(|offset| printed(first, offset, "x")).collect();
    put(&*store, worker, pieces).await;
    put(&*store, worker, vec![printed(first, many, "last")]).await;
    let page = store.live_output(all.clone(), 0).await.unwrap();
    assert_eq!(
        page.pieces[0].printed.offset, 5,
        "the old row and all earlier ones are gone"
    );
    let text = "x".repeat(LIVE_OUTPUT_BYTES_PER_WRITE_MAX + 1);
    let refused = store.put_output(worker, vec![printed(first, 0, &text)]).await;
    assert!(matches!(refused, Err(StoreError::InvalidInput(_))), "{refused:?}");
    for count in [0, FOLLOWED_MAX as u32 + 1] {
        let too_many = (0..count)
            .map(|position| Followed::Job(job(first.batch, position)))
            .collect();
        let refused = store.follow("a", too_many).await;
        assert!(matches!(refused, Err(StoreError::InvalidInput(_))), "{refused:?}");
    }
    // Housekeeping also forgets the output.
    database.clock().advance_ms(FOLLOWED_FOR_MS);
    store.expire().await.unwrap();
    assert_eq!(texts(&*store, &all, 0).await, [""; 0]);
}
