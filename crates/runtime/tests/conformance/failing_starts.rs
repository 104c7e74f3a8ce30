//! Starts of processes that fail while jobs run. No job is charged, and all run when a process can start again.

use std::path::PathBuf;
use std::sync::mpsc;

use gristmill_runtime::{DetectOptions, ProcessListener, Runtime, RuntimeOptions, Script, ScriptHandler};
use gristmill_worker::RunnerChange;
use serde_json::{Value, json};

use crate::harness::{Changes, Ended, PATIENCE, Subject, micro_batch, run, run_on, warm_subjects};

/// A script whose import fails in the way of `import` while the file `broken` exists beside it.
struct Breakable {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Breakable {
    fn new(subject: &Subject, python: &str, javascript: &str) -> Breakable {
        let folder = tempfile::tempdir().unwrap();
        let (name, text) = match subject.runtime {
            Runtime::Python => (
                "breakable.py",
                format!(
                    "import os\n\
                     if os.path.exists(os.path.dirname(os.path.abspath(__file__)) + '/broken'):\n    {python}\n\
                     def main(payload):\n    if payload == 'die': os._exit(3)\n    return payload\n"
                ),
            ),
            _ => (
                "breakable.mjs",
                format!(
                    "import fs from 'node:fs'; import process from 'node:process';\n\
                     if (fs.existsSync(new URL('./broken', import.meta.url).pathname)) {{ {javascript} }}\n\
                     export function main(payload) {{ if (payload === 'die') process.exit(3); return payload; }}\n"
                ),
            ),
        };
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Breakable { folder, path }
    }

    fn breaks(&self) {
        std::fs::write(self.folder.path().join("broken"), "").unwrap();
    }

    fn mend(&self) {
        std::fs::remove_file(self.folder.path().join("broken")).unwrap();
    }
}

fn told(options: &mut RuntimeOptions) -> mpsc::Receiver<String> {
    let (sender, told) = mpsc::channel();
    options.listener = ProcessListener::new(move |words| drop(sender.send(words.to_owned())));
    told
}

fn completed(value: impl Into<Value>) -> Ended {
    Ended::Completed(value.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_cannot_be_loaded_any_more_charges_nobody_and_runs_when_it_can() {
    let raises = (
        "raise ImportError('not deployed yet')",
        "throw new Error('not deployed yet')",
    );
    let dies = ("os._exit(9)", "process.exit(9)");
    for subject in warm_subjects() {
        for (python, javascript) in [raises, dies] {
            let script = Breakable::new(&subject, python, javascript);
            let mut options = RuntimeOptions::default();
            let told = told(&mut options);
            let handler = ScriptHandler::new(subject.script_file(&script.path), &options).unwrap();
            handler.check().await.unwrap();
            let changes = Changes::of(&handler);
            script.breaks();
            let (ended, _) = run(&handler, &[json!(1), json!("die"), json!(2)], None).await;
            // The outcome of the first job may have been lost with its process.
            assert!(
                ended[0] == completed(1) || ended[0] == Ended::Returned,
                "{}: {ended:?}",
                subject.name
            );
            assert_eq!(ended[1..], [Ended::Returned, Ended::Returned], "{}", subject.name);
            assert_eq!(changes.next(), RunnerChange::Out(0));
            // Jobs that come meanwhile go back at once.
            let (ended, _) = run(&handler, &[json!(3)], None).await;
            assert_eq!(ended, [Ended::Returned], "{}", subject.name);
            let reason = told.recv_timeout(PATIENCE).unwrap();
            assert!(
                reason.contains("a process of breakable.")
                    && reason.contains("no job is charged")
                    && (reason.contains("not deployed yet") || reason.contains("exited with status 9")),
                "{}: {reason}",
                subject.name
            );
            script.mend();
            assert_eq!(changes.next(), RunnerChange::Back(0));
            let again = told.recv_timeout(PATIENCE).unwrap();
            assert!(again.contains("start again, after"), "{again}");
            let (ended, _) = run(&handler, &[json!("die"), json!(2)], None).await;
            assert_eq!(ended[0].error().error_type, "crash", "{}", subject.name);
            assert_eq!(ended[1], completed(2), "{}", subject.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_process_that_cannot_start_leaves_the_others_at_work() {
    for subject in warm_subjects() {
        let script = Breakable::new(
            &subject,
            "os.kill(os.getpid(), 9)",
            "process.kill(process.pid, 'SIGKILL')",
        );
        let mut options = RuntimeOptions {
            processes: 3,
            ..RuntimeOptions::default()
        };
        let told = told(&mut options);
        let handler = ScriptHandler::new(subject.script_file(&script.path), &options).unwrap();
        handler.check().await.unwrap();
        let changes = Changes::of(&handler);
        script.breaks();
        let work = || micro_batch(&[json!(1), json!(2)], None);
        let (ended, _) = run_on(&handler, 1, work()).await;
        assert_eq!(ended, [Ended::Returned, Ended::Returned], "{}", subject.name);
        // The third job waits with the second, and the first one runs.
        let mut out = [changes.next(), changes.next()];
        out.sort_by_key(|change| format!("{change:?}"));
        assert_eq!(out, [RunnerChange::Out(1), RunnerChange::Out(2)]);
        let (ended, _) = run_on(&handler, 0, work()).await;
        assert_eq!(ended, [completed(1), completed(2)], "{}", subject.name);
        let reason = told.recv_timeout(PATIENCE).unwrap();
        assert!(reason.contains("1 other goes on"), "{}: {reason}", subject.name);
        script.mend();
        let mut back = [changes.next(), changes.next()];
        back.sort_by_key(|change| format!("{change:?}"));
        assert_eq!(back, [RunnerChange::Back(1), RunnerChange::Back(2)]);
        for runner in [1, 2] {
            let (ended, _) = run_on(&handler, runner, work()).await;
            assert_eq!(ended, [completed(1), completed(2)], "{}", subject.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_ends_by_itself_gives_up_where_no_process_is_left() {
    for subject in warm_subjects() {
        let script = Breakable::new(&subject, "raise ImportError('gone')", "throw new Error('gone')");
        let options = RuntimeOptions {
            start_patience_ms: Some(1),
            ..RuntimeOptions::default()
        };
        let handler = ScriptHandler::new(subject.script_file(&script.path), &options).unwrap();
        handler.check().await.unwrap();
        let changes = Changes::of(&handler);
        script.breaks();
        // If the job was not seen to run, it must run alone, and goes back.
        run(&handler, &[json!("die")], None).await;
        let (ended, _) = run(&handler, &[json!(1)], None).await;
        assert_eq!(ended, [Ended::Returned], "{}", subject.name);
        let reason = changes.failed();
        assert!(
            reason.contains("no process of breakable.") && reason.contains("gone"),
            "{}: {reason}",
            subject.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_before_its_first_job_begins_charges_nobody() {
    for subject in warm_subjects()
        .iter()
        .filter(|subject| subject.runtime == Runtime::Python)
    {
        // Simulates a system that allows the user no further thread.
        let script = Breakable::new(
            subject,
            "import threading; start = threading.Thread.start; \
             threading.Thread.start = lambda t: os._exit(7) if 'job' in t.name else start(t)",
            "",
        );
        let mut options = RuntimeOptions {
            threads: 4,
            ..RuntimeOptions::default()
        };
        let told = told(&mut options);
        let handler = ScriptHandler::new(subject.script_file(&script.path), &options).unwrap();
        handler.check().await.unwrap();
        let changes = Changes::of(&handler);
        script.breaks();
        // The first process still works. A job ends it, and no further process begins a job.
        let (ended, _) = run(&handler, &[json!("die")], None).await;
        assert_eq!(ended[0].error().error_type, "crash");
        let (ended, _) = run(&handler, &[json!(1)], None).await;
        assert_eq!(ended, [Ended::Returned]);
        let reason = told.recv_timeout(PATIENCE).unwrap();
        assert!(
            reason.contains("exited with status 7 before its first job began"),
            "{reason}"
        );
        assert_eq!(changes.next(), RunnerChange::Out(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_be_started_charges_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let write = || {
        std::fs::write(&path, "#!/bin/sh\ncat\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    write();
    let script = || Script::program(vec![path.clone().into()], &DetectOptions::default()).unwrap();
    let mut options = RuntimeOptions::default();
    let told = told(&mut options);
    let handler = ScriptHandler::new(script(), &options).unwrap();
    handler.check().await.unwrap();
    let changes = Changes::of(&handler);
    let (ended, _) = run(&handler, &[json!(1)], None).await;
    assert_eq!(ended, [completed(1)]);
    std::fs::remove_file(&path).unwrap();
    let (ended, _) = run(&handler, &[json!(2), json!(3)], None).await;
    assert_eq!(ended, [Ended::Returned, Ended::Returned]);
    assert_eq!(changes.next(), RunnerChange::Out(0));
    let reason = told.recv_timeout(PATIENCE).unwrap();
    assert!(reason.contains("No such file"), "{reason}");
    write();
    assert_eq!(changes.next(), RunnerChange::Back(0));
    let (ended, _) = run(&handler, &[json!(2), json!(3)], None).await;
    assert_eq!(ended, [completed(2), completed(3)]);
    // A program that could never start ends its worker.
    let script = script();
    std::fs::remove_file(&path).unwrap();
    let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
    let changes = Changes::of(&handler);
    let (ended, _) = run(&handler, &[json!(1)], None).await;
    assert_eq!(ended, [Ended::Returned]);
    assert!(changes.failed().contains("cannot start"));
}
