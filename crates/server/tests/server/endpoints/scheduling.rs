//! Settings that decide when a job runs: schedules, keys, tags, controls, dependencies.

use axum::http::StatusCode;
use bytes::Bytes;
use gristmill_server::Role;
use serde_json::{Value, json};

use super::{jobs_stored, work_off};
use crate::support::{Api, request};

#[tokio::test]
async fn jobs_wait_for_others() {
    let api = Api::new().await;
    let first = api.submit("resize", json!([1, 2])).await;
    let body = json!({"kind": "report", "payload": 3, "after": [first.to_string(), format!("{first}:0")], "after_failure": "fail"});
    let waiting = api.post("/jobs", &body).await;
    assert_eq!(waiting.status, StatusCode::CREATED, "{}", waiting.refusal());
    let listed = api.get("/jobs?states=blocked").await.json();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1, "{listed}");
    for (wrong, says) in [
        (
            json!({"kind": "k", "payload": 1, "after": ["99"]}),
            "names batch 99",
        ),
        (
            json!({"kind": "k", "payload": 1, "after": [format!("{first}:2")]}),
            "has 2 jobs",
        ),
        (
            json!({"kind": "k", "payload": 1, "after": ["soon"]}),
            "`after[0]`",
        ),
        (
            json!({"kind": "k", "payload": 1, "after": [first.to_string()], "after_failure": "wait"}),
            "wait",
        ),
        (
            json!({"kind": "k", "payload": 1, "after": vec!["1"; 1_001]}),
            "1001",
        ),
    ] {
        let refused = api.post("/jobs", &wrong).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.refusal());
        assert!(
            refused.refusal().contains(says),
            "{} does not say {says}",
            refused.refusal()
        );
    }
    // A caller that may not see jobs of a queue may not wait for them either.
    let other = api.token("other", Role::Submit, &["other"]);
    let body = json!({"kind": "k", "queue": "other", "payload": 1, "after": [first.to_string()]});
    let refused = api
        .send(request(
            "POST",
            "/jobs",
            Some(&other),
            Some("application/json"),
            Bytes::from(body.to_string()),
        ))
        .await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.refusal());
    assert!(refused.refusal().contains("which does not exist or was pruned"));
    work_off(&api).await;
    let shown = api.get("/jobs/2:0").await.json();
    assert_eq!(shown["state"], "dead", "{shown}");
}

#[tokio::test]
async fn schedules_are_put_shown_changed_and_deleted() {
    let api = Api::new().await;
    let put = json!({
        "kind": "report", "payload": {"region": "eu"}, "overlap": "skip",
        "rule": {"cron": {"expression": "30 4 * * *", "time_zone": "Europe/Berlin"}},
    });
    let answer = api.call("PUT", "/schedules/nightly", &put).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let shown = answer.json();
    assert!(
        shown["next_at"].is_i64() && shown["last_job"].is_null(),
        "{shown}"
    );
    assert_eq!(shown["payload"], json!({"region": "eu"}));
    let upcoming = shown["upcoming"].as_array().unwrap();
    assert_eq!((upcoming.len(), &upcoming[0]), (5, &shown["next_at"]));
    assert!(upcoming.is_sorted_by_key(|moment| moment.as_i64()), "{shown}");

    let triggered = api
        .call("POST", "/schedules/nightly/trigger", &Value::Null)
        .await
        .json();
    let job = triggered["last_job"].as_str().unwrap().to_owned();
    assert_eq!(api.get(&format!("/jobs/{job}")).await.json()["kind"], "report");
    let paused = api
        .call("POST", "/schedules/nightly/pause", &json!({}))
        .await
        .json();
    assert_eq!(
        (&paused["paused"], &paused["next_at"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(paused["upcoming"], json!([]));
    let listed = api.get("/schedules?limit=5").await.json();
    assert_eq!(listed["schedules"][0]["fired"], 1);
    let resumed = api
        .call("POST", "/schedules/nightly/resume", &Value::Null)
        .await
        .json();
    assert_eq!(resumed["paused"], false);

    for (rule, told) in [
        (
            json!({"cron": {"expression": "boo"}}),
            "`boo` is not a cron expression",
        ),
        (
            json!({"cron": {"expression": "@daily", "time_zone": "Mars"}}),
            "time zone `Mars` does not exist",
        ),
        (
            json!({"cron": {"expression": "*/90 * * * *"}}),
            "minute `*/90`: the step is longer than the field, so only 0 would match; for every 90 minutes, give an \
             interval in place of the expression: `--every 90m`, or `every`",
        ),
        (
            json!({"cron": {"expression": "0 0 12 1 1 ? 2027"}}),
            "a schedule has no year",
        ),
        (
            json!({"every": {"interval_ms": 86_400_000, "time_zone": "Europe/Berlin"}}),
            "unknown field `time_zone`",
        ),
        (
            json!({"every": {"interval_ms": 5}}),
            "give 1000 to 316224000000 ms",
        ),
    ] {
        let refused = api
            .call(
                "PUT",
                "/schedules/nightly",
                &json!({"kind": "report", "rule": rule}),
            )
            .await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
        assert!(
            refused.json()["error"].as_str().unwrap().contains(told),
            "{refused:?}"
        );
    }
    let gone = api.call("DELETE", "/schedules/nightly", &Value::Null).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(api.get("/schedules/nightly").await.status, StatusCode::NOT_FOUND);
}

/// The jobs of a schedule have the key of the schedule.
#[tokio::test]
async fn schedules_have_keys() {
    let api = Api::new().await;
    let put = async |more: Value| {
        let mut body = json!({"kind": "a", "payload": 1, "rule": {"every": {"interval_ms": 60_000}}});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        api.call("PUT", "/schedules/keyed", &body).await
    };
    let answer = put(json!({"key": "one", "unique": {"scope": "queue"}, "complete_within_ms": 5_000})).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.json()["key"], "one");
    let trigger = async || {
        let answer = api.call("POST", "/schedules/keyed/trigger", &Value::Null).await;
        answer.json()["last_job"].as_str().unwrap().to_owned()
    };
    let job = trigger().await;
    assert_eq!(trigger().await, job, "it is open still");
    let shown = api.get(&format!("/jobs/{job}")).await.json();
    assert_eq!(shown["key"], "one", "{shown}");
    for (more, says) in [
        (json!({"unique": {}}), "no key"),
        (json!({"key": "one", "overlap": "replace"}), "`overlap`"),
        (
            json!({"key": "one", "unique": {"on_duplicate": "reject"}}),
            "`reject`",
        ),
        (json!({"key": "one", "cached_ms": 5}), "cache"),
        (json!({"complete_within_ms": 0}), "complete_within_ms"),
        (json!({"after": ["1"]}), "after"),
        (json!({"delay_ms": 5}), "delay_ms"),
    ] {
        let refused = put(more).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
        assert!(
            refused.refusal().contains(says),
            "{} does not say {says}",
            refused.refusal()
        );
    }
}

/// Jobs with keys are stored once. The answer has the job that stands for each.
#[tokio::test]
async fn jobs_with_keys_are_submitted_once() {
    let api = Api::new().await;
    let first = api
        .post("/jobs", &json!({"kind": "a", "payload": 1, "key": "one"}))
        .await
        .json();
    let id = first["ids"][0].as_str().unwrap().to_owned();
    assert_eq!((&first["jobs"], &first["first"]), (&json!(1), &json!(id)));
    let second = api
        .post(
            "/jobs",
            &json!({"kind": "a", "payloads": [1, 2, 3], "keys": ["one", null, "three"]}),
        )
        .await
        .json();
    let batch = &second["batches"][0]["batch"];
    assert_eq!(second["jobs"], 2);
    assert_eq!(
        second["ids"],
        json!([id, format!("{batch}:0"), format!("{batch}:1")])
    );
    let none = api
        .post("/jobs", &json!({"kind": "a", "payload": 1, "key": "three"}))
        .await
        .json();
    assert_eq!((&none["jobs"], none.get("first")), (&json!(0), None));
    let job = api.get(&format!("/jobs/{id}")).await.json();
    assert_eq!(job["key"], "one");

    let reject = json!({"kind": "a", "payload": 1, "key": "one", "unique": {"on_duplicate": "reject"}});
    let refused = api.post("/jobs", &reject).await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (StatusCode::CONFLICT, &json!("duplicate_key"))
    );
    for wrong in [
        json!({"kind": "a", "payload": 1, "keys": ["x"]}),
        json!({"kind": "a", "payloads": [1, 2], "keys": ["x"]}),
        json!({"kind": "a", "payload": 1, "key": ""}),
        json!({"kind": "a", "payload": 1, "unique": {}}),
        json!({"kind": "a", "payload": 1, "key": "x", "unique": {"period_ms": 0}}),
        json!({"kind": "a", "payload": 1, "key": "x", "unique": {"on_duplicate": "wild"}}),
    ] {
        assert_eq!(api.post("/jobs", &wrong).await.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(jobs_stored(&api).await, 3);
}

/// Jobs are found and cancelled by their tags and keys.
#[tokio::test]
async fn jobs_are_found_by_tags_and_keys() {
    let api = Api::new().await;
    let tagged = json!({"kind": "a", "payloads": [1, 2], "keys": ["x/1", "y/1"], "tags": {"customer": "7", "page": "b"}});
    let ids = api.post("/jobs", &tagged).await.json()["ids"].clone();
    api.submit("a", json!([1, 2, 3])).await;
    let job = api
        .get(&format!("/jobs/{}", ids[0].as_str().unwrap()))
        .await
        .json();
    assert_eq!(job["tags"], json!({"customer": "7", "page": "b"}));
    for (query, count) in [
        ("tags=customer%3D7", 2),
        ("tags=customer%3D8", 0),
        ("tags=customer%3D7,pa*", 2),
        ("key=x/1", 1),
        ("key_prefix=y", 1),
        ("parent=42:7", 0),
        ("", 5),
    ] {
        let page = api.get(&format!("/jobs?{query}")).await.json();
        assert_eq!(page["jobs"].as_array().unwrap().len(), count, "{query}");
    }
    let each =
        json!({"kind": "a", "payloads": [1, 2, 3], "tags": [{"customer": "8"}, null, {"customer": "7"}]});
    let batch = api.post("/jobs", &each).await.json()["batches"][0]["batch"].clone();
    let lines = "{\"payload\":1}\n{\"payload\":2,\"tags\":{\"customer\":\"9\"}}\n";
    let streamed = api
        .send(request(
            "POST",
            "/jobs/stream?kind=a&wrapped=true",
            Some(&api.admin),
            Some("application/x-ndjson"),
            lines.into(),
        ))
        .await;
    assert_eq!(streamed.json()["jobs"], 2);
    let values = api.get("/tags/customer?limit=2").await.json();
    assert_eq!(
        values,
        json!({"values": [{"value": "7", "jobs": 3}, {"value": "8", "jobs": 1}], "next": "8"})
    );
    let values = api.get("/tags/customer?limit=2&after=8").await.json();
    assert_eq!(values["values"], json!([{"value": "9", "jobs": 1}]));
    let counted = api.get("/jobs/count?tags=customer%3D7").await.json();
    assert_eq!(counted["states"]["waiting"], counted["jobs"], "{counted}");
    assert!(counted["jobs"].as_u64() > Some(0), "{counted}");
    assert!(
        api.get("/jobs/count?limit=1")
            .await
            .refusal()
            .contains("no pages")
    );
    let found = api.get("/jobs/ids?tags=customer%3D7&limit=1").await.json();
    assert_eq!(found["batches"][0]["positions"], "0-1");
    let next = found["next"].as_str().unwrap();
    let found = api
        .get(&format!("/jobs/ids?tags=customer%3D7&after={next}"))
        .await
        .json();
    assert_eq!(found["batches"], json!([{"batch": batch, "positions": "2"}]));
    for wrong in [json!([{}]), json!([1, {}, {}]), json!(7)] {
        let submit = json!({"kind": "a", "payloads": [1, 2, 3], "tags": wrong});
        assert!(api.post("/jobs", &submit).await.refusal().contains("tags"));
    }
    assert!(api.get("/jobs?parent=x").await.refusal().contains("`x`"));
    let filter = json!({"filter": {"parent": "42:7"}});
    assert_eq!(api.post("/jobs/cancel", &filter).await.json()["changed"], 0);
    let filter = json!({"filter": {"tags": ["customer=7"], "key_prefix": "x"}});
    let changed = api.post("/jobs/cancel", &filter).await.json();
    assert_eq!(changed["changed"], 1);
    let wrong = json!({"kind": "a", "payload": 1, "tags": {"": "7"}});
    assert_eq!(api.post("/jobs", &wrong).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(jobs_stored(&api).await, 10);
}

#[tokio::test]
async fn controls_are_put_shown_and_lifted() {
    let api = Api::new().await;
    let controls = json!([
        {"scope": {"queue": "slow"}, "effect": {"pause": {"reason": "deploy", "until": 5_000_000_000_000_i64}}},
        {"scope": {"kind": "mail", "each_group": true}, "effect": {"concurrency": {"jobs_max": 3}}},
        {"scope": {"kind": "mail"}, "effect": {"rate": {"jobs": 5, "period_ms": 1_000, "burst": 9}}},
        {"scope": {"group": "acme"}, "effect": {"share": {"weight": 2, "jobs_min": 1}}},
        {"scope": {}, "effect": {"aging": {"grace_ms": 0, "step_ms": 60_000}}},
    ]);
    let answer = api.call("PUT", "/controls", &json!({"controls": controls})).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.json()["controls"], controls);
    let lifted = api
        .call("POST", "/controls/lift", &json!({"reason": "deploy"}))
        .await;
    assert_eq!(lifted.json(), json!({"lifted": 1}));
    let scope = json!({"scope": {"kind": "mail"}, "effects": ["rate", "share"]});
    assert_eq!(
        api.call("POST", "/controls/lift", &scope).await.json(),
        json!({"lifted": 1})
    );
    let left = api.get("/controls").await.json();
    assert_eq!(left["controls"], json!([controls[1], controls[3], controls[4]]));
    for (method, path, wrong, told) in [
        ("POST", "/controls/lift", json!({}), "without conditions"),
        ("POST", "/controls/lift", json!({"effects": ["boo"]}), "boo"),
        (
            "PUT",
            "/controls",
            json!({"controls": [{"scope": {}, "effect": {"rate": {"jobs": 0, "period_ms": 1, "burst": 1}}}]}),
            "the jobs of a rate is 0",
        ),
        (
            "PUT",
            "/controls",
            json!({"controls": [{"scope": {"queu": "a"}, "effect": {"concurrency": {"jobs_max": 1}}}]}),
            "queu",
        ),
    ] {
        let refused = api.call(method, path, &wrong).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
        assert!(refused.refusal().contains(told), "{refused:?}");
    }
}

/// Jobs with the same key become one job, and jobs with cached values do not run.
#[tokio::test]
async fn jobs_are_debounced_and_cached() {
    let api = Api::new().await;
    let debounced = |payload: i32, debounce: Value| json!({"kind": "a", "payload": payload, "key": "x", "unique": {"debounce": debounce}});
    let merged = json!({"delay_ms": 60_000, "wait_ms_max": 120_000, "payloads": "merged"});
    let first = api.post("/jobs", &debounced(1, merged.clone())).await.json();
    let second = api.post("/jobs", &debounced(2, merged)).await.json();
    assert_eq!(second["ids"], first["ids"]);
    let id = first["ids"][0].as_str().unwrap();
    let job = api.get(&format!("/jobs/{id}")).await.json();
    assert_eq!(
        (&job["payload"], &job["state"]),
        (&json!([1, 2]), &json!("scheduled"))
    );
    for wrong in [
        json!({"delay_ms": 0}),
        json!({"delay_ms": 5, "wait_ms_max": 4}),
        json!({}),
    ] {
        let refused = api.post("/jobs", &debounced(3, wrong)).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    }

    let cached =
        json!({"kind": "double", "payloads": [7, 8], "cached_ms": 600_000, "complete_within_ms": 600_000});
    api.post("/jobs", &cached).await;
    work_off(&api).await;
    let again = api.post("/jobs", &cached).await.json()["batches"][0]["batch"].clone();
    let known = api.get(&format!("/jobs/{again}:0")).await.json();
    assert_eq!(
        (&known["state"], &known["attempt"]),
        (&json!("completed"), &json!(0))
    );
    // The last one of the first batch failed.
    let other = api.get(&format!("/jobs/{again}:1")).await.json();
    assert_eq!(other["state"], "waiting");
    let keyed = json!({"kind": "a", "payload": 1, "key": "y", "cached_ms": 5});
    assert_eq!(api.post("/jobs", &keyed).await.status, StatusCode::BAD_REQUEST);
}
