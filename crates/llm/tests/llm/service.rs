//! The client, with both providers.

use std::time::{Duration, Instant};

use gristmill_llm::provider::Provider;
use gristmill_llm::request::Request;
use gristmill_llm::service::limiter::{Limiter, LimiterSettings};
use gristmill_llm::service::{OpenAiSettings, Service, ServiceError, Usage};
use gristmill_test_tools::provider::{Fault, StandInProvider};
use serde_json::json;

fn service(provider: Provider, stand_in: &StandInProvider) -> Service {
    let settings = OpenAiSettings {
        base_url: stand_in.base_url.clone(),
        model: "m".to_owned(),
        key: Some("secret".to_owned()),
        timeout: Duration::from_secs(20),
    };
    Service::of(provider, settings, Limiter::new(LimiterSettings::default())).expect("a service")
}

fn request(prompt: &str) -> Request {
    Request {
        model: "m".to_owned(),
        prompt: Some(prompt.to_owned()),
        ..Request::default()
    }
}

#[tokio::test]
async fn both_providers_answer_and_are_paid_once() {
    for provider in Provider::ALL {
        let stand_in = StandInProvider::start().await;
        let service = service(provider, &stand_in);
        service.reach().await.expect("it is reached");
        let asked = service
            .ask(&request("bees hum"), &mut Usage::default())
            .await
            .expect("an answer");
        assert_eq!(
            asked.reply.answer.map(|answer| answer.content),
            Ok("BEES HUM".to_owned())
        );
        let usage = asked.reply.usage.expect("the tokens are counted");
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (3, 3));
        assert_eq!(asked.reply.model.as_deref(), Some("m"));
        assert_eq!((stand_in.billed().len(), stand_in.calls("live")), (1, 1));
    }
}

#[tokio::test]
async fn a_body_is_sent_as_it_is() {
    let stand_in = StandInProvider::start().await;
    stand_in.say(|request| request["top_k"].to_string());
    let body = json!({"max_tokens": 5, "top_k": 7, "messages": [{"role": "user", "content": "a"}]});
    let request = Request {
        model: "m".to_owned(),
        body: body.as_object().cloned(),
        ..Request::default()
    };
    for provider in Provider::ALL {
        let asked = service(provider, &stand_in)
            .ask(&request, &mut Usage::default())
            .await
            .expect("an answer");
        assert_eq!(
            asked.reply.answer.map(|answer| answer.content),
            Ok("7".to_owned())
        );
    }
}

#[tokio::test]
async fn a_provider_that_asks_for_time_gets_it() {
    for (headers, least_ms) in [
        (vec![("retry-after-ms", "300")], 300),
        (vec![("retry-after", "1")], 1_000),
        (
            vec![
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "400ms"),
            ],
            400,
        ),
    ] {
        let stand_in = StandInProvider::start().await;
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        stand_in.lie(move |call| {
            let is_first = call.name() == "live" && call.before == 0;
            is_first.then(|| Fault::Reject(429, headers.clone(), "slow down".to_owned()))
        });
        let (begun, mut usage) = (Instant::now(), Usage::default());
        let service = service(Provider::Openai, &stand_in);
        service.ask(&request("a"), &mut usage).await.expect("an answer");
        assert!(
            begun.elapsed() >= Duration::from_millis(least_ms),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!((usage.retries, stand_in.billed().len()), (1, 1));
    }
}

#[tokio::test]
async fn a_refused_parameter_is_left_out_and_named() {
    for provider in Provider::ALL {
        let stand_in = StandInProvider::start().await;
        stand_in.lie(|call| {
            let has_temperature = String::from_utf8_lossy(&call.body).contains("temperature");
            let refusal = "`temperature` is not supported by this model".to_owned();
            has_temperature.then(|| Fault::Reject(400, Vec::new(), refusal))
        });
        let service = service(provider, &stand_in);
        let warm = Request {
            temperature: Some(0.3),
            ..request("a")
        };
        for _ in 0..2 {
            let asked = service
                .ask(&warm, &mut Usage::default())
                .await
                .expect("an answer");
            assert_eq!(asked.dropped, ["temperature"]);
        }
        assert_eq!(
            stand_in.calls("live"),
            3,
            "the second request goes without it at once"
        );
    }
}

#[tokio::test]
async fn refusals_end_at_once() {
    for (status, kind) in [
        (401, "denied"),
        (404, "denied"),
        (400, "refused"),
        (413, "refused"),
    ] {
        let stand_in = StandInProvider::start().await;
        stand_in.lie(move |call| {
            (call.name() == "live").then(|| Fault::Reject(status, Vec::new(), "no".to_owned()))
        });
        for provider in Provider::ALL {
            let refused = service(provider, &stand_in)
                .ask(&request("a"), &mut Usage::default())
                .await;
            assert_eq!(refused.expect_err("no answer").kind(), kind);
        }
        assert_eq!(stand_in.calls("live"), 2);
    }
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_and_paid_twice() {
    let stand_in = StandInProvider::start().await;
    stand_in.lie(|call| (call.before == 0).then_some(Fault::Lose));
    let service = service(Provider::Anthropic, &stand_in);
    service
        .ask(&request("a"), &mut Usage::default())
        .await
        .expect("an answer");
    assert_eq!(
        stand_in.billed().len(),
        2,
        "no provider knows a second live call as the first"
    );
}

#[tokio::test]
async fn slots_fall_to_one_when_a_provider_lets_one_run() {
    let stand_in = StandInProvider::start().await;
    // Two of three calls come too early.
    stand_in.lie(|call| {
        let headers = vec![("retry-after-ms".to_owned(), "20".to_owned())];
        (call.before % 3 != 0).then(|| Fault::Reject(429, headers, "one at a time".to_owned()))
    });
    let service = service(Provider::Openai, &stand_in);
    let asks = (0..20).map(|n| {
        let service = service.clone();
        async move { service.ask(&request(&n.to_string()), &mut Usage::default()).await }
    });
    let ended: Result<Vec<_>, ServiceError> = futures::future::join_all(asks).await.into_iter().collect();
    assert_eq!(ended.map(|all| all.len()), Ok(20));
    assert_eq!(stand_in.billed().len(), 20);
}

#[tokio::test]
async fn a_refused_value_changes_nothing_for_others() {
    let stand_in = StandInProvider::start().await;
    stand_in.lie(|call| {
        let is_hot = String::from_utf8_lossy(&call.body).contains("\"temperature\":5");
        is_hot.then(|| Fault::Reject(400, Vec::new(), "temperature must be at most 2".to_owned()))
    });
    stand_in.say(|request| request["temperature"].to_string());
    let service = service(Provider::Openai, &stand_in);
    let with = |temperature| Request {
        temperature: Some(temperature),
        ..request("a")
    };
    let hot = service.ask(&with(5.0), &mut Usage::default()).await;
    assert_eq!(hot.expect_err("no answer").kind(), "refused");
    let warm = service
        .ask(&with(0.5), &mut Usage::default())
        .await
        .expect("an answer");
    assert_eq!(
        warm.reply.answer.map(|answer| answer.content),
        Ok("0.5".to_owned())
    );
    assert!(warm.dropped.is_empty());
}

#[tokio::test]
async fn a_key_that_a_proxy_repeats_is_not_told() {
    for (status, calls) in [(400, 1), (401, 1)] {
        let stand_in = StandInProvider::start().await;
        stand_in.lie(move |call| {
            let told = format!("{:?}", call.headers);
            Some(Fault::Reject(status, Vec::new(), told))
        });
        for provider in Provider::ALL {
            let service = service(provider, &stand_in);
            let refused = service.ask(&request("a"), &mut Usage::default()).await;
            let told = refused.expect_err("no answer").to_string();
            assert!(!told.contains("secret") && told.contains('…'), "{told}");
            if status == 401 {
                let told = service.reach().await.expect_err("it is refused").to_string();
                assert!(!told.contains("secret"), "{told}");
            }
        }
        assert_eq!(stand_in.calls("live"), 2 * calls);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_named() {
    let (stand_in, other) = (StandInProvider::start().await, StandInProvider::start().await);
    let to = other.base_url.replace("127.0.0.1", "localhost");
    stand_in.lie(move |_| {
        let headers = vec![("location".to_owned(), format!("{to}/chat/completions"))];
        Some(Fault::Reject(307, headers, String::new()))
    });
    for provider in Provider::ALL {
        let service = service(provider, &stand_in);
        for refused in [
            service
                .ask(&request("a"), &mut Usage::default())
                .await
                .map(|_| ()),
            service.reach().await,
        ] {
            let told = refused.expect_err("no answer").to_string();
            assert!(told.contains("redirects to localhost"), "{told}");
        }
    }
    assert_eq!((other.calls("live"), other.calls("other")), (0, 0));
}

#[tokio::test]
async fn an_error_by_status_200_is_an_error_and_what_nobody_can_read_is_not_paid_twelve_times() {
    for (body, kind, calls) in [
        (
            r#"{"error": {"message": "no credit", "code": "insufficient_quota"}}"#,
            "denied",
            1,
        ),
        (r#"{"error": {"message": "bad", "code": 400}}"#, "refused", 1),
        ("<html>Welcome</html>", "unavailable", 2),
    ] {
        let stand_in = StandInProvider::start().await;
        stand_in.lie(move |_| Some(Fault::Say(body.to_owned())));
        let refused = service(Provider::Openai, &stand_in)
            .ask(&request("a"), &mut Usage::default())
            .await;
        assert_eq!(refused.expect_err("no answer").kind(), kind, "{body}");
        assert_eq!(stand_in.calls("live"), calls, "{body}");
    }
}
