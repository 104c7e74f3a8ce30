use axum::http::HeaderValue;
use gristmill_model::{ManualClock, Timestamp};

use super::*;
use crate::caller::{EventScope, Role};

struct Fixture {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Self {
        Fixture {
            folder: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::new(Timestamp(1_800_000_000_000))),
        }
    }

    fn trust_folder(&self) -> TrustFolder {
        TrustFolder::new(self.folder.path())
    }

    fn create(&self, role: Role, queues: &[&str]) -> (String, TokenRecord) {
        let new = NewToken {
            subject: "group".to_owned(),
            role,
            queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
            event: None,
            life_ms: 60_000,
        };
        self.trust_folder().create(&new, &*self.clock).unwrap()
    }

    fn trust(&self) -> Trust {
        Trust::reloading(self.folder.path().to_owned(), self.clock.clone(), Duration::ZERO).unwrap()
    }
}

fn bearer(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::AUTHORIZATION,
        HeaderValue::from_str(&format!("Bearer {token}")).unwrap(),
    );
    headers
}

fn reason(trust: &Trust, headers: &HeaderMap) -> String {
    trust.authenticate(headers).unwrap_err().to_string()
}

#[test]
fn a_listed_token_is_let_in_with_its_claims() {
    let fixture = Fixture::new();
    let (token, record) = fixture.create(Role::Agent, &["default", "mail"]);
    let caller = fixture.trust().authenticate(&bearer(&token)).unwrap();
    assert_eq!(
        (&*caller.access.subject, &*caller.token, caller.role),
        ("group", &*record.jti, Some(Role::Agent))
    );
    assert!(caller.access.queues.contains("mail") && !caller.access.queues.contains("other"));
}

#[test]
fn callers_without_a_token_or_with_a_forged_one_stay_out() {
    let fixture = Fixture::new();
    let (token, _) = fixture.create(Role::Submit, &["*"]);
    let trust = fixture.trust();
    assert!(reason(&trust, &HeaderMap::new()).contains("no token"));
    assert!(reason(&trust, &bearer("abc")).contains("not a JWT"));
    // The same claims, signed with an invented key, or not signed at all.
    let other = Fixture::new();
    let (forged, _) = other.create(Role::Admin, &["*"]);
    assert!(reason(&trust, &bearer(&forged)).contains("key that this server does not know"));
    let parts: Vec<&str> = token.split('.').collect();
    let (forged_parts, unsigned) = (
        forged.split('.').collect::<Vec<_>>(),
        format!("{}.{}.", parts[0], parts[1]),
    );
    assert!(reason(&trust, &bearer(&unsigned)).contains("signature"));
    let swapped = format!("{}.{}.{}", parts[0], forged_parts[1], parts[2]);
    assert!(reason(&trust, &bearer(&swapped)).contains("signature"));
}

#[test]
fn a_token_ends_by_the_servers_clock() {
    let fixture = Fixture::new();
    let (token, _) = fixture.create(Role::Submit, &["*"]);
    let trust = fixture.trust();
    fixture.clock.advance_ms(59_999);
    assert!(trust.authenticate(&bearer(&token)).is_ok());
    fixture.clock.advance_ms(1);
    assert!(reason(&trust, &bearer(&token)).contains("expired"));
    // The clock of the token's maker is far ahead.
    fixture.clock.advance_ms(-3_600_000);
    assert!(reason(&trust, &bearer(&token)).contains("future"));
}

#[test]
fn a_revoked_or_unlisted_token_stays_out_at_once() {
    let fixture = Fixture::new();
    let (token, record) = fixture.create(Role::Submit, &["*"]);
    let (kept, _) = fixture.create(Role::Submit, &["*"]);
    let trust = fixture.trust();
    fixture
        .trust_folder()
        .revoke(&record.jti, &*fixture.clock)
        .unwrap();
    assert!(reason(&trust, &bearer(&token)).contains("revoked"));
    assert!(trust.authenticate(&bearer(&kept)).is_ok());
    std::fs::write(fixture.folder.path().join("tokens.json"), "{\"tokens\":[]}").unwrap();
    assert!(reason(&trust, &bearer(&kept)).contains("not on the server's list"));
    std::fs::remove_file(fixture.folder.path().join("tokens.json")).unwrap();
    assert!(matches!(
        trust.authenticate(&bearer(&kept)),
        Err(ApiError::Trust(_))
    ));
    let unknown = fixture
        .trust_folder()
        .revoke("nothing", &*fixture.clock)
        .unwrap_err();
    assert!(unknown.to_string().contains("gristmill token list"), "{unknown}");
}

#[test]
fn keys_rotate_and_old_tokens_stay_valid() {
    let fixture = Fixture::new();
    let (old, record) = fixture.create(Role::Submit, &["*"]);
    let trust = fixture.trust();
    let kid = fixture.trust_folder().rotate_key(&*fixture.clock).unwrap();
    let (new, new_record) = fixture.create(Role::Submit, &["*"]);
    assert_eq!(new_record.kid, kid);
    assert_ne!(record.kid, kid);
    assert!(trust.authenticate(&bearer(&old)).is_ok());
    assert!(trust.authenticate(&bearer(&new)).is_ok());
    // Once the old key's tokens have ended, the next rotation drops it.
    fixture.clock.advance_ms(61_000);
    fixture.trust_folder().rotate_key(&*fixture.clock).unwrap();
    assert!(reason(&trust, &bearer(&old)).contains("does not know"));
}

#[test]
fn keys_that_others_may_read_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    fixture.create(Role::Submit, &["*"]);
    let keys = fixture.folder.path().join("keys.json");
    assert_eq!(
        std::fs::metadata(&keys).unwrap().permissions().mode() & 0o777,
        0o600
    );
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Trust::tokens(fixture.folder.path().to_owned(), fixture.clock.clone()).unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn wrong_requests_are_refused_with_a_remedy() {
    let fixture = Fixture::new();
    let right = NewToken {
        subject: "group".to_owned(),
        role: Role::Agent,
        queues: vec!["default".to_owned()],
        event: None,
        life_ms: 60_000,
    };
    for (wrong, says) in [
        (
            NewToken {
                subject: String::new(),
                ..right.clone()
            },
            "subject",
        ),
        (
            NewToken {
                subject: "a/b".to_owned(),
                ..right.clone()
            },
            "/",
        ),
        (
            NewToken {
                queues: vec![],
                ..right.clone()
            },
            "queues",
        ),
        (
            NewToken {
                queues: vec!["a\0".to_owned()],
                ..right.clone()
            },
            "queue",
        ),
        (
            NewToken {
                event: Some(EventScope {
                    job: "42:7".parse().unwrap(),
                    name: "approve".to_owned(),
                }),
                ..right.clone()
            },
            "one event",
        ),
        (
            NewToken {
                life_ms: 0,
                ..right.clone()
            },
            "1 second",
        ),
        (
            NewToken {
                life_ms: i64::MAX,
                ..right.clone()
            },
            "days",
        ),
    ] {
        let error = fixture
            .trust_folder()
            .create(&wrong, &*fixture.clock)
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(fixture.trust_folder().tokens().unwrap().is_empty());
}

#[test]
fn without_tokens_only_this_machine_gets_answers() {
    for (host, origin, allowed) in [
        ("127.0.0.1:8080", None, true),
        ("localhost", None, true),
        ("[::1]:9", Some("http://[::1]:9"), true),
        ("127.0.0.1:8080", Some("http://127.0.0.1:8080"), true),
        ("127.0.0.1:8080", Some("http://127.0.0.1:3000"), false),
        ("127.0.0.1:8080", Some("http://localhost:8080"), false),
        ("evil.example:8080", None, false),
        ("127.0.0.1:8080", Some("https://evil.example"), false),
        ("127.0.0.1.evil.example", None, false),
        ("127.0.0.1:8080", Some("null"), false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static(host));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        }
        assert_eq!(
            Trust::Loopback.authenticate(&headers).is_ok(),
            allowed,
            "{host} {origin:?}"
        );
    }
}

#[test]
fn without_tokens_other_sites_may_link_but_load_nothing() {
    for (site, mode, allowed) in [
        ("same-origin", "cors", true),
        ("none", "navigate", true),
        ("cross-site", "navigate", true),
        ("cross-site", "no-cors", false),
        ("same-site", "cors", false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:8080"));
        headers.insert("sec-fetch-site", HeaderValue::from_static(site));
        headers.insert("sec-fetch-mode", HeaderValue::from_static(mode));
        let answered = Trust::Loopback.authenticate(&headers).is_ok();
        assert_eq!(answered, allowed, "{site} {mode}");
    }
}
