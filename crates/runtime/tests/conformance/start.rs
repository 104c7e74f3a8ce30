//! Faults of a script are reported before there is work.

use std::time::Duration;

use gristmill_runtime::{RuntimeError, RuntimeOptions, ScriptHandler};
use serde_json::json;

use crate::harness::{Changes, Ended, PATIENCE, Subject, run, warm_subjects};

/// Starts a script with this text, and returns the reason why it cannot run.
async fn refusal(subject: &Subject, python: &str, javascript: &str, options: &RuntimeOptions) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (name, text) = if subject.name == "python" {
        ("broken.py", python)
    } else {
        ("broken.mjs", javascript)
    };
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let handler = ScriptHandler::new(subject.script_file(&path), options).unwrap();
    let checked = tokio::time::timeout(PATIENCE, handler.check())
        .await
        .expect("no answer");
    let error = checked.expect_err("the script was accepted").to_string();
    assert!(error.contains(name), "{}: {error}", subject.name);
    // Work that comes all the same goes back without charge, and its worker ends with the same words.
    let changes = Changes::of(&handler);
    let (ended, _) = run(&handler, &[json!(1), json!(2)], None).await;
    assert_eq!(ended, [Ended::Returned, Ended::Returned], "{}", subject.name);
    assert_eq!(changes.failed(), error, "{}", subject.name);
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_cannot_be_imported_is_refused_with_its_error() {
    let options = RuntimeOptions::default();
    for subject in warm_subjects() {
        let syntax = refusal(
            &subject,
            "def main(payload)\n",
            "export function main(payload {",
            &options,
        )
        .await;
        assert!(syntax.contains("Error"), "{}: {syntax}", subject.name);
        let import = refusal(
            &subject,
            "import no_such_module\n",
            "import './no_such_module.js';",
            &options,
        )
        .await;
        assert!(import.contains("no_such_module"), "{}: {import}", subject.name);
        let raised = refusal(
            &subject,
            "raise ValueError('at import')\n",
            "throw new TypeError('at import');",
            &options,
        )
        .await;
        assert!(raised.contains("Error: at import"), "{}: {raised}", subject.name);
        let missing = refusal(&subject, "x = 1\n", "export const x = 1;", &options).await;
        assert!(
            missing.contains("no function main") && missing.contains("main(payload)"),
            "{}: {missing}",
            subject.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_dies_or_hangs_at_its_start_does_not_loop() {
    for subject in warm_subjects() {
        let options = RuntimeOptions::default();
        let died = refusal(
            &subject,
            "import os, sys\nos.write(2, b'the reason\\n')\nos._exit(9)\n",
            "import process from 'node:process'; import fs from 'node:fs'; fs.writeSync(2, 'the reason\\n'); process.exit(9);",
            &options,
        )
        .await;
        assert!(
            died.contains("exited with status 9") && died.contains("the reason"),
            "{}: {died}",
            subject.name
        );
        let quick = RuntimeOptions {
            start_ms_max: 1_500,
            ..RuntimeOptions::default()
        };
        let hung = refusal(&subject, "while True: pass\n", "for (;;);", &quick).await;
        assert!(
            hung.contains("the import did not end within 1500 ms"),
            "{}: {hung}",
            subject.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_script_is_accepted_and_commonjs_is_too() {
    for subject in warm_subjects() {
        subject.handler("actions").check().await.unwrap();
        if subject.name == "python" {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("common.cjs");
        std::fs::write(&path, "module.exports = { main: (payload) => payload + 1 };").unwrap();
        let handler = ScriptHandler::new(subject.script_file(&path), &RuntimeOptions::default()).unwrap();
        let (ended, _) = run(&handler, &[json!(1)], None).await;
        assert_eq!(ended[0].value(), &json!(2), "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interpreter_that_cannot_be_started_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.py");
    std::fs::write(&path, "def main(payload): return payload\n").unwrap();
    let fake = folder.path().join("python3");
    std::fs::write(
        &fake,
        "#!/bin/sh\n[ \"$1\" = --version ] && echo Python 3.11.0 && exit\nexec /nonexistent/python\n",
    )
    .unwrap();
    std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let options = gristmill_runtime::DetectOptions {
        interpreter: Some(fake),
        ..Default::default()
    };
    let script = gristmill_runtime::Script::detect(&path, &options).unwrap();
    let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
    let checked = tokio::time::timeout(Duration::from_secs(20), handler.check())
        .await
        .expect("no answer");
    let error = checked.unwrap_err();
    assert!(matches!(*error, RuntimeError::DiedAtStart { .. }), "{error}");
    assert!(error.to_string().contains("/nonexistent/python"), "{error}");
}
