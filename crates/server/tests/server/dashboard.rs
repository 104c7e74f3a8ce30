//! The page's files, its headers, its session, and the list of batches that it shows.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use gristmill_model::SystemClock;
use gristmill_server::Role;
use gristmill_server::rate::RateLimiter;
use gristmill_server::serve::routes;
use gristmill_server::trust::Trust;
use serde_json::json;
use tower::ServiceExt;

use crate::support::{Api, engine_on};

async fn send(
    router: &Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, HeaderMap) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router
        .clone()
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    (response.status(), response.headers().clone())
}

#[tokio::test]
async fn the_page_is_served_to_this_machine_with_its_headers() {
    let folder = tempfile::tempdir().unwrap();
    let rate = RateLimiter::new(Arc::new(SystemClock), 1_000, 1_000);
    let (_, router) = routes(engine_on(&folder).await, Trust::Loopback, rate).unwrap();
    for path in ["/", "/assets/app.js", "/assets/app.css", "/assets/icon.svg"] {
        let (status, headers) = send(&router, "GET", path, &[("host", "127.0.0.1:8378")]).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        let cache = if path == "/" { "no-store" } else { "no-cache" };
        assert_eq!(headers["cache-control"], cache, "{path}");
        let known = headers["etag"].to_str().unwrap();
        let (status, _) = send(
            &router,
            "GET",
            path,
            &[("host", "localhost"), ("if-none-match", known)],
        )
        .await;
        assert_eq!(status, StatusCode::NOT_MODIFIED, "{path}");
        for foreign in [
            vec![("host", "rebound.example")],
            vec![("host", "127.0.0.1:8378"), ("origin", "https://foreign.example")],
            vec![("host", "127.0.0.1:8378"), ("origin", "http://127.0.0.1:3000")],
        ] {
            let (status, _) = send(&router, "GET", path, &foreign).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path} {foreign:?}");
        }
    }
    // Requests over HTTP/2 name their host in the URI alone.
    for (host, expected) in [
        ("127.0.0.1:8378", StatusCode::OK),
        ("rebound.example", StatusCode::FORBIDDEN),
        ("127.0.0.1@rebound.example", StatusCode::FORBIDDEN),
    ] {
        for path in ["/", "/dashboard/session", "/api/v1/health"] {
            let (status, _) = send(&router, "GET", &format!("http://{host}{path}"), &[]).await;
            assert_eq!(status, expected, "{host}{path}");
        }
        let host_is_own = [("host", "127.0.0.1:8378")];
        let (status, _) = send(&router, "GET", &format!("http://{host}/"), &host_is_own).await;
        assert_eq!(status, expected, "{host} beside another Host");
    }
    let (status, _) = send(&router, "GET", "/assets/../Cargo.toml", &[]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = send(&router, "GET", "/dashboard/session", &[("host", "localhost")]).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn browsers_keep_the_files_that_the_page_names_until_they_change() {
    let api = Api::new().await;
    let page = api.send(Request::get("/").body(Body::empty()).unwrap()).await;
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    let named: Vec<&str> = page
        .split('"')
        .filter(|part| part.starts_with("/assets/"))
        .collect();
    assert_eq!(named.len(), 3, "{page}");
    for path in named {
        let (plain, version) = path.split_once("?v=").unwrap();
        for (path, cache) in [
            (path, "public, max-age=31536000, immutable"),
            (plain, "no-cache"),
            (&format!("{plain}?v={version}0"), "no-cache"),
        ] {
            let answer = api.send(Request::get(path).body(Body::empty()).unwrap()).await;
            assert_eq!(answer.headers["cache-control"], cache, "{path}");
            assert_eq!(answer.headers["etag"], format!("\"{version}\""), "{path}");
        }
    }
}

#[tokio::test]
async fn the_bundle_is_small_when_compressed() {
    let api = Api::new().await;
    let mut bytes = 0;
    for path in ["/", "/assets/app.js", "/assets/app.css", "/assets/icon.svg"] {
        let request = Request::get(path)
            .header("accept-encoding", "br, gzip;q=0.8")
            .body(Body::empty())
            .unwrap();
        let answer = api.send(request).await;
        assert_eq!(answer.headers["content-encoding"], "gzip", "{path}");
        bytes += answer.body.len();
    }
    assert!(bytes <= 150_000, "{bytes} bytes");
    let plain = api.send(Request::get("/").body(Body::empty()).unwrap()).await;
    assert!(!plain.headers.contains_key("content-encoding"));
    assert!(plain.body.starts_with(b"<!doctype html>"));
}

#[tokio::test]
async fn a_token_becomes_a_cookie_that_only_the_own_page_can_use() {
    let api = Api::new().await;
    let token = api.token("operator", Role::Admin, &["*"]);
    let own = ("origin", "https://jobs.example");
    let host = ("host", "jobs.example");
    let bearer = format!("Bearer {token}");
    for path in ["/dashboard/session", "/api/v1/queues"] {
        let (status, _) = send(&api.router, "GET", path, &[host]).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let sign_in = "/dashboard/session";
    let (status, _) = send(
        &api.router,
        "POST",
        sign_in,
        &[host, own, ("authorization", "Bearer x")],
    )
    .await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let foreign = ("origin", "https://foreign.example");
    let (status, _) = send(
        &api.router,
        "POST",
        sign_in,
        &[host, foreign, ("authorization", &bearer)],
    )
    .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, headers) = send(
        &api.router,
        "POST",
        sign_in,
        &[host, own, ("authorization", &bearer)],
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    let set = headers["set-cookie"].to_str().unwrap();
    assert!(
        set.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"),
        "{set}"
    );
    let cookie = set.split(';').next().unwrap();
    for (extra, expected) in [
        (vec![], StatusCode::OK),
        (vec![own], StatusCode::OK),
        (vec![("sec-fetch-site", "same-origin")], StatusCode::OK),
        (vec![foreign], StatusCode::FORBIDDEN),
        (vec![("sec-fetch-site", "same-site")], StatusCode::FORBIDDEN),
    ] {
        let mut headers = vec![host, ("cookie", cookie)];
        headers.extend(&extra);
        let (status, _) = send(&api.router, "GET", "/api/v1/queues", &headers).await;
        assert_eq!(status, expected, "{extra:?}");
    }
    let (status, headers) = send(&api.router, "DELETE", sign_in, &[host, own, ("cookie", cookie)]).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let set = headers["set-cookie"].to_str().unwrap();
    assert!(set.starts_with("gristmill_token=; Path=/; Max-Age=0;"), "{set}");
    api.trust()
        .revoke(&token_id(&api, "operator"), &SystemClock)
        .unwrap();
    let (status, _) = send(&api.router, "GET", "/api/v1/queues", &[host, ("cookie", cookie)]).await;
    assert_eq!(
        status,
        StatusCode::UNAUTHORIZED,
        "a revoked token ends its session"
    );
}

fn token_id(api: &Api, subject: &str) -> String {
    let tokens = api.trust().tokens().unwrap();
    let token = tokens.into_iter().find(|token| token.subject == subject);
    token.unwrap().jti
}

#[tokio::test]
async fn batches_are_listed_from_the_newest() {
    let api = Api::new().await;
    let empty = api.get("/batches").await.json();
    assert_eq!(empty, json!({"batches": []}));
    for number in 0..45 {
        let kind = if number % 9 == 0 { "rare" } else { "often" };
        let group = if number % 2 == 0 {
            json!("even")
        } else {
            json!(null)
        };
        let body = json!({"kind": kind, "payloads": [1, 2, 3], "group": group});
        assert_eq!(api.post("/jobs", &body).await.status, StatusCode::CREATED);
    }
    api.post("/jobs/cancel", &json!({"jobs": ["44:0", "44:1"]})).await;

    let mut seen = Vec::new();
    let mut path = "/batches?limit=20".to_owned();
    loop {
        let page = api.get(&path).await.json();
        let ids = page["batches"].as_array().unwrap().iter();
        seen.extend(ids.map(|batch| batch["batch"].as_i64().unwrap()));
        match page["next"].as_i64() {
            Some(next) => path = format!("/batches?limit=20&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, (1..=45).rev().collect::<Vec<_>>());

    let batches = async |query: &str| -> Vec<i64> {
        let page = api.get(&format!("/batches?{query}")).await.json();
        let ids = page["batches"].as_array().unwrap().iter();
        ids.map(|batch| batch["batch"].as_i64().unwrap()).collect()
    };
    assert_eq!(batches("kind=rare").await, [37, 28, 19, 10, 1]);
    assert_eq!(batches("states=cancelled").await, [44]);
    assert_eq!(batches("group=even&limit=2").await, [45, 43]);
    assert_eq!(batches("kind=none").await, [0; 0]);

    let page = api.get("/batches?states=cancelled").await.json();
    let batch = &page["batches"][0];
    assert_eq!((&batch["jobs"], &batch["kind"]), (&json!(3), &json!("often")));
    assert_eq!(batch["states"]["waiting"], 1);
    assert_eq!(batch["states"]["cancelled"], 2);
    for wrong in ["limit=0", "limit=201", "before=0", "states=no", "x=1"] {
        api.get(&format!("/batches?{wrong}")).await.refusal();
    }
}
