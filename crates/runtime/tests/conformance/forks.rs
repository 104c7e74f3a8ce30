//! Python processes are forked from a prepared interpreter, and a script cannot tell.

use std::path::Path;
use std::sync::Arc;

use gristmill_runtime::{Runtime, RuntimeOptions, ScriptHandler};
use gristmill_worker::Handler;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::harness::{Ended, Gate, PATIENCE, Recorder, Subject, micro_batch, run, warm_subjects};

fn python() -> Option<Subject> {
    warm_subjects()
        .into_iter()
        .find(|subject| subject.runtime == Runtime::Python)
}

fn handler(subject: &Subject, script: &Path, fork_server: bool) -> ScriptHandler {
    let options = RuntimeOptions {
        processes: 2,
        fork_server,
        ..RuntimeOptions::default()
    };
    ScriptHandler::new(subject.script_file(script), &options).unwrap()
}

fn script(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.py");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// Runs one job in a runner.
async fn run_in(handler: &ScriptHandler, runner: usize, payload: Value) -> Ended {
    let recorder = Recorder::default();
    handler
        .run(runner, micro_batch(&[payload], None), &recorder)
        .await;
    recorder.ended().remove(&0).expect("an answer")
}

fn pid_of(value: &Value) -> Pid {
    Pid::from_raw(i32::try_from(value.as_i64().unwrap()).unwrap()).unwrap()
}

const STATE: &str = "
import os, signal, sys, threading

def main(payload):
    return {
        'environment': dict(os.environ), 'folder': os.getcwd(), 'arguments': sys.argv, 'path': sys.path,
        'name': __name__, 'file': __file__, 'stdin': os.readlink('/proc/self/fd/0'), 'umask': os.umask(0o22),
        'signals': [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        'is_main': threading.current_thread() is threading.main_thread(),
        'threads': sorted(thread.name for thread in threading.enumerate()),
        'leads_group': os.getpgid(0) == os.getpid(),
        'files': len(os.listdir('/proc/self/fd')),
    }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_forked_process_has_the_same_surroundings() {
    let Some(subject) = python() else { return };
    let (_folder, path) = script(STATE);
    let mut seen = Vec::new();
    for fork_server in [false, true] {
        let handler = handler(&subject, &path, fork_server);
        seen.push(run_in(&handler, 1, json!(1)).await);
    }
    assert_eq!(seen[0].value(), seen[1].value());
}

const PROCESS: &str = "
import os, random, signal

def main(payload):
    if payload == 'die':
        os.kill(os.getpid(), signal.SIGKILL)
    if type(payload) is dict:
        with open(payload['fifo']) as fifo:
            fifo.read()
    return [os.getpid(), os.getppid(), random.random()]
";

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_one_parent_draw_their_own_random_numbers_and_die_alone() {
    let Some(subject) = python() else { return };
    let (_folder, path) = script(PROCESS);
    let handler = handler(&subject, &path, true);
    let [first, second] = [
        run_in(&handler, 0, json!(0)).await,
        run_in(&handler, 1, json!(0)).await,
    ];
    let [first, second] = [first.value(), second.value()];
    assert_eq!(first[1], second[1], "one parent");
    assert_ne!(first[1], json!(std::process::id()), "the fork server");
    assert_ne!(first[2], second[2], "random numbers");
    let died = run_in(&handler, 0, json!("die")).await;
    assert!(died.error().message.contains("killed by signal 9"), "{died:?}");
    let (after, beside) = (
        run_in(&handler, 0, json!(0)).await,
        run_in(&handler, 1, json!(0)).await,
    );
    assert_eq!(after.value()[1], first[1]);
    assert_eq!(beside.value()[0], second[0], "the neighbour lives");
    let left = format!("/proc/{}", first[0]);
    assert!(!Path::new(&left).exists(), "a zombie is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_the_fork_server_harms_no_job() {
    let Some(subject) = python() else { return };
    let (_folder, path) = script(PROCESS);
    let handler = Arc::new(handler(&subject, &path, true));
    let before = run_in(&handler, 0, json!(0)).await;
    let gate = Gate::new();
    let (running, payload) = (Arc::clone(&handler), gate.block());
    let running = tokio::spawn(async move { run_in(&running, 0, payload).await });
    rustix::process::kill_process(pid_of(&before.value()[1]), Signal::KILL).unwrap();
    // Another process starts by itself.
    let other = run_in(&handler, 1, json!(0)).await;
    assert_eq!(other.value()[1], json!(std::process::id()));
    gate.open("go").await;
    let went_on = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    assert_eq!(went_on.value()[0], before.value()[0]);
    // The process that replaces it does, too.
    let died = run_in(&handler, 0, json!("die")).await;
    assert_eq!(died.error().error_type, "crash", "{died:?}");
    let after = run_in(&handler, 0, json!(0)).await;
    assert_eq!(after.value()[1], json!(std::process::id()));
    handler.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_whose_import_starts_a_thread_has_it_in_each_process() {
    let Some(subject) = python() else { return };
    let (_folder, path) = script(
        "import queue, threading\nasked, said = queue.Queue(), queue.Queue()\n\
         def answer():\n    while True:\n        said.put(asked.get() + 1)\n\
         threading.Thread(target=answer, daemon=True).start()\n\
         def main(payload):\n    asked.put(payload)\n    return said.get()\n",
    );
    let handler = handler(&subject, &path, true);
    for runner in [0, 1] {
        assert_eq!(run_in(&handler, runner, json!(1)).await.value(), &json!(2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_beside_the_script_comes_before_a_standard_one() {
    let Some(subject) = python() else { return };
    let (folder, path) = script("import colorsys\ndef main(payload):\n    return colorsys.OWNER\n");
    std::fs::write(folder.path().join("colorsys.py"), "OWNER = 'the script'\n").unwrap();
    let handler = handler(&subject, &path, true);
    assert_eq!(run_in(&handler, 1, json!(1)).await.value(), &json!("the script"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_handlers_run() {
    let Some(subject) = python() else { return };
    let (folder, path) = script(
        "import atexit, os, threading\npath = os.path.dirname(__file__) + '/exit'\n\
         def note(text):\n    with open(path, 'a') as file:\n        file.write(text)\n\
         def wait():\n    threading.main_thread().join()\n    note('thread')\n\
         threading.Thread(target=wait).start()\natexit.register(note, ' handler')\n\
         def main(payload):\n    pass\n",
    );
    for fork_server in [false, true] {
        let handler = handler(&subject, &path, fork_server);
        let (ended, _) = run(&handler, &[json!(1)], None).await;
        assert_eq!(ended[0].value(), &Value::Null);
        handler.shut_down().await;
        let path = folder.path().join("exit");
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "thread handler",
            "{fork_server}"
        );
        std::fs::remove_file(path).unwrap();
    }
}
