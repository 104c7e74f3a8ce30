//! Ingestions that are interrupted, killed, or run out of disk.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use gristmill_test_tools::stand_in::StandIn;
use serde_json::json;

use crate::memory::knowledge::{answer, command, run, run_json};
use crate::workspace::{Ended, Workspace, send_signal};

/// The longest wait for answers to be stored.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service with one call that hangs until it is released.
struct Hanging {
    service: StandIn,
    /// Releases the call.
    go: Sender<()>,
    /// The call has begun.
    is_reached: Receiver<()>,
}

impl Hanging {
    /// The first call for this text hangs.
    async fn start(hangs_at: &'static str) -> Hanging {
        Hanging::start_where(move |text, before| text == hangs_at && before == 0).await
    }

    /// The call after `calls` others hangs, for whichever text it is.
    async fn start_after(calls: u32) -> Hanging {
        let begun = AtomicU32::new(0);
        Hanging::start_where(move |_, _| begun.fetch_add(1, Ordering::SeqCst) == calls).await
    }

    /// `hangs` is asked with the text of each call, and with the number of earlier calls for that text.
    async fn start_where(hangs: impl Fn(&str, u32) -> bool + Send + Sync + 'static) -> Hanging {
        let (go, gone) = channel::<()>();
        let (reached, is_reached) = channel();
        let gone = Mutex::new(gone);
        let service = StandIn::start(move |text, before| {
            if hangs(text, before) {
                // The test may not wait for it.
                let _ = reached.send(());
                let _ = tokio::task::block_in_place(|| gone.lock().expect("a lock").recv());
            }
            answer(text)
        })
        .await;
        Hanging {
            service,
            go,
            is_reached,
        }
    }

    /// `gristmill ingest` of `chat.jsonl` with this many concurrent calls.
    fn ingest<'a>(&'a self, concurrency: &'a str) -> Vec<&'a str> {
        let ingest = [
            "ingest",
            "chat.jsonl",
            "--into",
            "kb.db",
            "--concurrency",
            concurrency,
        ];
        [&ingest[..], &["--base-url", &self.service.base_url]].concat()
    }
}

/// A workspace whose `chat.jsonl` has this many messages: `Bee 0 hums.` and so on.
fn with_bees(count: usize) -> Workspace {
    let workspace = Workspace::new();
    let lines: String = (0..count)
        .map(|n| format!("{{\"text\":\"Bee {n} hums.\"}}\n"))
        .collect();
    workspace.write("chat.jsonl", &lines);
    workspace
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_interrupted_ingestion_keeps_what_it_paid_for() {
    let workspace = with_bees(40);
    let hanging = Hanging::start("Bee 30 hums.").await;
    let ingest = hanging.ingest("1");
    let child = command(&workspace, &ingest)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    hanging.is_reached.recv().expect("the call begins");
    let busy = run(&workspace, &ingest).error();
    assert!(
        busy.contains("another process is already ingesting into kb.db"),
        "{busy}"
    );
    send_signal(&child, "-INT");
    hanging.go.send(()).expect("the service waits");
    let ended = Ended::from(child.wait_with_output().expect("ends"));
    assert!(
        ended.stderr.contains("run the same command again"),
        "{}",
        ended.stderr
    );
    ended.expect(130);
    let told = run_json(&workspace, &[&ingest[..], &["--json"]].concat());
    assert_eq!(told["complete"], true);
    assert_eq!(
        run_json(&workspace, &["memory", "stats", "kb.db", "--json"])["messages"],
        40
    );
    for n in 0..=30 {
        assert_eq!(hanging.service.calls(&format!("Bee {n} hums.")), 1, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_second_ctrl_c_leaves_a_call_that_hangs() {
    let workspace = with_bees(10);
    let hanging = Hanging::start_after(5).await;
    let ingest = hanging.ingest("1");
    let mut child = command(&workspace, &ingest)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    hanging.is_reached.recv().expect("the call begins");
    // The answers before it are stored a moment after they have come.
    let stored = || run_json(&workspace, &["stats", "--store", "kb.jobs.db", "--json"]);
    let begun = Instant::now();
    while stored()["kinds"][0]["completed"].as_u64() < Some(5) {
        assert!(begun.elapsed() < PATIENCE, "{}", stored());
    }
    send_signal(&child, "-INT");
    let messages = BufReader::new(child.stderr.take().expect("its messages"));
    let mut messages = messages.lines().map_while(Result::ok);
    assert!(messages.any(|line| line.contains("press Ctrl-C again")));
    send_signal(&child, "-INT");
    assert_eq!(child.wait().expect("ends").code(), Some(130));
    hanging.go.send(()).expect("the service waits");
    assert_eq!(
        run_json(&workspace, &[&ingest[..], &["--json"]].concat())["complete"],
        true
    );
    let stats = run_json(&workspace, &["memory", "stats", "kb.db", "--json"]);
    assert_eq!(stats["messages"], 10);
    let calls: Vec<u32> = (0..10)
        .map(|n| hanging.service.calls(&format!("Bee {n} hums.")))
        .collect();
    assert_eq!(
        calls.iter().sum::<u32>(),
        11,
        "only the call that hung is repeated: {calls:?}"
    );
    assert!(calls.iter().all(|count| (1..=2).contains(count)), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_loses_no_extraction() {
    let workspace = with_bees(40);
    let hanging = Hanging::start("Bee 0 hums.").await;
    let ingest = hanging.ingest("4");
    let mut child = command(&workspace, &ingest)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    // The other calls have been paid for, and are on disk as jobs.
    let completed = ["jobs", "--store", "kb.jobs.db", "--state", "completed", "--json"];
    while run(&workspace, &completed).stdout.lines().count() < 39 {
        assert!(
            child.try_wait().expect("it can be asked").is_none(),
            "it has ended"
        );
    }
    child.kill().expect("dies");
    child.wait().expect("has died");
    hanging.go.send(()).expect("the service waits");
    assert_eq!(
        run_json(&workspace, &["memory", "stats", "kb.db", "--json"])["messages"],
        0
    );
    let told = run_json(&workspace, &[&ingest[..], &["--json"]].concat());
    assert_eq!((&told["messages"], &told["model_calls"]), (&json!(40), &json!(1)));
    for n in 1..40 {
        assert_eq!(hanging.service.calls(&format!("Bee {n} hums.")), 1, "{n}");
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    let workspace = Workspace::new();
    let lines: String = (0..5_000)
        .map(|n| format!("{{\"text\":\"Ada{n} King{n} saw the Drum{n} in Paris{n}.\"}}\n"))
        .collect();
    workspace.write("chat.jsonl", &lines);
    let program = env!("CARGO_BIN_EXE_gristmill");
    let limited = Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 1500; exec \"$0\" \"$@\"", program])
        .args([
            "ingest",
            "chat.jsonl",
            "--into",
            "kb.db",
            "--extractor",
            "local",
            "-q",
        ])
        .current_dir(workspace.path(""))
        .output()
        .expect("runs");
    let error = Ended::from(limited).error();
    assert!(
        error.contains("disk") && error.contains("run the same command again"),
        "{error}"
    );
    let ingest = [
        "ingest",
        "chat.jsonl",
        "--into",
        "kb.db",
        "--extractor",
        "local",
        "--json",
    ];
    assert_eq!(run_json(&workspace, &ingest)["complete"], true);
    assert_eq!(
        run_json(&workspace, &["memory", "stats", "kb.db", "--json"])["messages"],
        5_000
    );
}
