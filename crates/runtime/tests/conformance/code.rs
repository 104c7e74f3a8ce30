//! Code that changes while its processes run. Old and new code do not mix silently.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use gristmill_runtime::{ProcessListener, Runtime, RuntimeOptions, ScriptHandler};
use serde_json::json;

use crate::harness::{Ended, PATIENCE, Subject, micro_batch, run_on, warm_subjects, warm_subjects_of};

/// A script that returns its own text and the text of a module beside it.
struct Edited {
    folder: tempfile::TempDir,
    is_python: bool,
}

impl Edited {
    fn new(subject: &Subject) -> Edited {
        let edited = Edited {
            folder: tempfile::tempdir().unwrap(),
            is_python: subject.runtime == Runtime::Python,
        };
        edited.write_module("one");
        edited.write("one");
        edited
    }

    fn path(&self) -> PathBuf {
        let name = if self.is_python { "edited.py" } else { "edited.mjs" };
        self.folder.path().join(name)
    }

    fn write(&self, text: &str) {
        let text = if self.is_python {
            format!(
                "import os, beside\ndef main(payload):\n    if payload == 'die': os._exit(3)\n    \
                 if payload == 'late': import late\n    \
                 return '{text} ' + beside.text\n"
            )
        } else {
            format!(
                "import process from 'node:process';\nimport {{ text }} from './beside.mjs';\n\
                 export function main(payload) {{ if (payload === 'die') process.exit(3); return '{text} ' + text; }}\n"
            )
        };
        std::fs::write(self.path(), text).unwrap();
    }

    fn write_module(&self, text: &str) {
        let (name, text) = if self.is_python {
            ("beside.py", format!("text = '{text}'\n"))
        } else {
            ("beside.mjs", format!("export const text = '{text}';\n"))
        };
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }
}

struct Started {
    handler: ScriptHandler,
    told: mpsc::Receiver<String>,
}

impl Started {
    async fn new(subject: &Subject, script: &Edited, reload: bool) -> Started {
        let (sender, told) = mpsc::channel();
        let options = RuntimeOptions {
            processes: 2,
            reload,
            listener: ProcessListener::new(move |words| drop(sender.send(words.to_owned()))),
            ..RuntimeOptions::default()
        };
        let handler = ScriptHandler::new(subject.script_file(&script.path()), &options).unwrap();
        handler.check().await.unwrap();
        let started = Started { handler, told };
        for runner in [0, 1] {
            started.gives(runner, "one one").await;
        }
        started
    }

    async fn gives(&self, runner: usize, value: &str) {
        let (ended, _) = run_on(&self.handler, runner, micro_batch(&[json!(1)], None)).await;
        assert_eq!(ended, [Ended::Completed(value.into())], "runner {runner}");
    }

    fn told(&self) -> String {
        self.told.recv_timeout(PATIENCE).expect("nothing was told")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_that_has_to_be_replaced_brings_the_new_code_to_all() {
    for subject in warm_subjects() {
        let script = Edited::new(&subject);
        let started = Started::new(&subject, &script, false).await;
        script.write("two");
        for runner in [0, 1] {
            started.gives(runner, "one one").await;
        }
        let work = micro_batch(&[json!("die"), json!(1)], None);
        let (ended, _) = run_on(&started.handler, 1, work).await;
        assert_eq!(ended[1], Ended::Completed("two one".into()), "{}", subject.name);
        let told = started.told();
        assert!(
            told.contains("has changed since the processes of edited."),
            "{}: {told}",
            subject.name
        );
        started.gives(0, "two one").await;
        assert_eq!(started.told.try_recv().ok(), None, "it is told once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_reload_all_processes_are_replaced_at_a_change() {
    for subject in warm_subjects() {
        let script = Edited::new(&subject);
        let started = Started::new(&subject, &script, true).await;
        script.write("two");
        let told = started.told();
        assert!(told.contains("has changed since"), "{}: {told}", subject.name);
        for runner in [0, 1] {
            started.gives(runner, "two one").await;
        }
        // Unusable code replaces nothing.
        std::fs::write(script.path(), "this is no code (").unwrap();
        let told = started.told();
        // Bun says what it expected.
        let says_why = ["SyntaxError", "Expected \";\" but found"]
            .iter()
            .any(|why| told.contains(why));
        assert!(
            told.contains("cannot be loaded") && says_why,
            "{}: {told}",
            subject.name
        );
        for runner in [0, 1] {
            started.gives(runner, "two one").await;
        }
        script.write("two");
        script.write_module("three");
        let told = started.told();
        assert!(told.contains("/beside."), "{}: {told}", subject.name);
        for runner in [0, 1] {
            started.gives(runner, "two three").await;
        }
    }
}

/// The time that a file is left at rest after an edit: several looks of the watcher.
const REST: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_a_job_imports_is_watched_from_then_on() {
    let subject = warm_subjects_of(true).remove(0);
    let script = Edited::new(&subject);
    let started = Started::new(&subject, &script, true).await;
    let late = script.folder.path().join("late.py");
    let begun = std::time::Instant::now();
    // The contents of the file when its import is noticed are not a change. A later edit is, once the file is at rest.
    for edits in 0.. {
        std::fs::write(&late, format!("text = {edits}\n")).unwrap();
        let work = micro_batch(&[json!("late")], None);
        run_on(&started.handler, 0, work).await;
        match started.told.recv_timeout(REST) {
            Ok(told) => return assert!(told.contains("/late.py has changed since"), "{told}"),
            Err(_) => assert!(begun.elapsed() < PATIENCE, "nothing was told"),
        }
    }
}
