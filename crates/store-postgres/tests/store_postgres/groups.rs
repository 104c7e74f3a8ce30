//! Small exchanges of many workers share transactions, and each keeps its own answer.

use std::sync::Arc;

use futures::future::join_all;
use gristmill_model::{LeaseId, ManualClock, Report, Timestamp, WorkerId};
use gristmill_private_postgres::shared;
use gristmill_store::{Exchanged, Store, StoreError};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::NoTls;

const WORKERS: usize = 32;
const ROUNDS: u32 = 10;

async fn open() -> (String, PostgresStore) {
    let url = shared().create_database().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    let store = PostgresStore::open(&url, PostgresOptions::new(clock, 7))
        .await
        .unwrap();
    (url, store)
}

/// How many writing operations were committed: each connection counts its own in its row.
async fn operations(url: &str) -> i64 {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let row = client
        .query_one("SELECT sum(operation)::bigint FROM gristmill.writer", &[])
        .await
        .unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    row.get(0)
}

async fn workers(store: &PostgresStore) -> Vec<WorkerId> {
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(worker(store).await);
    }
    workers
}

fn reports(exchanged: &Exchanged) -> Vec<Report> {
    let slices = exchanged.lease.iter().flat_map(|lease| &lease.slices);
    slices.map(completed).collect()
}

#[tokio::test]
async fn exchanges_that_come_together_share_transactions() {
    let (url, store) = open().await;
    let jobs = WORKERS as u32 * ROUNDS;
    let id = submit(&store, batch(jobs)).await;
    let workers = workers(&store).await;
    let before = operations(&url).await;
    let mut last = vec![Exchanged::default(); WORKERS];
    for round in 0..=ROUNDS {
        let wants = (round < ROUNDS).then(|| want(1));
        let exchanges = workers
            .iter()
            .zip(&last)
            .map(|(worker, last)| store.exchange(*worker, reports(last), wants.clone()));
        let answers: Vec<Exchanged> = join_all(exchanges)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        for (answer, last) in answers.iter().zip(&last) {
            let reported = reports(last);
            assert_eq!(answer.receipts.len(), reported.len());
            for (receipt, report) in answer.receipts.iter().zip(&reported) {
                assert_eq!(receipt.accepted, report.positions());
            }
            let jobs = answer.lease.as_ref().map_or(0, |lease| lease.jobs());
            assert_eq!(jobs, u32::from(round < ROUNDS), "each gets a job of its own");
        }
        last = answers;
    }
    // There are 352 if each has a transaction of its own.
    let operations = operations(&url).await - before;
    assert!(
        operations <= 4 * (i64::from(ROUNDS) + 1),
        "{operations} transactions"
    );
    assert!(store.is_finished(id).await.unwrap());
    assert_eq!(store.outcomes(id).await.unwrap().unwrap().ended(), jobs);
}

#[tokio::test]
async fn a_refusal_in_a_group_is_one_exchange_s_own() {
    let (_, store) = open().await;
    let id = submit(&store, batch(40)).await;
    let workers = workers(&store).await;
    let claims = join_all(
        workers
            .iter()
            .map(|worker| store.exchange(*worker, Vec::new(), Some(want(1)))),
    )
    .await;
    let held: Vec<Exchanged> = claims.into_iter().map(Result::unwrap).collect();
    let exchanges = workers
        .iter()
        .zip(&held)
        .enumerate()
        .map(|(number, (worker, held))| {
            let (mut worker, mut reports) = (*worker, reports(held));
            match number {
                5 => worker = WorkerId(77_777),
                9 => reports[0].lease = LeaseId(77_777),
                _ => {}
            }
            store.exchange(worker, reports, Some(want(1)))
        });
    let answers = join_all(exchanges).await;
    let mut accepted = 0;
    for (number, answer) in answers.into_iter().enumerate() {
        match (number, answer) {
            (5, Err(StoreError::WorkerUnknown(WorkerId(77_777)))) => {}
            (9, Ok(answer)) => {
                assert!(answer.receipts[0].accepted.is_empty());
                assert_eq!(answer.receipts[0].refused.len(), 1);
            }
            (_, Ok(answer)) => accepted += answer.receipts[0].accepted.len(),
            (number, answer) => panic!("exchange {number}: {answer:?}"),
        }
    }
    assert_eq!(accepted, 30);
    assert_eq!(store.outcomes(id).await.unwrap().unwrap().ended(), 30);
    let held: u64 = store
        .workers()
        .await
        .unwrap()
        .iter()
        .map(|row| row.jobs_held)
        .sum();
    assert_eq!(
        held, 10,
        "what was refused is held still, and all that was left is claimed once"
    );
}
