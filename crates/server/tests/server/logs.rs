//! Live output over HTTP: who may send it, who sees it, and its cost without followers.

use axum::http::StatusCode;
use bytes::Bytes;
use gristmill_model::{Followed, JobLog};
use gristmill_server::Role;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{Answer, Api, completing, read, request};

/// A stream of server-sent events.
struct Following(axum::body::Body, String);

impl Following {
    async fn of(api: &Api, token: &str, query: &str) -> Following {
        let request = request("GET", &format!("/logs?{query}"), Some(token), None, Bytes::new());
        let response = api.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Following(response.into_body(), String::new())
    }

    /// The next event with data; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.1.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                let event = data.map(|data| serde_json::from_str(data).unwrap());
                self.1 = rest.to_owned();
                if event.is_some() {
                    return event;
                }
                continue;
            }
            let frame = self.0.frame().await?.unwrap();
            self.1 += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
    }
}

async fn put(api: &Api, token: &str, worker: i64, printed: Value) -> Answer {
    let path = format!("/workers/{worker}/output");
    let body = json!({"printed": printed}).to_string().into();
    api.send(request(
        "POST",
        &path,
        Some(token),
        Some("application/json"),
        body,
    ))
    .await
}

fn piece(job: &str, kind: &str, text: &str) -> Value {
    json!({"job": job, "kind": kind, "attempt": 1, "offset": 0, "text": text})
}

async fn beat(api: &Api, token: &str, worker: i64, number: u64) -> Value {
    let path = format!("/workers/{worker}/heartbeat");
    let body = json!({"number": number}).to_string().into();
    let answer = api
        .send(request(
            "POST",
            &path,
            Some(token),
            Some("application/json"),
            body,
        ))
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    answer.json()
}

#[tokio::test]
async fn a_worker_learns_what_is_followed_and_sends_it_until_the_job_has_ended() {
    let api = Api::new().await;
    let batch = api.submit("work", json!([1])).await;
    let job = format!("{batch}:0");
    let agent = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&agent).await;
    assert_eq!(beat(&api, &agent, worker, 1).await["followed"], Value::Null);
    let claimed = read(&api.exchange(&agent, worker, api.wanting(1, 1)).await);
    assert_eq!(claimed.followed, None, "nobody follows");
    let lease = claimed.exchanged.lease.unwrap();
    // The store does not keep output of unfollowed jobs, and this is not an error.
    let kept = put(&api, &agent, worker, json!([piece(&job, "work", "unheard\n")])).await;
    assert_eq!(kept.json(), json!({"refused": []}));

    let reader = api.token("reader", Role::Submit, &["default"]);
    let mut following = Following::of(&api, &reader, &format!("job={job}")).await;
    // The first event comes only after the follower is known.
    let piece_of_it = json!([piece(&job, "work", "heard\n")]);
    let event = tokio::select! {
        event = following.next() => event,
        () = async {
            let mut number = 2;
            while beat(&api, &agent, worker, number).await["followed"] != json!([{"job": job}]) {
                number += 1;
                tokio::task::yield_now().await;
            }
            put(&api, &agent, worker, piece_of_it).await;
            std::future::pending::<()>().await;
        } => None,
    };
    let event = event.unwrap();
    assert_eq!(
        (&event["type"], &event["job"], &event["text"]),
        (&json!("printed"), &json!(job), &json!("heard\n"))
    );
    let told = read(&api.exchange(&agent, worker, api.wanting(2, 0)).await);
    assert_eq!(told.followed, Some(vec![Followed::Job(job.parse().unwrap())]));
    let told = read(&api.exchange(&agent, worker, api.wanting(3, 0)).await);
    assert_eq!(told.followed, None, "nothing has changed");

    let mut report = completing(&lease, "0", "[1]");
    report.logs = vec![JobLog {
        position: 0,
        text: "heard\nand more\n".to_owned(),
    }];
    api.report(&agent, worker, 4, report).await;
    let ended = following.next().await.unwrap();
    assert_eq!(
        ended,
        json!({"type": "attempt_ended", "job": job, "attempt": 1, "log": "heard\nand more\n"})
    );
    let ended = following.next().await.unwrap();
    assert_eq!(ended, json!({"type": "ended", "job": job, "state": "completed"}));
    assert_eq!(following.next().await, None, "the stream ends with the job");
    let late = put(&api, &agent, worker, json!([piece(&job, "work", "late\n")])).await;
    assert_eq!(late.status, StatusCode::CONFLICT, "it holds the job no longer");
}

#[tokio::test]
async fn output_comes_only_from_the_worker_that_holds_the_job() {
    let api = Api::new().await;
    let batch = api.submit("work", json!([1, 2])).await;
    let (first, second) = (format!("{batch}:0"), format!("{batch}:1"));
    let agent = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&agent).await;
    read(&api.exchange(&agent, worker, api.wanting(1, 1)).await);
    let thief = api.token("thief", Role::Agent, &["default"]);
    let thiefs_worker = api.register(&thief).await;

    let forged = put(
        &api,
        &thief,
        thiefs_worker,
        json!([piece(&first, "work", "forged")]),
    )
    .await;
    assert_eq!(forged.status, StatusCode::CONFLICT);
    assert_eq!(forged.json()["code"], "not_held");
    assert!(
        forged
            .refusal()
            .contains(&format!("sends output of job {first}, which it does not hold"))
    );
    let forged = put(&api, &thief, worker, json!([piece(&first, "work", "forged")])).await;
    assert_eq!(
        forged.status,
        StatusCode::FORBIDDEN,
        "the worker of another token"
    );
    let as_another_kind = put(&api, &agent, worker, json!([piece(&first, "other", "forged")])).await;
    assert_eq!(as_another_kind.status, StatusCode::CONFLICT);
    let both = json!([piece(&first, "work", "own"), piece(&second, "work", "forged")]);
    assert_eq!(
        put(&api, &agent, worker, both).await.json(),
        json!({"refused": [second]})
    );
    let much = "x".repeat(gristmill_model::limits::LIVE_OUTPUT_BYTES_PER_WRITE_MAX + 1);
    let much = put(&api, &agent, worker, json!([piece(&first, "work", &much)])).await;
    assert_eq!(much.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_token_sees_output_of_its_queues_alone() {
    let api = Api::new().await;
    let batch = api.submit("work", json!([1])).await;
    let elsewhere = json!({"kind": "work", "payloads": [1], "queue": "other"});
    let elsewhere = api.post("/jobs", &elsewhere).await.json()["batches"][0]["batch"].clone();
    let agent = api.token("group", Role::Agent, &["default", "other"]);
    let worker = api.register(&agent).await;
    let mut exchange = api.wanting(1, 10);
    exchange.want.as_mut().unwrap().queues.push("other".into());
    read(&api.exchange(&agent, worker, exchange).await);

    let other = api.token("reader", Role::Submit, &["other"]);
    for (refused, status) in [
        (format!("job={batch}:0"), StatusCode::NOT_FOUND),
        ("kind=work&queue=default".to_owned(), StatusCode::FORBIDDEN),
    ] {
        let request = request(
            "GET",
            &format!("/logs?{refused}"),
            Some(&other),
            None,
            Bytes::new(),
        );
        assert_eq!(api.send(request).await.status, status, "{refused}");
    }
    for (query, status) in [
        ("", StatusCode::BAD_REQUEST),
        ("job=1:0&kind=work", StatusCode::BAD_REQUEST),
        ("job=99:0", StatusCode::NOT_FOUND),
        ("run=none", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(api.get(&format!("/logs?{query}")).await.status, status, "{query}");
    }
    let mut narrow = Following::of(&api, &other, "kind=work").await;
    let mut wide = Following::of(&api, &api.admin, "kind=work").await;
    let seen = tokio::select! {
        seen = async {
            let both = async { [wide.next().await.unwrap(), wide.next().await.unwrap()] };
            tokio::join!(narrow.next(), both)
        } => Some(seen),
        () = async {
            let mut number = 1;
            let both = json!([{"job": format!("{elsewhere}:0")}, {"kind": "work"}]);
            loop {
                let followed = beat(&api, &agent, worker, number).await["followed"].clone();
                let all = both.as_array().unwrap();
                if all.iter().all(|one| followed.as_array().is_some_and(|told| told.contains(one))) {
                    break;
                }
                number += 1;
                tokio::task::yield_now().await;
            }
            let first = piece(&format!("{batch}:0"), "work", "of default");
            let second = piece(&format!("{elsewhere}:0"), "work", "of other");
            put(&api, &agent, worker, json!([first, second])).await;
            std::future::pending::<()>().await;
        } => None,
    };
    let (narrow, wide) = seen.unwrap();
    assert_eq!(narrow.unwrap()["text"], "of other", "and not what came before");
    assert_eq!(
        wide.map(|event| event["text"].clone()),
        ["of default", "of other"]
    );
}
