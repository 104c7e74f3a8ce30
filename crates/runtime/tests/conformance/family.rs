//! Scripts that spawn children and finalize.

use gristmill_model::{
    BatchId, LeaseId, LeasedSlice, OnChildFailure, PackedArray, Positions, Siblings, Timestamp,
};
use gristmill_worker::{ChildOutcome, MicroBatch};
use serde_json::json;

use crate::harness::{Ended, run, run_work, warm_subjects};

fn finalizing(payloads: &str, memos: &str, children: &str) -> MicroBatch {
    let payloads = PackedArray::parse(payloads).unwrap();
    let children: Vec<ChildOutcome> = serde_json::from_str(children).unwrap();
    let jobs = payloads.count();
    let work = MicroBatch::new(vec![LeasedSlice {
        lease: LeaseId(1),
        batch: BatchId(42),
        kind: "script:family".into(),
        queue: "default".into(),
        group: None,
        positions: Positions::from(10..10 + jobs),
        payloads,
        attempt: 1,
        rescues: 0,
        timeout_ms: None,
        priority: 0,
        retry: gristmill_model::RetryPolicy::default(),
        submitted_at: Timestamp(0),
        memos: Some(PackedArray::parse(memos).unwrap()),
        deadline: None,
        labels: None,
        traceparent: None,
    }]);
    work.with_children(vec![children; jobs as usize])
}

const CHILDREN: &str = r#"[{"job":"7:0","state":"completed","value":{"n":1}},
    {"job":"7:1","state":"dead","error":{"type":"E","message":"no"}}]"#;

/// A mistake in the children that a job spawns fails this job for good, by name, and no other job of its process.
#[tokio::test(flavor = "multi_thread")]
async fn misspelt_options_of_children_are_named() {
    for subject in warm_subjects() {
        let handler = subject.handler("family");
        let payloads = [
            "misspelt",
            "misspelt retry",
            "misspelt batch",
            "misspelt children",
            "misspelt policy",
            "misspelt sibling",
            "options",
            "single",
        ];
        let (ended, recorder) = run(&handler, &payloads.map(|payload| json!(payload)), None).await;
        let name = subject.name;
        for (place, told) in [
            "gristmill.spawn: unknown field `priorty`: did you mean `priority`?",
            "gristmill.spawn: unknown field `attempts`: did you mean `attempts_max`?",
            "a batch of children has no",
            "childen",
            "gristmill.spawn: unknown variant `colect`: did you mean `collect`?",
            "gristmill.done: unknown field `timeout`: did you mean `timeout_ms`?",
        ]
        .iter()
        .enumerate()
        {
            let Ended::Failed(error) = &ended[place] else {
                panic!("{name}: {} is taken: {ended:?}", payloads[place]);
            };
            assert!(error.message.contains(told), "{name}: {error:?}");
            // The call itself fails if the name is one of its own.
            assert_eq!(error.permanent, ![2, 3].contains(&place), "{name}: {error:?}");
        }
        assert_eq!(ended[6], Ended::Suspended, "{name}");
        let options = &recorder.spawned()[0].children[0].options;
        assert_eq!(
            (
                options.priority,
                options.retry.attempts_max,
                options.retry.delay_ms
            ),
            (5, 7, 1_000),
            "{name}"
        );
        assert_eq!(ended[7], Ended::Completed(json!(7)), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_spawn_children() {
    for subject in warm_subjects() {
        let handler = subject.handler("family");
        let payloads = [
            json!({"count": 3}),
            json!(5),
            json!({"count": 1, "kind": "other"}),
            json!("wrong"),
            json!({"count": 0}),
        ];
        let (ended, recorder) = run(&handler, &payloads, None).await;
        let name = subject.name;
        assert_eq!(ended[0], Ended::Suspended, "{name}");
        assert_eq!(ended[1], Ended::Completed(json!(5)), "{name}");
        assert_eq!(ended[2], Ended::Suspended, "{name}");
        assert!(
            matches!(&ended[3], Ended::Failed(error) if error.error_type == "NotJson"),
            "{name}: {ended:?}"
        );
        assert_eq!(ended[4], Ended::Suspended, "{name}");
        let mut spawned = recorder.spawned();
        spawned.sort_by_key(|suspended| suspended.positions.first());
        let described: Vec<String> = spawned
            .iter()
            .map(|suspended| {
                assert_eq!(suspended.on_failure, OnChildFailure::Collect);
                let children = suspended.children.iter();
                let children =
                    children.map(|children| format!("{} {}", children.kind, children.payloads.count()));
                format!(
                    "{}: {}",
                    suspended.positions,
                    children.collect::<Vec<_>>().join(" ")
                )
            })
            .collect();
        assert_eq!(described, ["0: script:actions 3", "2: other 1", "4: "], "{name}");
        let memo: serde_json::Value = serde_json::from_str(spawned[0].memos.as_str()).unwrap();
        assert_eq!(memo, json!([{"count": 3}]), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn children_spawn_siblings() {
    for subject in warm_subjects() {
        let handler = subject.handler("family");
        let payloads = [
            json!(1),
            json!("sibling"),
            json!("single"),
            json!("wrong sibling"),
            json!("sibling"),
            json!(5),
        ];
        let (ended, recorder) = run(&handler, &payloads, None).await;
        let name = subject.name;
        assert_eq!(ended[0], Ended::Completed(json!(1)), "{name}");
        assert_eq!(ended[1], Ended::Completed(json!({"n": 1})), "{name}");
        assert_eq!(ended[2], Ended::Completed(json!(7)), "{name}");
        assert!(
            matches!(&ended[3], Ended::Failed(error) if error.error_type == "NotJson"),
            "{name}: {ended:?}"
        );
        assert_eq!(ended[4], ended[1], "{name}");
        assert_eq!(ended[5], Ended::Completed(json!(5)), "{name}");
        let packed = Siblings::pack(recorder.siblings());
        assert_eq!(packed.len(), 1, "{name}");
        assert_eq!(packed[0].positions.to_string(), "1,4", "{name}");
        let batch = &packed[0].children[0];
        assert_eq!(
            (batch.kind.as_str(), &*batch.shares),
            ("script:actions", &[2, 2][..]),
            "{name}"
        );
        assert_eq!(
            batch.payloads.as_str(),
            "[\"more\"\n,\"most\"\n,\"more\"\n,\"most\"]",
            "{name}"
        );
        assert_eq!(batch.tags["by"], "sibling", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_finalize_with_their_memos_and_outcomes() {
    for subject in warm_subjects() {
        let handler = subject.handler("family");
        let work = finalizing(r#"["a","again","b"]"#, r#"[1,2,{"m":3}]"#, CHILDREN);
        let (ended, recorder) = run_work(&handler, work).await;
        let name = subject.name;
        assert_eq!(
            ended[0],
            Ended::Completed(json!(["a", 1, [{"n": 1}, "dead"]])),
            "{name}"
        );
        assert_eq!(ended[1], Ended::Suspended, "{name}");
        assert_eq!(
            ended[2],
            Ended::Completed(json!(["b", {"m": 3}, [{"n": 1}, "dead"]])),
            "{name}"
        );
        assert_eq!(
            recorder.spawned()[0].children[0].payloads.as_str(),
            "[\"more\"]",
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_finalize_a_failed_child_fails_the_job() {
    for subject in warm_subjects() {
        let handler = subject.handler("actions");
        let (ended, _) = run_work(&handler, finalizing("[1]", "[null]", CHILDREN)).await;
        let name = subject.name;
        let Ended::Failed(error) = &ended[0] else {
            panic!("{name}: {ended:?}")
        };
        assert!(
            error.permanent && error.message.contains("job 7:1"),
            "{name}: {error:?}"
        );
        let completed = r#"[{"job":"7:0","state":"completed","value":1}]"#;
        let (ended, _) = run_work(&handler, finalizing("[1]", "[null]", completed)).await;
        assert_eq!(ended[0], Ended::Completed(json!(null)), "{name}");
    }
}
