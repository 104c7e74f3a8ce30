//! Flows of scripts: the same memo in each language, and what their errors say.

use std::path::Path;
use std::process::Command;

use gristmill_model::{LeasedSlice, PackedArray, PackedBuilder, Signal};
use gristmill_runtime::{RuntimeOptions, ScriptHandler};
use gristmill_worker::{ChildOutcome, MicroBatch};
use serde_json::{Value, json};

use crate::harness::{Ended, Subject, run, run_work, slice, warm_subjects, warm_subjects_of};

/// An instance of a flow between its runs.
#[derive(Debug, Clone)]
struct Instance {
    payload: Value,
    memos: Vec<Value>,
    outcomes: Vec<Value>,
    ended: Option<Ended>,
}

impl Instance {
    fn new(payload: Value) -> Instance {
        Instance {
            payload,
            memos: Vec::new(),
            outcomes: Vec::new(),
            ended: None,
        }
    }

    fn kept(memos: Value, outcomes: Value, payload: &str) -> Instance {
        Instance {
            memos: memos.as_array().unwrap().clone(),
            outcomes: outcomes.as_array().unwrap().clone(),
            ..Instance::new(json!(payload))
        }
    }

    fn value(&self) -> &Value {
        self.ended.as_ref().expect("it has ended").value()
    }

    fn error(&self) -> String {
        self.ended.as_ref().expect("it has ended").error().message.clone()
    }
}

fn packed<'v>(values: impl IntoIterator<Item = &'v Value>) -> PackedArray {
    let mut builder = PackedBuilder::new();
    values
        .into_iter()
        .for_each(|value| builder.push_value(value).unwrap());
    builder.finish()
}

fn work_of(instances: &[Instance]) -> MicroBatch {
    let payloads = packed(instances.iter().map(|instance| &instance.payload));
    if instances[0].memos.is_empty() {
        return MicroBatch::new(vec![slice(payloads, None)]);
    }
    let memos: Vec<Value> = instances.iter().map(|instance| json!(instance.memos)).collect();
    let outcomes = instances.iter().map(|instance| {
        let outcomes: Vec<ChildOutcome> = serde_json::from_value(json!(instance.outcomes)).unwrap();
        outcomes
    });
    let slice = LeasedSlice {
        memos: Some(packed(&memos)),
        ..slice(payloads, None)
    };
    MicroBatch::new(vec![slice]).with_children(outcomes.collect())
}

/// Runs instances that stand at the same place up to their next wait, and what they spawn. A sleep is over at once, and
/// the event `approve` has been sent.
async fn take_step(handler: &ScriptHandler, instances: &mut [Instance]) {
    let (ended, recorder) = run_work(handler, work_of(instances)).await;
    for (instance, ended) in instances.iter_mut().zip(ended) {
        instance.ended = (ended != Ended::Suspended).then_some(ended);
    }
    let mut spawned = recorder.spawned();
    spawned.sort_by_key(|suspended| suspended.positions.first());
    for suspended in spawned {
        assert_eq!(suspended.positions.len(), 1);
        let instance = &mut instances[suspended.positions.first().unwrap() as usize];
        let memo = suspended.memos.items().next().unwrap();
        instance.memos.push(serde_json::from_str(memo).unwrap());
        for batch in &suspended.children {
            let payloads = batch.payloads.items();
            let payloads: Vec<Value> = payloads.map(|item| serde_json::from_str(item).unwrap()).collect();
            let of_signal = |signal: &Signal| match signal.event() {
                Some("approve") => json!({"job": "9:9", "state": "completed", "value": "Ada"}),
                _ => json!({"job": "9:9", "state": "expired"}),
            };
            match &batch.options.signal {
                Some(signal) => instance.outcomes.push(of_signal(signal)),
                None => {
                    let (ended, _) = run(handler, &payloads, None).await;
                    instance.outcomes.extend(ended.iter().map(outcome_of));
                }
            }
        }
    }
}

fn outcome_of(ended: &Ended) -> Value {
    match ended {
        Ended::Completed(value) => json!({"job": "9:9", "state": "completed", "value": value}),
        failed => json!({"job": "9:9", "state": "dead", "error": failed.error()}),
    }
}

/// Runs instances to their ends.
async fn run_flows(handler: &ScriptHandler, payloads: &[&str]) -> Vec<Instance> {
    let mut instances: Vec<Instance> = payloads
        .iter()
        .map(|payload| Instance::new(json!(payload)))
        .collect();
    while instances[0].ended.is_none() {
        take_step(handler, &mut instances).await;
    }
    instances
}

/// The memo of `document`, in which hashes and occurrences are those of each language.
fn memo_of_document() -> Value {
    json!([
        {"steps": [["fetchText", 2_360_715_934_u32]]},
        {"steps": [["measure", 2_037_245_133_u32], ["measure", 2_037_245_133_u32, "more"]]},
        {"steps": [["mapped", 1_410_394_390_u32, null, 2]]},
        {"steps": [["@sleep", 0]]},
        {"steps": [["@approve", 0]], "values": [["upper", "A"]]},
        {"steps": [["fail", 3_823_171_921_u32]]},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_keeps_the_same_memo_in_each_language() {
    for subject in warm_subjects() {
        for concurrency in [1, 8] {
            let options = RuntimeOptions {
                concurrency,
                ..RuntimeOptions::default()
            };
            let handler = subject.handler_with("flow", &options);
            let instances = run_flows(&handler, &["a", "bb", "ccc"]).await;
            let name = subject.name;
            for (place, (text, upper)) in [("a", "A"), ("bb", "BB"), ("ccc", "CCC")].iter().enumerate() {
                let length = 13 + text.len() - 1 + 1;
                let id = format!("42:{}", 10 + place);
                let expected = json!([[length, length], [1, 2], upper, "Ada", "fail", "ValueError", id]);
                assert_eq!(instances[place].value(), &expected, "{name}");
            }
            assert_eq!(json!(instances[0].memos), memo_of_document(), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_flow_was_told_is_told_again() {
    let sleep =
        json!([{"steps": [["@sleep", 0]], "seed": 12345, "values": [["@now", 1_700_000_000_001_u64]]}]);
    let over = json!([{"job": "9:0", "state": "expired"}]);
    let race = json!([{"steps": [["@approve", 0], ["@sleep", 0]]}]);
    let both = json!([{"job": "9:0", "state": "completed", "value": 7}, {"job": "9:1", "state": "expired"}]);
    let woken = json!([
        {"steps": [["@approve", 0], ["@sleep", 0]]},
        {"steps": [["fetchText", 1]], "seen": [1]},
    ]);
    let three = json!([
        {"job": "9:0", "state": "completed", "value": 7},
        {"job": "9:1", "state": "expired"},
        {"job": "9:2", "state": "completed"},
    ]);
    let waits = json!([{"job": "9:0", "state": "waiting"}, {"job": "9:1", "state": "waiting"}]);
    for subject in warm_subjects() {
        let handler = subject.handler("flow");
        let name = subject.name;
        let mut kept = [Instance::kept(sleep.clone(), over.clone(), "kept")];
        take_step(&handler, &mut kept).await;
        let told = json!([
            0.106_643_440_224_671_32,
            "4adef3a2-b8ff-4fb7-a877-5db76210ff48",
            1_700_000_000_001_u64,
            "42:10"
        ]);
        assert_eq!(kept[0].value(), &told, "{name}");
        for (memos, outcomes, expected) in [
            (&race, &both, json!(["approve", 7, 0])),
            (&woken, &three, json!(["sleep", null, 1])),
        ] {
            let mut chosen = [Instance::kept(memos.clone(), outcomes.clone(), "chosen")];
            take_step(&handler, &mut chosen).await;
            assert_eq!(chosen[0].value(), &expected, "{name}");
        }
        let mut chosen = [Instance::kept(race.clone(), waits.clone(), "chosen")];
        take_step(&handler, &mut chosen).await;
        assert!(chosen[0].ended.is_none(), "{name}: {chosen:?}");
    }
}

/// In JavaScript the losers of a race go on, and may be awaited. So their events go back where the flow begins anew.
#[tokio::test(flavor = "multi_thread")]
async fn events_that_nothing_has_read_go_back() {
    let body = "const stop = flow.event('stop'), race = item === 'nested' ? flow.first(stop) : stop; \
                await flow.first(flow.sleep('1s'), race); \
                if (item === 'awaits') await stop; \
                await flow.event('more'); return flow.continueWith(item);";
    let ended = |number: u32, state: &str| json!({"job": format!("9:{number}"), "state": state, "value": 1});
    let told = |seen: Value| json!([{"steps": [["@stop", 0], ["@sleep", 0]]}, {"steps": [["@more", 0]], "seen": seen}]);
    let all = json!([ended(0, "completed"), ended(1, "expired"), ended(2, "completed")]);
    let open = json!([ended(0, "waiting"), ended(1, "expired"), ended(2, "completed")]);
    for subject in warm_subjects_of(false) {
        let (_folder, handler) = mistaken(&subject, body);
        for (payload, seen, outcomes, expected) in [
            // The sleep has won. The event comes later, with the sleep, or not at all.
            ("races", json!([1]), &all, &["9:0"][..]),
            ("races", json!([1, 0]), &all, &["9:0"]),
            ("nested", json!([1, 0]), &all, &["9:0"]),
            ("races", json!([1]), &open, &["9:0"]),
            // The event was read: as the winner of the race, or afterwards.
            ("races", json!([0, 1]), &all, &[]),
            ("nested", json!([0]), &all, &[]),
            ("awaits", json!([1, 0]), &all, &[]),
        ] {
            let instance = Instance::kept(told(seen.clone()), outcomes.clone(), payload);
            let (_, recorder) = run_work(&handler, work_of(&[instance])).await;
            let spawned = recorder.spawned();
            assert!(spawned[0].begins_anew(), "{}: {payload} {seen}", subject.name);
            let given_up = spawned[0].given_up.concat();
            let given_up: Vec<String> = given_up.iter().map(ToString::to_string).collect();
            assert_eq!(given_up, expected, "{}: {payload} {seen}", subject.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_with_other_arguments_is_named() {
    let memos = json!([{"steps": [["fetchText", 1]]}]);
    let outcomes = json!([{"job": "9:0", "state": "completed", "value": "text"}]);
    for subject in warm_subjects() {
        let mut instances = [Instance::kept(memos.clone(), outcomes.clone(), "a")];
        take_step(&subject.handler("flow"), &mut instances).await;
        let error = instances[0].error();
        let told = "step fetchText, number 1 of its name, of flow document had arguments of the hash 00000001, and the code \
                    now gives it some of the hash 8cb5aa9e";
        assert!(error.starts_with(told), "{}: {error}", subject.name);
        assert!(error.contains("gristmill flow fork"), "{}: {error}", subject.name);
    }
}

/// What a flow of JavaScript does wrong, and what it is told.
const MISTAKES: [(&str, &str); 13] = [
    (
        "await new Promise((resolve) => setTimeout(resolve, 1e6))",
        "awaits what is no promise of its flow",
    ),
    ("flow.step(own, 1)", "nothing awaited its step own"),
    ("flow.local(own, 1)", "nothing awaited its step own"),
    (
        "await flow.step(own, flow.step(own, 1))",
        "step own was given a promise in the place of its value: await it first",
    ),
    ("return [flow.step(own, 1)]", "nothing awaited its step own"),
    (
        "return { own: Promise.resolve(1) }",
        "main returned a promise in the place of its value: await it first",
    ),
    ("await flow.step(() => 1, 1)", "which the script does not export"),
    (
        "await flow.step(own, 1, { keys: 'a' })",
        "a step has no `keys`: did you mean `key`?",
    ),
    (
        "await flow.step(own, 1, 2)",
        "a step takes one argument and options",
    ),
    (
        "await flow.sleep(500)",
        "the span of a sleep is 500: give a span such as",
    ),
    ("await flow.event('')", "the name of an event is ''"),
    (
        "await flow.local(() => { throw new RangeError('no') }, 1, { name: 'x' })",
        "step x, job 42:10 ended as dead: RangeError: no",
    ),
    (
        "return gristmill.spawn({ children: [1] })",
        "await flow.map in its place",
    ),
];

fn mistaken(subject: &Subject, body: &str) -> (tempfile::TempDir, ScriptHandler) {
    let text = format!(
        "export const own = (number) => number;\nexport const main = gristmill.flow(async (flow, item) => {{ {body}; }});\n"
    );
    let (folder, script) = subject.script_of("flow.mjs", &text);
    let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
    (folder, handler)
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_of_a_flow_are_named() {
    for subject in warm_subjects_of(false) {
        for (body, told) in MISTAKES {
            let (_folder, handler) = mistaken(&subject, body);
            let mut instances = [Instance::new(json!("a"))];
            take_step(&handler, &mut instances).await;
            let error = instances[0].error();
            assert!(error.contains(told), "{}: {body}: {error}", subject.name);
        }
    }
}

/// A promise that fails before the flow awaits it ends no process.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_may_fail_before_it_is_awaited() {
    let body = "const one = (async () => { await flow.step(fail, 1); })(); await flow.sleep('1s'); await flow.sleep('2s'); \
                try { await one; } catch (error) { return [error.name, error.type, error.reason]; }";
    for subject in warm_subjects_of(false) {
        let text = format!(
            "export const fail = () => {{ throw new RangeError('no'); }};\n\
             export default {{ main: gristmill.flow(async (flow) => {{ {body} }}), fail }};\n"
        );
        let (_folder, script) = subject.script_of("flow.mjs", &text);
        let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
        let instances = run_flows(&handler, &["a"]).await;
        assert_eq!(
            instances[0].value(),
            &json!(["StepFailed", "RangeError", "no"]),
            "{}",
            subject.name
        );
    }
}

/// A number would round what a function of `flow.local` returns.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_local_functions_keep_their_digits() {
    let body = "const id = await flow.local(() => 9007199254740993n, null, { name: 'id' }); await flow.sleep('1s'); return id;";
    for subject in warm_subjects_of(false) {
        for (bigints, expected) in [
            ("'bigint'", Some(json!(9_007_199_254_740_993_u64))),
            ("'string'", Some(json!("9007199254740993"))),
            ("'error'", None),
        ] {
            let text = format!(
                "export const bigints = {bigints};\nexport const main = gristmill.flow(async (flow) => {{ {body} }});\n"
            );
            let (_folder, script) = subject.script_of("flow.mjs", &text);
            let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
            let instances = run_flows(&handler, &["a"]).await;
            match expected {
                Some(expected) => assert_eq!(instances[0].value(), &expected, "{} {bigints}", subject.name),
                None => {
                    let error = instances[0].error();
                    let told = "what the function id returned is 9007199254740993, which a JavaScript number cannot hold exactly";
                    assert!(error.contains(told), "{}: {error}", subject.name);
                }
            }
        }
    }
}

/// Children and a memo beyond the memory that processes share.
#[tokio::test(flavor = "multi_thread")]
async fn a_flow_begins_many_steps_at_once() {
    for subject in warm_subjects_of(false) {
        let body = "const sizes = await flow.map(own, Array.from({ length: 30000 }, (_, place) => place + ' é'.repeat(50))); \
                    return sizes.length";
        let (_folder, handler) = mistaken(&subject, body);
        let (ended, recorder) = run(&handler, &[json!(1), json!(2)], None).await;
        assert_eq!(ended, [Ended::Suspended, Ended::Suspended], "{}", subject.name);
        for suspended in recorder.spawned() {
            let count: u32 = suspended
                .children
                .iter()
                .map(|batch| batch.payloads.count())
                .sum();
            assert_eq!(count, 30_000, "{}", subject.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_of_several_flows_names_its_main() {
    for subject in warm_subjects_of(false) {
        let flows = "export const one = gristmill.flow(async () => 1);\nexport const two = gristmill.flow(async (flow, item) => \
                     item === 'a' ? flow.step(one, 2) : 2);\n";
        let (_folder, script) = subject.script_of("flow.mjs", flows);
        let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
        let changes = crate::harness::Changes::of(&handler);
        let (ended, _) = run(&handler, &[json!("a")], None).await;
        assert_eq!(ended, [Ended::Returned], "{}", subject.name);
        let reason = changes.failed();
        assert!(
            reason.contains("exports several flows (one, two): export the one that runs its items as `main`"),
            "{}: {reason}",
            subject.name
        );
        let (_folder, script) = subject.script_of("flow.mjs", &format!("{flows}export const main = two;\n"));
        let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
        // A flow is a step of another one.
        let instances = run_flows(&handler, &["a"]).await;
        assert_eq!(instances[0].value(), &json!(1), "{}", subject.name);
    }
}

/// The example in TypeScript of docs/flows.md: it runs, and has the types of `gristmill.d.ts`.
#[tokio::test(flavor = "multi_thread")]
async fn the_typed_flow_of_the_documentation_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/flows.md")).unwrap();
    let text = page
        .split("```ts\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    for subject in warm_subjects_of(false) {
        if subject.name == "node" {
            // Node 20 runs no TypeScript.
            continue;
        }
        let (folder, script) = subject.script_of("charge.ts", text);
        let program = script.program_name();
        let handler = ScriptHandler::new(script, &RuntimeOptions::default()).unwrap();
        let mut instances = [Instance::new(json!({"customer": "Ada", "seats": 2}))];
        while instances[0].ended.is_none() {
            take_step(&handler, &mut instances).await;
        }
        let name = subject.name;
        assert_eq!(instances[0].value(), &json!("charge: Ada has no card"), "{name}");
        if name == "deno" {
            std::fs::copy(
                root.join("examples/gristmill.d.ts"),
                folder.path().join("gristmill.d.ts"),
            )
            .unwrap();
            let checked = Command::new(program)
                .args(["check", "charge.ts"])
                .current_dir(folder.path())
                .output();
            let checked = checked.unwrap();
            assert!(
                checked.status.success(),
                "{}",
                String::from_utf8_lossy(&checked.stderr)
            );
        }
    }
}
