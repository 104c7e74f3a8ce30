//! The scripts in `examples/` do what their comments say.

use std::path::{Path, PathBuf};

use gristmill_runtime::{DetectOptions, Runtime, Script, ScriptHandler};
use serde_json::{Value, json};

use crate::harness::{Ended, run, subjects, warm_subjects};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name)
}

async fn run_example(script: Script, payloads: &[Value]) -> Vec<Ended> {
    let handler = ScriptHandler::new(script, &Default::default()).unwrap();
    run(&handler, payloads, None).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn word_stats_counts_words() {
    for subject in subjects()
        .into_iter()
        .filter(|subject| subject.runtime == Runtime::Python)
    {
        let payloads = [
            json!({"text": "To be, or not to be"}),
            json!("Être"),
            json!(""),
            json!(7),
        ];
        let ended = run_example(subject.script_file(&example("word_stats.py")), &payloads).await;
        let expected = json!({
            "words": 6, "different": 4, "mean_length": 2.17, "longest": "not", "commonest": ["to", "be", "or"]
        });
        assert_eq!(ended[0].value(), &expected);
        assert_eq!(ended[1].value()["longest"], json!("être"));
        assert_eq!(ended[2].value()["words"], json!(0));
        assert!(ended[3].error().permanent, "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_titles_reads_a_page_and_heeds_a_busy_server() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let answer = std::thread::spawn(move || {
        use std::io::{Read, Write};
        for _ in 0..2 {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 1024];
            let bytes = stream.read(&mut request).unwrap();
            let busy = String::from_utf8_lossy(&request[..bytes]).starts_with("GET /busy");
            let response = if busy {
                "HTTP/1.0 429 Busy\r\nRetry-After: 7\r\n\r\n"
            } else {
                "HTTP/1.0 200 OK\r\n\r\n<title>Salt &amp; mill</title>"
            };
            stream.write_all(response.as_bytes()).unwrap();
        }
    });
    for subject in subjects()
        .into_iter()
        .filter(|subject| subject.runtime == Runtime::Python)
    {
        let script = subject.script_file(&example("fetch_titles.py"));
        let ended = run_example(script, &[json!(url), json!(format!("{url}busy"))]).await;
        assert_eq!(ended[0].value()["title"], json!("Salt & mill"));
        assert_eq!(ended[1].error().retry_after_ms, Some(7_000), "{ended:?}");
    }
    drop(answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn redact_takes_out_what_is_private_and_nothing_else() {
    for subject in warm_subjects()
        .into_iter()
        .filter(|subject| subject.runtime != Runtime::Python)
    {
        let text = "a.b@example.org paid DE89 3704 0044 0532 0130 00 with 4111 1111 1111 1111, order 4111 1111 1111 1112";
        let ended = run_example(
            subject.script_file(&example("redact.mjs")),
            &[json!({"text": text, "id": 5})],
        )
        .await;
        let redacted = "[email] paid [iban] with [card], order 4111 1111 1111 1112";
        let expected =
            json!({"redacted": {"text": redacted, "id": 5}, "found": {"email": 1, "iban": 1, "card": 1}});
        assert_eq!(ended[0].value(), &expected, "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invoice_total_adds_up_and_refuses() {
    for subject in warm_subjects() {
        if matches!(subject.name, "python" | "node") {
            continue;
        }
        let invoice = json!({"currency": "EUR", "lines": [
            {"quantity": 3, "unit_price": "9.99", "vat_percent": 19},
            {"quantity": 1, "unit_price": "0.5", "vat_percent": 7}
        ]});
        let wrong =
            json!({"currency": "EUR", "lines": [{"quantity": 1, "unit_price": "ten", "vat_percent": 19}]});
        let ended = run_example(
            subject.script_file(&example("invoice_total.ts")),
            &[invoice, wrong],
        )
        .await;
        let expected = json!({"currency": "EUR", "net": "30.47", "vat": "5.73", "gross": "36.20"});
        assert_eq!(ended[0].value(), &expected, "{}", subject.name);
        let error = ended[1].error();
        assert!(
            error.permanent && error.message.starts_with("line 1: \"ten\" is not an amount"),
            "{error:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checksum_reads_files_and_a_program_needs_no_script() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("with \"quotes\" and \\ spaces");
    std::fs::write(&path, "abc").unwrap();
    let script = Script::detect(&example("checksum.sh"), &DetectOptions::default()).unwrap();
    let ended = run_example(script, &[json!(path), json!("/nonexistent")]).await;
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(ended[0].value(), &json!({"sha256": sum, "bytes": 3}));
    assert!(
        ended[1].error().message.contains("cannot read /nonexistent"),
        "{ended:?}"
    );

    let argv = ["tr", "a-z", "A-Z"].map(Into::into).to_vec();
    let program = Script::program(argv, &DetectOptions::default()).unwrap();
    let ended = run_example(program, &[json!({"a": "b"}), json!("x y")]).await;
    assert_eq!(
        ended,
        [
            Ended::Completed(json!({"A": "B"})),
            Ended::Completed(json!("X Y"))
        ]
    );
}
