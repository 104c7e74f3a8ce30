//! Asynchronous jobs of one process do not disturb each other.

use gristmill_runtime::{RuntimeOptions, ScriptHandler};
use serde_json::{Value, json};

use crate::harness::{Ended, Subject, run, warm_subjects_of};

async fn handler(subject: &Subject, python: &str, javascript: &str) -> (tempfile::TempDir, ScriptHandler) {
    let is_python = subject.name == "python";
    let (name, text) = if is_python {
        ("script.py", python)
    } else {
        ("script.mjs", javascript)
    };
    let (folder, script) = subject.script_of(name, text);
    let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
    handler.check().await.unwrap();
    (folder, handler)
}

fn subjects() -> impl Iterator<Item = Subject> {
    warm_subjects_of(true).into_iter().chain(warm_subjects_of(false))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_sets_in_its_context_is_seen_by_no_other_job() {
    let python = "
import asyncio, contextvars
variable = contextvars.ContextVar('variable', default=None)
async def main(n):
    before = variable.get()
    variable.set(n)
    if n % 2:
        await asyncio.sleep(0.001)
    return [before, variable.get()]
";
    let javascript = "
import { AsyncLocalStorage } from 'node:async_hooks';
const storage = new AsyncLocalStorage();
export async function main(n) {
  const before = storage.getStore() ?? null;
  storage.enterWith(n);
  if (n % 2) await new Promise((resolve) => setTimeout(resolve, 1));
  return [before, storage.getStore()];
}";
    let payloads: Vec<Value> = (0..200).map(Value::from).collect();
    for subject in subjects() {
        let (_folder, handler) = handler(&subject, python, javascript).await;
        let (ended, _) = run(&handler, &payloads, None).await;
        for (n, ended) in ended.iter().enumerate() {
            assert_eq!(ended, &Ended::Completed(json!([null, n])), "{}", subject.name);
        }
    }
}

const TIMEOUT_MS: u64 = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_blocks_the_event_loop_is_charged_alone() {
    let python = "
import asyncio, time
async def main(payload):
    await asyncio.sleep(0.1)
    if type(payload) is str:
        # In its own task, or in one that it started.
        if payload == 'task':
            await asyncio.ensure_future(block())
        await block()
    await asyncio.sleep(0.2)
    return payload
async def block():
    time.sleep(1000)
";
    let javascript = "
export async function main(payload) {
  if (payload !== 'at once') await new Promise((resolve) => setTimeout(resolve, 100));
  if (typeof payload === 'string') for (;;);
  await new Promise((resolve) => setTimeout(resolve, 200));
  return payload;
}";
    for subject in subjects() {
        for blocks in ["at once", "task"] {
            // The first jobs begin, and so are overdue, before the one that blocks.
            let payloads = [json!(0), json!(1), json!(blocks), json!(3), json!(4)];
            let (_folder, handler) = handler(&subject, python, javascript).await;
            let (ended, _) = run(&handler, &payloads, Some(TIMEOUT_MS)).await;
            for (payload, ended) in payloads.iter().zip(&ended) {
                let name = format!("{} {blocks}: {ended:?}", subject.name);
                match payload {
                    Value::String(_) => assert_eq!(ended.error().error_type, "timeout", "{name}"),
                    value => assert_eq!(ended, &Ended::Completed(value.clone()), "{name}"),
                }
            }
        }
    }
}

/// The delay is longer than the timeout, but not so long that the process is killed.
#[tokio::test(flavor = "multi_thread")]
async fn time_in_which_the_event_loop_does_not_turn_is_not_charged_to_those_who_wait() {
    let python = "
import asyncio, time
async def main(payload):
    if payload == 'block':
        time.sleep(1.4)
        return payload
    await asyncio.sleep(0.5)
    await asyncio.sleep(0.1)
    return payload
";
    let javascript = "
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export async function main(payload) {
  if (payload === 'block') {
    const end = Date.now() + 1400;
    while (Date.now() < end);
    return payload;
  }
  await sleep(500);
  await sleep(100);
  return payload;
}";
    let payloads = [json!(0), json!(1), json!("block"), json!(3)];
    for subject in subjects() {
        let (_folder, handler) = handler(&subject, python, javascript).await;
        let (ended, _) = run(&handler, &payloads, Some(TIMEOUT_MS)).await;
        for place in [0, 1, 3] {
            assert_eq!(
                ended[place],
                Ended::Completed(payloads[place].clone()),
                "{}",
                subject.name
            );
        }
    }
}

/// A job that continues after its cancellation delays no other job.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_does_not_let_itself_be_cancelled_is_charged_alone() {
    let python = "
import asyncio
async def main(payload):
    while payload == 'stay':
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass
    await asyncio.sleep(0.2)
    return payload
";
    let payloads = [json!("stay"), json!(1), json!(2)];
    for subject in warm_subjects_of(true) {
        let (_folder, handler) = handler(&subject, python, "").await;
        let (ended, _) = run(&handler, &payloads, Some(TIMEOUT_MS)).await;
        assert_eq!(ended[0].error().error_type, "timeout");
        assert_eq!((ended[1].value(), ended[2].value()), (&payloads[1], &payloads[2]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_error_says_of_retries_is_found_in_groups_of_errors() {
    let python = "
class Group(Exception):
    pass
# As the package of that name defines it where Python has none.
BaseExceptionGroup = type('BaseExceptionGroup', (Exception,), {})
class ExceptionGroup(BaseExceptionGroup):
    def __init__(self, message, exceptions):
        super().__init__(message)
        self.exceptions = tuple(exceptions)
builtin = __builtins__ if type(__builtins__) is dict else vars(__builtins__)
class Hopeless(Exception):
    permanent = True
class Busy(Exception):
    def __init__(self, seconds):
        self.retry_after = seconds
async def main(payload):
    group = builtin.get('ExceptionGroup', ExceptionGroup) if payload[0] == 'own' else ExceptionGroup
    errors = {'permanent': [ValueError(), Hopeless()], 'busy': [Busy(3), Busy(7.5), ValueError()], 'plain': [ValueError()]}
    raise group('outer', [group('inner', errors[payload[1]]), KeyError()])
";
    let javascript = "
const having = (properties) => Object.assign(new Error('inner'), properties);
const errors = {
  permanent: [new Error(), having({ permanent: true })],
  busy: [having({ retryAfter: 3 }), having({ retry_after: 7.5 })],
  plain: [new Error()],
};
export async function main(payload) {
  throw new AggregateError([new AggregateError(errors[payload[1]]), new Error()], 'outer');
}";
    for subject in subjects() {
        for of in ["own", "package"] {
            let payloads = ["permanent", "busy", "plain"].map(|kind| json!([of, kind]));
            let (_folder, handler) = handler(&subject, python, javascript).await;
            let (ended, _) = run(&handler, &payloads, None).await;
            let said: Vec<_> = ended
                .iter()
                .map(|ended| (ended.error().permanent, ended.error().retry_after_ms))
                .collect();
            let expected = [(true, None), (false, Some(7_500)), (false, None)];
            assert_eq!(said, expected, "{} {of}", subject.name);
        }
    }
}
