//! Jobs that fork, or start processes of their own language. A child must not act as the process that runs jobs.

use gristmill_runtime::{RuntimeOptions, ScriptHandler};
use gristmill_worker::Handler;
use serde_json::{Value, json};

use crate::harness::{run, warm_subjects_of};

/// A child that raises, exits, cannot start a program, or returns.
const FORKS: &str = "
import os, sys

def work(n):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.write(writer, str(n * 10).encode())
        if n % 4 == 0:
            raise ValueError('in the child')
        if n % 4 == 1:
            sys.exit(3)
        if n % 4 == 2:
            os.execvp('/nonexistent/program', ['program'])
        return 'from the child'
    os.close(writer)
    value = int(os.read(reader, 100))
    os.close(reader)
    status = os.waitpid(pid, 0)[1]
    return [n, value, os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1]
";

const JOBS: u32 = 200;

/// Runs this many jobs, and compares each value with the value in its payload.
async fn check(name: &str, handler: &ScriptHandler, jobs: u32, expected: impl Fn(u32) -> Value) {
    let payloads: Vec<Value> = (0..jobs).map(Value::from).collect();
    let (ended, _) = run(handler, &payloads, None).await;
    for (n, ended) in (0..jobs).zip(ended) {
        assert_eq!(ended.value(), &expected(n), "{name}: job {n}");
    }
    handler.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forked_child_ends_with_its_own_status_and_answers_for_no_job() {
    for subject in warm_subjects_of(true) {
        for (main, threads, fork_server) in [
            ("def main(n):\n    return work(n)\n", 1, true),
            ("def main(n):\n    return work(n)\n", 1, false),
            ("def main(n):\n    return work(n)\n", 4, true),
            ("async def main(n):\n    return work(n)\n", 1, true),
        ] {
            let (_folder, script) = subject.script_of("forks.py", &format!("{FORKS}\n{main}"));
            let options = RuntimeOptions {
                threads,
                fork_server,
                ..RuntimeOptions::default()
            };
            let handler = ScriptHandler::new(script, &options).unwrap();
            handler.check().await.unwrap();
            let status = |n: u32| [1, 3, 1, 0][n as usize % 4];
            let name = format!("{main:?} {threads} {fork_server}");
            check(&name, &handler, JOBS, |n| json!([n, n * 10, status(n)])).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_forked_child_raises_is_in_the_log_of_its_job() {
    for subject in warm_subjects_of(true) {
        let main = "def main(n):\n    return work(n)\n";
        let (_folder, script) = subject.script_of("forks.py", &format!("{FORKS}\n{main}"));
        let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
        let (_, recorder) = run(&handler, &[json!(0), json!(3)], None).await;
        let raised = recorder.log(0);
        assert!(
            raised.contains("ValueError: in the child") && !raised.contains("<gristmill>"),
            "{raised}"
        );
        assert!(
            recorder.log(1).contains("its value is dropped"),
            "{}",
            recorder.log(1)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_was_forked_past_python_is_ended() {
    let text = "
import ctypes, os
libc = ctypes.PyDLL(None)

def main(n):
    pid = libc.fork()
    if pid == 0:
        return 'from the child'
    return [n, os.waitpid(pid, 0)[1] != 0]
";
    for subject in warm_subjects_of(true) {
        let (_folder, script) = subject.script_of("forks.py", text);
        let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
        check("forked past Python", &handler, 20, |n| json!([n, true])).await;
    }
}

/// The processes of multiprocessing find the functions of a script, even if the script's name is not an identifier.
#[tokio::test(flavor = "multi_thread")]
async fn multiprocessing_works_by_all_its_methods() {
    let text = "
import multiprocessing, sys

def square(n):
    return n * n

def child(n, queue):
    if n % 3 == 0:
        raise ValueError('in the child')
    if n % 3 == 1:
        sys.exit(4)
    queue.put(n)

def main(n):
    context = multiprocessing.get_context(('fork', 'spawn', 'forkserver')[n // 3])
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(n, queue))
    process.start()
    process.join()
    with context.Pool(1) as pool:
        return [n, process.exitcode, pool.map(square, [n, n + 1])]
";
    for subject in warm_subjects_of(true) {
        for name in ["forks.py", "my-forks.py"] {
            let (_folder, script) = subject.script_of(name, text);
            let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
            let code = |n: u32| [1, 4, 0][n as usize % 3];
            let expected = |n: u32| json!([n, code(n), [n * n, (n + 1) * (n + 1)]]);
            check(name, &handler, 9, expected).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_processes_and_clusters_of_javascript_have_nothing_of_ours() {
    let text = "
const { fork } = require('node:child_process');
const cluster = require('node:cluster');
if (process.send) {
  process.on('message', (n) => (n === null ? process.exit(3) : process.send(n * 10)));
}
const ask = async (child, n) => {
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const said = new Promise((resolve) => child.once('message', resolve));
  child.send(n);
  const first = await Promise.race([said, ended.then((code) => `exited with ${code}`)]);
  child.send(null);
  return [first, await ended];
};
module.exports.main = async (n) => {
  if (n % 2) return [n, ...await ask(fork(__filename, [], { stdio: 'ignore' }), n)];
  const worker = cluster.fork();
  await new Promise((resolve) => worker.once('online', resolve));
  return [n, ...await ask(worker, n)];
};
";
    for subject in warm_subjects_of(false) {
        let (_folder, script) = subject.script_of("forks.cjs", text);
        let options = RuntimeOptions {
            concurrency: 4,
            ..RuntimeOptions::default()
        };
        let handler = ScriptHandler::new(script, &options).unwrap();
        handler.check().await.unwrap();
        check(subject.name, &handler, 8, |n| json!([n, n * 10, 3])).await;
    }
}
