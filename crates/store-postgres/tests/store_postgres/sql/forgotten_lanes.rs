//! A prune deletes the names of kinds, queues and groups without jobs, while transactions of SQL clients run.

use gristmill_model::Clock;
use gristmill_store::{PruneOptions, Store};
use gristmill_store_conformance::fixture::*;

use super::case::{Case, refusal, texts};

const SUBMIT: &str = "SELECT gristmill.submit('work', '1'::json, options => '{\"group\": \"tenant\"}')";

/// A store whose group `tenant` has no jobs any more, and is not the last one.
async fn emptied() -> Case {
    let case = Case::new().await;
    let mut of_group = batch(1);
    of_group.options.group = Some("tenant".to_owned());
    case.store
        .submit(vec![of_group, batch_of("last", 1)], None)
        .await
        .unwrap();
    let worker = worker(&case.store).await;
    let lease = claim(&case.store, worker, 10).await.unwrap();
    let reports = lease.slices.iter().map(completed).collect();
    exchange(&case.store, worker, reports, None).await;
    case.clock.advance_ms(1_000);
    case
}

async fn prune(case: &Case) {
    let options = PruneOptions {
        finished_before: case.clock.now(),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    case.store.prune(options).await.unwrap();
}

async fn groups(case: &Case) -> Vec<String> {
    texts(
        &case.client().await,
        "SELECT job_group FROM gristmill.lane WHERE job_group <> ''",
        &[],
    )
    .await
}

/// The prune does not see a job that a client has submitted and not committed, and its group stays.
#[tokio::test]
async fn the_group_of_an_open_transaction_stays() {
    let case = emptied().await;
    let client = case.client().await;
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute(SUBMIT).await.unwrap();
    prune(&case).await;
    client.batch_execute("COMMIT").await.unwrap();
    prune(&case).await;
    assert_eq!(groups(&case).await, ["tenant"]);
    no_damage(&case.store).await;
    case.catch_up();
    let worker = worker(&case.store).await;
    let slice = only(claim(&case.store, worker, 10).await);
    assert_eq!(slice.group.as_deref(), Some("tenant"));
    exchange(&case.store, worker, vec![completed(&slice)], None).await;
    case.clock.advance_ms(1_000);
    prune(&case).await;
    assert!(groups(&case).await.is_empty());
}

/// A transaction with a snapshot from before the prune is told to begin again, and no job is lost.
#[tokio::test]
async fn a_snapshot_from_before_a_prune_stores_no_job_without_a_group() {
    let case = emptied().await;
    let client = case.client().await;
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM gristmill.lane")
        .await
        .unwrap();
    prune(&case).await;
    assert!(groups(&case).await.is_empty());
    assert_eq!(refusal(&client, SUBMIT).await.code().code(), "40001");
    client.batch_execute("ROLLBACK").await.unwrap();
    client.batch_execute(SUBMIT).await.unwrap();
    assert_eq!(groups(&case).await, ["tenant"]);
    no_damage(&case.store).await;
}
