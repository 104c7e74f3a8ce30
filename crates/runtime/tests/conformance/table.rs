//! The table of a job's action and the ends of the job and its neighbours, in every runtime.

use gristmill_runtime::Runtime;
use serde_json::{Value, json};

use crate::harness::{Ended, Subject, run, subjects, warm_subjects};

/// The expected end of a job.
enum Expect {
    Value(Value),
    /// The error's type, and a part of its message.
    Error(&'static str, &'static str),
}

use Expect::{Error, Value as Is};

const MEBIBYTES_20: usize = 20 << 20;

/// Cases of every language: a name, the payload and the expected end.
fn common() -> Vec<(&'static str, Value, Expect)> {
    vec![
        (
            "an exception",
            json!({"do": "raise", "message": "no good"}),
            Error("", "no good"),
        ),
        ("exit in the middle", json!({"do": "exit"}), Error("", "")),
        (
            "a segmentation fault",
            json!({"do": "segfault"}),
            Error("crash", "signal 11 (SIGSEGV)"),
        ),
        ("nothing returned", json!({"do": "nothing"}), Is(Value::Null)),
        (
            "20 MB",
            json!({"do": "huge", "bytes": MEBIBYTES_20}),
            Error("ValueTooLarge", "VALUE_BYTES_MAX"),
        ),
    ]
}

/// Cases of the languages that keep a warm process.
fn warm() -> Vec<(&'static str, Value, Expect)> {
    vec![
        (
            "a value of 5 MB",
            json!({"do": "huge", "bytes": 5_000_000}),
            Is(json!("x".repeat(5_000_000))),
        ),
        ("NaN", json!({"do": "nan"}), Error("NotJson", "NaN")),
        (
            "an infinity",
            json!({"do": "infinity"}),
            Error("NotJson", "infinity"),
        ),
        (
            "a lone surrogate",
            json!({"do": "surrogate"}),
            Error("NotJson", "lone surrogate"),
        ),
        (
            "what JSON cannot hold",
            json!({"do": "unserialisable"}),
            Error("NotJson", "JSON cannot hold"),
        ),
        ("a circle", json!({"do": "circular"}), Error("NotJson", "")),
        (
            "forged answers on stdout",
            json!({"do": "forge_stdout"}),
            Is(json!("honest")),
        ),
        (
            "forged answers from a child",
            json!({"do": "forge_from_child"}),
            Is(json!("honest")),
        ),
        (
            "forged answers on our pipe",
            json!({"do": "forge_descriptors"}),
            Error("protocol", "file descriptors"),
        ),
    ]
}

fn bash() -> Vec<(&'static str, Value, Expect)> {
    vec![
        (
            "plain text",
            json!({"do": "text"}),
            Is(json!("two lines\nof text")),
        ),
        (
            "a lone surrogate",
            json!({"do": "surrogate"}),
            Error("NotJson", "is not JSON"),
        ),
        (
            "what is not UTF-8",
            json!({"do": "not_utf8"}),
            Error("NotUtf8", "not UTF-8"),
        ),
        ("exit status", json!({"do": "exit"}), Error("exit", "status 3")),
        (
            "which job it is",
            json!({"do": "job"}),
            Is(crate::stream::told(11, json!(null), json!({}))),
        ),
        (
            "a payload that nobody reads",
            json!({"do": "unread", "text": "x".repeat(1_000_000)}),
            Is(Value::Null),
        ),
    ]
}

fn check(subject: &Subject, name: &str, ended: &Ended, expected: &Expect) {
    match (ended, expected) {
        (Ended::Completed(value), Is(expected)) => {
            assert!(
                value == expected,
                "{}, {name}: {:.200}",
                subject.name,
                value.to_string()
            );
        }
        (Ended::Failed(error), Error(error_type, message)) => {
            let fits = error.error_type.contains(error_type) && error.message.contains(message);
            assert!(fits, "{}, {name}: {error:?}", subject.name);
        }
        (ended, _) => panic!("{}, {name}: {:.300}", subject.name, format!("{ended:?}")),
    }
}

/// Runs each case between two ordinary jobs, which must end as if the case were not there.
async fn check_all(subject: &Subject, cases: Vec<(&'static str, Value, Expect)>) {
    let handler = subject.handler("actions");
    for (name, payload, expected) in cases {
        eprintln!("{}: {name}", subject.name);
        let (ended, _) = run(&handler, &[json!("before"), payload, json!({"after": 1})], None).await;
        assert_eq!(
            ended[0],
            Ended::Completed(json!("before")),
            "{}, before {name}",
            subject.name
        );
        check(subject, name, &ended[1], &expected);
        assert_eq!(
            ended[2],
            Ended::Completed(json!({"after": 1})),
            "{}, after {name}",
            subject.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_case_ends_as_it_should_and_leaves_its_neighbours_alone() {
    for subject in subjects() {
        check_all(&subject, common()).await;
        let own = if subject.runtime == Runtime::Program {
            bash()
        } else {
            warm()
        };
        check_all(&subject, own).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_come_back_as_they_were() {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(9_007_199_254_740_991u64),
        json!(1.5),
        json!(1e-7),
        json!(""),
        json!("plain"),
        json!("\"quoted\" \\ back\\slash \n line \t tab \u{0} nul \u{7f}"),
        json!("ünïcødé 漢字 😀 \u{2028}\u{2029}\u{feff}"),
        json!("\\ud800 is written out"),
        json!([]),
        json!({}),
        json!([[], [{}], [null, false]]),
        json!({"": 0, "a": {"b": [1, 2, {"c": null}]}, "\n": "\n,", "ключ": "значение"}),
        json!("x".repeat(300_000)),
    ];
    for subject in subjects() {
        for stem in ["actions", "actions_async"] {
            if subject.runtime == Runtime::Program && stem == "actions_async" {
                continue;
            }
            let (ended, _) = run(&subject.handler(stem), &values, None).await;
            for (ended, value) in ended.iter().zip(&values) {
                assert_eq!(ended, &Ended::Completed(value.clone()), "{} {stem}", subject.name);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_keeps_integers_of_any_size_and_says_what_it_cannot_read() {
    let Some(python) = subjects()
        .into_iter()
        .find(|subject| subject.runtime == Runtime::Python)
    else {
        return;
    };
    let handler = python.handler("actions");
    let recorder = crate::harness::Recorder::default();
    let (big, unreadable) = ("123456789012345678901234567890", "1".repeat(5_000));
    let text = format!("[{big}\n,{unreadable}\n,\"fine\"]");
    let work = crate::harness::packed(gristmill_model::PackedArray::from_stored(text), None);
    gristmill_worker::Handler::run(&handler, 0, work, &recorder).await;
    let ended = recorder.ended();
    assert_eq!(
        ended[&0].value().to_string(),
        serde_json::from_str::<Value>(big).unwrap().to_string()
    );
    // Python 3.11 and newer refuse to convert a text with this many digits. Older ones return it.
    if let Ended::Failed(error) = &ended[&1] {
        assert!(
            error
                .message
                .contains("the payload cannot be read by Python's json"),
            "{error:?}"
        );
    }
    assert_eq!(ended[&2], Ended::Completed(json!("fine")));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_and_where_and_when_to_try_again() {
    for subject in warm_subjects() {
        let handler = subject.handler("actions");
        let payloads = [
            json!({"do": "raise", "message": "ünicode"}),
            json!({"do": "raise_busy"}),
            json!({"do": "raise_hopeless"}),
        ];
        let (ended, _) = run(&handler, &payloads, None).await;
        let [raised, busy, hopeless] = [0, 1, 2].map(|index| ended[index].error());
        assert_eq!(
            (raised.error_type.as_str(), raised.message.as_str()),
            ("ValueError", "ünicode"),
            "{}",
            subject.name
        );
        let traceback = raised.traceback.as_deref().unwrap_or_default();
        assert!(
            traceback.contains("raise") && traceback.contains("actions."),
            "{}: {traceback}",
            subject.name
        );
        assert!(
            !traceback.contains("gristmill>") && !traceback.contains("gristmill-shim"),
            "{}: {traceback}",
            subject.name
        );
        assert!(traceback.lines().count() < 9, "{}: {traceback}", subject.name);
        assert_eq!(
            (busy.retry_after_ms, busy.permanent),
            (Some(1_500), false),
            "{}",
            subject.name
        );
        assert_eq!(
            (hopeless.retry_after_ms, hopeless.permanent),
            (None, true),
            "{}",
            subject.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_what_it_was_when_its_job_returned() {
    for subject in warm_subjects() {
        let (ended, _) = run(
            &subject.handler("actions"),
            &vec![json!({"do": "count"}); 50],
            None,
        )
        .await;
        for (index, ended) in ended.iter().enumerate() {
            assert_eq!(ended.value(), &json!({"calls": index + 1}), "{}", subject.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_prints_is_its_log() {
    for subject in subjects() {
        let handler = subject.handler("actions");
        let printing = |text: &str| json!({"do": "print", "text": text});
        let payloads = [
            printing("first"),
            json!(1),
            printing("sécond 😀"),
            json!({"do": "child"}),
            json!(2),
        ];
        let (ended, recorder) = run(&handler, &payloads, None).await;
        assert_eq!(ended[2].value(), &json!("printed"), "{}", subject.name);
        assert_eq!(recorder.log(0), "first\nto stderr\n", "{}", subject.name);
        assert_eq!(recorder.log(1), "", "{}", subject.name);
        assert_eq!(recorder.log(2), "sécond 😀\nto stderr\n", "{}", subject.name);
        assert_eq!(
            recorder.log(3),
            "from the child\nand its stderr\n",
            "{}",
            subject.name
        );
        assert_eq!(recorder.log(4), "", "{}", subject.name);
    }
}

/// Prints 32 MB, or 1 GB with `GRISTMILL_TEST_SCALE=full`.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_is_cut_counted_and_held_nowhere() {
    let full = std::env::var("GRISTMILL_TEST_SCALE").is_ok_and(|scale| scale == "full");
    let bytes: u64 = if full { 1 << 30 } else { 32 << 20 };
    for subject in subjects() {
        let handler = subject.handler("actions");
        let (ended, recorder) = run(
            &handler,
            &[json!({"do": "flood", "bytes": bytes}), json!("after")],
            None,
        )
        .await;
        let grown_bytes = ended[0]
            .value()
            .as_i64()
            .expect("bytes that the process has grown by");
        assert!(
            grown_bytes < 100 << 20,
            "{}: grown by {grown_bytes} bytes",
            subject.name
        );
        let log = recorder.log(0);
        assert!(
            log.len() <= gristmill_model::limits::LOG_BYTES_MAX,
            "{}",
            subject.name
        );
        let last = log.lines().last().unwrap();
        let dropped: u64 = last
            .split(' ')
            .nth(1)
            .and_then(|number| number.parse().ok())
            .expect(last);
        assert_eq!(
            dropped + (log.len() - last.len() - 2) as u64,
            bytes,
            "{}",
            subject.name
        );
        assert_eq!(ended[1], Ended::Completed(json!("after")), "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_runs_wherever_types_are_erased() {
    for subject in warm_subjects() {
        if matches!(subject.name, "python" | "node") {
            continue;
        }
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/typed.ts");
        let script = subject.script_file(&path);
        let handler = gristmill_runtime::ScriptHandler::new(script, &Default::default()).unwrap();
        let (ended, _) = run(&handler, &[json!({"name": "a", "count": 3})], None).await;
        assert_eq!(ended[0], Ended::Completed(json!("a × 3")), "{}", subject.name);
    }
}
