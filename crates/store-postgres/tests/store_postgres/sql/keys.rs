//! Deduplication keys mean the same in both places that handle them: the store's submit, by `rules/keys.rs`, and
//! `gristmill.submit`.

use std::collections::BTreeMap;

use gristmill_model::{BatchId, JobId, JobState, KeyedBatch, NewBatch, OnDuplicate, PackedArray, Unique};
use gristmill_store::{Change, JobFilter, Page, Store, StoreError};
use gristmill_store_conformance::fixture::*;

use super::case::{Case, texts};

/// One of the two ways, with a kind of its own.
struct Way {
    kind: &'static str,
    /// Its batches, in order.
    batches: Vec<BatchId>,
}

impl Way {
    fn new(kind: &'static str) -> Self {
        let batches = Vec::new();
        Way { kind, batches }
    }

    /// Jobs with the places of their batches.
    fn ordered(&mut self, jobs: &[JobId]) -> Vec<(usize, u32)> {
        let place = |batches: &mut Vec<BatchId>, batch| match batches.iter().position(|known| *known == batch)
        {
            Some(place) => place,
            None => {
                batches.push(batch);
                batches.len() - 1
            }
        };
        let jobs = jobs.iter();
        jobs.map(|job| (place(&mut self.batches, job.batch), job.position))
            .collect()
    }

    async fn states(&mut self, case: &Case) -> BTreeMap<(usize, u32), (JobState, i16)> {
        let filter = JobFilter {
            kind: Some(self.kind.to_owned()),
            ..JobFilter::default()
        };
        let page = Page {
            after: None,
            limit: 1_000,
        };
        let rows = case.store.jobs(&filter, page).await.unwrap();
        let jobs: Vec<JobId> = rows.iter().map(|row| row.job).collect();
        let rows = rows.iter().map(|row| (row.state, row.priority));
        self.ordered(&jobs).into_iter().zip(rows).collect()
    }
}

#[tokio::test]
async fn keys_mean_the_same_by_sql() {
    let case = Case::new().await;
    let client = case.client().await;
    let (mut by_store, mut by_sql) = (Way::new("store"), Way::new("sql"));
    let long_ms = Some(600_000);
    let submits = [
        (r#"["a","b",null,"a"]"#, OnDuplicate::Skip, 0, None),
        (r#"["c","b"]"#, OnDuplicate::Skip, 5, long_ms),
        (r#"["a","d","d"]"#, OnDuplicate::Replace, 1, long_ms),
        (r#"["e","c"]"#, OnDuplicate::Reject, 0, None),
        (r#"["f","f"]"#, OnDuplicate::Reject, 0, None),
        (r#"["g",null]"#, OnDuplicate::Reject, 2, None),
        (r#"["b","c","h"]"#, OnDuplicate::Replace, -1, None),
        (r#"["a","b","c","d","g","h"]"#, OnDuplicate::Skip, 9, None),
    ];
    for (round, (keys, on_duplicate, priority, period_ms)) in submits.into_iter().enumerate() {
        let keys_of = PackedArray::parse(keys).unwrap();
        let count = keys_of.count();
        let mut new = NewBatch::new(by_store.kind, payloads(count));
        new.options.priority = priority;
        let unique = Unique {
            on_duplicate,
            period_ms,
            ..Unique::default()
        };
        let answer = case
            .store
            .submit_keyed(vec![KeyedBatch::new(new, keys_of, unique)])
            .await;
        let rules = serde_json::to_string(&unique).unwrap();
        let submit = format!(
            "SELECT gristmill.submit('{}', $1::text[]::json[], priority => {priority}, \
             options => '{{\"keys\": {keys}, \"unique\": {rules}}}')",
            by_sql.kind
        );
        let items: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        case.catch_up();
        match answer {
            Ok(answer) => {
                let ids = texts(&client, &submit, &[&items]).await;
                let ids: Vec<JobId> = ids.iter().map(|id| id.parse().unwrap()).collect();
                case.catch_up();
                assert_eq!(
                    by_sql.ordered(&ids),
                    by_store.ordered(&answer[0].jobs),
                    "round {round}"
                );
            }
            Err(StoreError::DuplicateKey { .. }) => {
                let error = client.query(&submit, &[&items]).await.unwrap_err();
                assert_eq!(
                    error.code().map(|code| code.code()),
                    Some("23505"),
                    "round {round}: {error}"
                );
            }
            Err(error) => panic!("round {round}: {error}"),
        }
        if round == 2 {
            // Some have ended, whose periods are not over.
            for way in [&by_store, &by_sql] {
                let second = job(way.batches[1], 0);
                let cancelled = change(&case.store, second, Change::Cancel).await;
                assert_eq!(cancelled.changed, 1);
            }
        }
        let expected = by_store.states(&case).await;
        assert_eq!(by_sql.states(&case).await, expected, "round {round}");
    }
}
