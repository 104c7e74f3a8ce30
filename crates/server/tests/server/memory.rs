//! The operations of the knowledge base.

use std::sync::Arc;

use axum::http::StatusCode;
use gristmill_server::Role;
use serde_json::json;

use crate::knowledge;
use crate::support::{self, Api};

async fn api() -> Api {
    let api = Api::new().await;
    assert!(api.app.knowledge.set(Arc::new(knowledge::Bees)).is_ok());
    api
}

#[tokio::test]
async fn sources_are_listed_in_pages() {
    let api = api().await;
    let all = api.get("/memory").await.json();
    assert_eq!((&all["sources_total"], &all["messages"]), (&json!(3), &json!(3)));
    assert_eq!(all["sources"].as_array().unwrap().len(), 3);
    let page = api.get("/memory?after=bees.md&limit=1").await.json();
    assert_eq!(page["sources"][0]["source"], "hives.md");
    assert_eq!(page["sources"].as_array().unwrap().len(), 1);
    assert!(
        api.get("/memory?limit=0")
            .await
            .refusal()
            .contains("give 1 to 1000")
    );
}

#[tokio::test]
async fn a_question_finds_messages_and_knowledge() {
    let api = api().await;
    let found = api
        .get("/memory/recall?question=Who+keeps+bees&limit=2")
        .await
        .json();
    assert_eq!(found["messages"].as_array().unwrap().len(), 2);
    assert_eq!(found["messages"][0]["speaker"], "Ada");
    assert_eq!(
        found["knowledge"][0],
        json!({"kind": "entity", "text": "Ada (person)"})
    );
    let nothing = api.get("/memory/recall?question=cats").await.json();
    assert_eq!(nothing, json!({"messages": [], "knowledge": []}));
    let long = "x".repeat(2_001);
    for (query, says) in [
        ("question=+", "`question` has 1 bytes"),
        (format!("question={long}").as_str(), "`question` has 2001 bytes"),
        ("question=bees&limit=101", "give 1 to 100"),
        ("", "`question` has 0 bytes"),
        ("limit=3&explain=true", "`since`, `until`, `source`"),
        ("question=bees&limit=many", "`limit` is `many`"),
        ("question=bees&explain=yes", "give `true` or `false`"),
        ("question=bees&question=cats", "`question` comes twice"),
        ("question=bees&speakers=Ada", "`speakers` is no parameter"),
        ("question=bees&since=soon", "`since` is `soon`"),
        (
            format!("question=bees{}", "&tag=t".repeat(51)).as_str(),
            "give at most 50",
        ),
        (
            format!("speaker={}", "ada+".repeat(51)).as_str(),
            "a `speaker` has 204 bytes",
        ),
        (
            format!(
                "source=notes.md{}",
                format!("&source={}", "a".repeat(250)).repeat(8)
            )
            .as_str(),
            "have 2008 bytes",
        ),
    ] {
        let refusal = api.get(&format!("/memory/recall?{query}")).await.refusal();
        assert!(refusal.contains(says), "{refusal}");
    }
}

#[tokio::test]
async fn a_question_has_the_options_of_the_command() {
    let api = api().await;
    let found = api
        .get("/memory/recall?question=bees&speaker=Ada&speaker=King%2C+Bob&source=mails&thread=t%201&tag=a&since=2023-05-01&explain=true")
        .await
        .json();
    let asked = found["messages"][0]["subject"].as_str().unwrap();
    for named in [
        "speakers: [\"Ada\", \"King, Bob\"]",
        "sources: [\"mails\"]",
        "threads: [\"t 1\"]",
        "tags: [\"a\"]",
    ] {
        assert!(asked.contains(named), "{asked}");
    }
    assert_eq!(
        found["messages"][0]["explanation"],
        json!([{"part": "words", "gain": 1.0}])
    );
    let listed = api.get("/memory/recall?source=bees.md").await.json();
    assert_eq!(listed["messages"].as_array().unwrap().len(), 3);
    assert_eq!(listed["messages"][0].get("explanation"), None);
}

#[tokio::test]
async fn a_failure_does_not_tell_where_the_knowledge_base_is() {
    let answer = api().await.get("/memory/recall?question=wasps").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.json()["error"], "the knowledge base failed");
}

#[tokio::test]
async fn a_server_without_a_knowledge_base_says_how_to_serve_one() {
    let api = Api::new().await;
    for path in ["/memory", "/memory/recall?question=bees"] {
        let answer = api.get(path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert!(answer.refusal().contains("gristmill serve --memory KB"));
    }
}

#[tokio::test]
async fn only_people_who_may_see_all_queues_may_ask() {
    let api = api().await;
    for (role, queues, expected) in [
        (Role::Operator, ["*"], StatusCode::OK),
        (Role::Operator, ["default"], StatusCode::FORBIDDEN),
        (Role::Submit, ["*"], StatusCode::FORBIDDEN),
    ] {
        let token = api.token("desk", role, &queues);
        let answer = api
            .send(support::request(
                "GET",
                "/memory",
                Some(&token),
                None,
                bytes::Bytes::new(),
            ))
            .await;
        assert_eq!(answer.status, expected, "{role} {queues:?}");
    }
}
