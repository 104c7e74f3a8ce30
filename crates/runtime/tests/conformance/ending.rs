//! A process that ends by itself is noticed, and a process without further jobs ends normally.

use std::path::Path;
use std::time::{Duration, Instant};

use gristmill_runtime::limits::{END_MS_MAX, SHUT_DOWN_MS_MAX};
use gristmill_runtime::{Runtime, RuntimeOptions, ScriptHandler};
use gristmill_worker::Handler;
use serde_json::{Value, json};

use crate::harness::{Ended, run, warm_subjects_of};

#[tokio::test(flavor = "multi_thread")]
async fn an_asynchronous_script_that_ends_its_process_crashes_and_the_others_run() {
    let text = "
export async function main(does) {
  await new Promise((resolve) => setTimeout(resolve, 1));
  if (does === 'throw') setTimeout(() => { throw new Error('nobody catches this'); }, 1);
  if (does === 'reject') Promise.reject(new Error('nor this'));
  if (does === 'exit') process.exit(4);
  if (typeof does === 'string') await new Promise(() => setInterval(() => {}, 1000));
  return does;
}";
    let payloads = [
        json!(0),
        json!("throw"),
        json!(2),
        json!("reject"),
        json!("exit"),
        json!(5),
    ];
    for subject in warm_subjects_of(false) {
        let (_folder, script) = subject.script_of("exits.mjs", text);
        let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
        handler.check().await.unwrap();
        let (ended, _) = run(&handler, &payloads, None).await;
        for (payload, ended) in payloads.iter().zip(&ended) {
            match payload {
                Value::String(_) => {
                    assert_eq!(ended.error().error_type, "crash", "{}: {payload}", subject.name)
                }
                value => assert_eq!(ended, &Ended::Completed(value.clone()), "{}", subject.name),
            }
        }
        assert!(
            ended[4].error().message.contains("status 4"),
            "{}: {:?}",
            subject.name,
            ended[4]
        );
    }
}

/// Node's exit waits for its threads, and one of them waits for a writer of the FIFO.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_says_that_it_exits_and_does_not_is_killed() {
    let text = "
import fs from 'node:fs';
export async function main(fifo) {
  if (fifo === null) return 'ran';
  fs.open(fifo, 'r', () => {});
  await new Promise((resolve) => setTimeout(resolve, 10));
  process.exit(4);
}";
    for subject in warm_subjects_of(false) {
        if subject.runtime != Runtime::Node {
            continue;
        }
        let (folder, script) = subject.script_of("exits.mjs", text);
        let fifo = folder.path().join("fifo");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
        handler.check().await.unwrap();
        let (ended, _) = run(&handler, &[json!(null), json!(fifo), json!(null)], None).await;
        assert_eq!(
            (ended[0].value(), ended[2].value()),
            (&json!("ran"), &json!("ran"))
        );
        let error = ended[1].error();
        assert_eq!(error.error_type, "crash");
        assert!(error.message.contains("said that it exits"), "{error:?}");
    }
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_python_script_wrote_is_in_its_files_and_its_exit_handlers_run() {
    let text = "
import atexit, gzip, os, threading, zipfile
here = os.path.dirname(__file__)
text = open(here + '/text', 'w')
packed = gzip.open(here + '/packed.gz', 'wt')
archive = zipfile.ZipFile(here + '/archive.zip', 'w')

def note(name):
    with open(here + '/' + name, 'w') as file:
        file.write('done')

class Closes:
    def __del__(self):
        note('freed')

class Cycle:
    def __init__(self):
        self.file = open(here + '/cycle', 'w')
        self.own = self

closes, cycle = Closes(), Cycle()
threading.Thread(target=lambda: (threading.main_thread().join(), note('thread'))).start()
atexit.register(note, 'handler')

def main(n):
    for file in (text, packed, cycle.file):
        file.write('%d\\n' % n)
    archive.writestr(str(n), 'text')
";
    let lines: String = (0..200).map(|n| format!("{n}\n")).collect();
    let payloads: Vec<Value> = (0..200).map(Value::from).collect();
    for subject in warm_subjects_of(true) {
        for (asynchronous, fork_server) in [(false, true), (false, false), (true, true)] {
            let text = if asynchronous {
                text.replace("def main", "async def main")
            } else {
                text.to_owned()
            };
            let (folder, script) = subject.script_of("files.py", &text);
            let options = RuntimeOptions {
                fork_server,
                ..RuntimeOptions::default()
            };
            let handler = ScriptHandler::new(script, &options).unwrap();
            run(&handler, &payloads, None).await;
            handler.shut_down().await;
            let folder = folder.path();
            assert_eq!(read(folder, "text"), lines);
            assert_eq!(read(folder, "cycle"), lines);
            for name in ["thread", "handler", "freed"] {
                assert_eq!(read(folder, name), "done", "{name} {fork_server}");
            }
            let unpacked = std::process::Command::new("zcat")
                .arg(folder.join("packed.gz"))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(unpacked.stdout).unwrap(), lines);
            // The directory of an archive is at its end.
            let archive = std::fs::read(folder.join("archive.zip")).unwrap();
            assert!(
                archive.windows(4).any(|bytes| bytes == b"PK\x05\x06"),
                "{fork_server}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_javascript_script_wrote_is_in_its_files_and_its_exit_handlers_run() {
    let text = "
import fs from 'node:fs';
const here = new URL('.', import.meta.url).pathname;
const stream = fs.createWriteStream(here + 'text');
process.on('beforeExit', () => fs.writeFileSync(here + 'before', 'done'));
process.on('exit', () => fs.writeFileSync(here + 'handler', 'done'));
export MAIN main(n) {
  stream.write('x'.repeat(1000) + n + '\\n');
  if (n === 199) setTimeout(() => stream.end('the last one\\n'), 50);
}";
    let payloads: Vec<Value> = (0..200).map(Value::from).collect();
    for subject in warm_subjects_of(false) {
        for main in ["function", "async function"] {
            let (folder, script) = subject.script_of("files.mjs", &text.replace("MAIN", main));
            let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
            handler.check().await.unwrap();
            run(&handler, &payloads, None).await;
            handler.shut_down().await;
            let written = read(folder.path(), "text");
            let name = format!("{} {main}", subject.name);
            assert_eq!(written.lines().count(), 201, "{name}");
            assert!(written.ends_with("the last one\n"), "{name}");
            for file in ["before", "handler"] {
                assert_eq!(read(folder.path(), file), "done", "{name}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_lasts_is_cut_short_and_the_rest_of_it_runs() {
    let python = "
import atexit, os, threading
text = open(os.path.dirname(__file__) + '/text', 'w')
threading.Thread(target=threading.Event().wait).start()
atexit.register(text.write, ' and the handler')

def main(n):
    text.write('written')
";
    let javascript = "
import fs from 'node:fs';
const here = new URL('.', import.meta.url).pathname;
process.on('exit', () => fs.writeFileSync(here + 'text', 'written and the handler'));
export async function main() { setInterval(() => {}, 1000); }
";
    for (is_python, name, text) in [(true, "lasts.py", python), (false, "lasts.mjs", javascript)] {
        for subject in warm_subjects_of(is_python) {
            let (folder, script) = subject.script_of(name, text);
            let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
            handler.check().await.unwrap();
            run(&handler, &[json!(1)], None).await;
            let began = Instant::now();
            handler.shut_down().await;
            assert!(
                began.elapsed() < Duration::from_millis(SHUT_DOWN_MS_MAX),
                "it was killed"
            );
            assert!(!is_python || began.elapsed() >= Duration::from_millis(END_MS_MAX));
            assert_eq!(
                read(folder.path(), "text"),
                "written and the handler",
                "{}",
                subject.name
            );
        }
    }
}
