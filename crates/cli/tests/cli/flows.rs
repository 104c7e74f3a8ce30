//! `gristmill flow`.

use gristmill_engine::{
    ChildBatch, Engine, EngineSettings, Finalizing, Job, JobError, Kind, Signal, Spawn, Step, Wake,
    open_store,
};
use serde_json::{Value, json};

use crate::workspace::{Workspace, json_lines};

on_each_store! {
    flows_are_started_listed_shown_sent_events_and_cancelled,
    many_events_are_read_from_lines,
    ended_flows_are_forked,
    a_step_knows_its_flow,
}

/// A flow that maps over three pages, and awaits an approval.
struct Document;

impl Kind for Document {
    const NAME: &'static str = "document@3";
    type Payload = String;
    type Value = Value;
}

async fn begin(_: Job<String>) -> Result<Step<Value>, JobError> {
    let approve = ChildBatch::of_signal(Signal::Event("approve".to_owned()), Some(3_600_000));
    let spawn = Spawn::new()
        .children("embed", 0..3)
        .map(|spawn| spawn.batch(approve).flow(Wake::Any));
    let memo = json!({"steps": [["embed", 2, "pages", 3], ["@approve", 0]]});
    let spawn = spawn.and_then(|spawn| spawn.memo(&memo));
    spawn
        .map(Step::Wait)
        .map_err(|error| JobError::new("spawn", error.to_string()))
}

async fn end(flow: Finalizing<String, Vec<Value>>) -> Result<Step<Value>, JobError> {
    let approval = flow.children.last().and_then(|child| child.value.as_ref());
    let approval = approval.map(|value| serde_json::from_str(value.get()).expect("a value is JSON"));
    Ok(Step::Done(approval.unwrap_or(Value::Null)))
}

/// A step of a script knows the flow that began it.
fn a_step_knows_its_flow(make: fn() -> Workspace) {
    let workspace = make();
    workspace.write(
        "steps.py",
        r#"
import gristmill


def who(text):
    flow = gristmill.job().flow
    return [flow.name, flow.step, flow.key, flow.item]


@gristmill.flow
async def document(flow, text):
    own = gristmill.job().flow is None
    return [own, await flow.step(who, text, key="k"), await flow.map(who, [text, text], name="all")]
"#,
    );
    workspace.write(
        "steps.mjs",
        r#"
export const who = () => {
  const { name, step, key, item } = gristmill.job().flow;
  return [name, step, key, item];
};

export const document = gristmill.flow(async (flow, text) => {
  const own = gristmill.job().flow === null;
  return [own, await flow.step(who, text, { key: 'k' }), await flow.map(who, [text, text], { name: 'all' })];
});
"#,
    );
    workspace.write("items.jsonl", "\"a\"\n");
    for script in ["steps.py", "steps.mjs"] {
        let printed = workspace
            .run(&format!("run {script} --input items.jsonl --values --quiet"))
            .expect(0);
        let flow = format!("script:{script}");
        assert_eq!(
            json_lines(&printed)[0],
            json!([
                true,
                [flow, "who", "k", null],
                [[flow, "all", null, 0], [flow, "all", null, 1]]
            ])
        );
    }
}

/// Runs the flows that can run.
fn work(workspace: &Workspace) {
    let store = workspace.database_or(&workspace.path("gristmill.db").to_string_lossy());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let engine = Engine::new(open_store(&store).await.unwrap(), EngineSettings::default());
        let engine = engine.await.unwrap();
        let mut worker = engine.worker();
        worker.handle_parent::<Document, Vec<Value>, _, _, _, _>(begin, end);
        worker.until_idle().run().await.unwrap();
        engine.close().await.unwrap();
    });
}

fn flows_are_started_listed_shown_sent_events_and_cancelled(make: fn() -> Workspace) {
    let workspace = make();
    let started = workspace.run("flow start document@3 \"a\" \"b\" \"c\" --key k1 --key k2 --key k3");
    started.expect(0);
    work(&workspace);

    let listed = workspace.run("flow list").expect(0);
    assert!(
        listed.starts_with("flow      version  queue    worker  flows\n"),
        "{listed}"
    );
    assert!(
        listed.contains("document  3        default  no      3 blocked"),
        "{listed}"
    );
    assert_eq!(listed, workspace.run("flow list --no-worker").expect(0));
    let each = workspace
        .run("flow list --kind document --state blocked")
        .expect(0);
    assert!(
        each.contains("embed (key pages), 0 of 3 ended; event approve until 2"),
        "{each}"
    );
    let each = json_lines(
        &workspace
            .run("flow list --kind document@3 --json --limit 2")
            .expect(0),
    );
    assert_eq!(each.len(), 2);
    assert_eq!(
        (&each[0]["version"], &each[0]["awaited"][1]["event"]),
        (&json!("3"), &json!("approve"))
    );
    let missing = workspace.run("flow list --kind nothing");
    assert!(
        missing.stderr.contains("no flow of the kind `nothing`"),
        "{missing:?}"
    );
    missing.expect(1);

    let shown = workspace.run("flow show 1:0").expect(0);
    for part in [
        "flow       document",
        "version    3",
        "state      blocked",
        "0 of 3 ended",
        "event approve",
        "awaited",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let shown = json_lines(&workspace.run("flow show 1:0 --json --from 1").expect(0)).remove(0);
    assert_eq!(
        (
            &shown["steps_total"],
            &shown["steps"][0]["name"],
            &shown["payload"]
        ),
        (&json!(2), &json!("@approve"), &json!("a"))
    );
    assert!(shown["steps"][0]["until"].is_string(), "{shown}");
    workspace.run("flow show 9:9").expect(1);

    events_reach_their_flows(&workspace);

    let plain = workspace.run("flow start document \"d\"").error();
    assert!(plain.contains("name one, as in `document@3`"), "{plain}");
    workspace.run("flow start document@4 \"d\"").expect(0);
    workspace.run("flow start another \"d\"").expect(0);
}

fn events_reach_their_flows(workspace: &Workspace) {
    let sent = workspace.run("flow event 1:0 approve {\"by\":\"Ada\"}").expect(0);
    assert_eq!(sent, "flow 1:0 has the event approve\n");
    let kept = workspace.run("flow event key=k2 other --json").expect(0);
    assert_eq!(json_lines(&kept)[0]["receipt"], "kept");
    let sent = workspace.run_with("flow event key=k2 approve -", b" [1, 2]\n");
    assert_eq!(sent.expect(0), "flow key=k2 has the event approve\n");
    work(workspace);
    let value =
        |job: &str| json_lines(&workspace.run(&format!("show {job} --json")).expect(0))[0]["value"].clone();
    assert_eq!(
        (value("1:0"), value("1:1")),
        (json!({"by": "Ada"}), json!([1, 2]))
    );
    assert!(workspace.run("flow show 1:0").expect(0).contains("received"));

    assert_eq!(workspace.run("flow cancel 1:2").expect(0), "1 job cancelled\n");
    for flow in ["1:0", "1:2", "key=k3"] {
        let ended = workspace.run(&format!("flow event {flow} approve"));
        assert!(
            ended.stderr.contains(&format!("flow {flow} has ended")),
            "{ended:?}"
        );
        ended.expect(1);
    }
    let unknown = workspace.run("flow event 1:99 approve");
    assert!(unknown.stderr.contains("flow 1:99 does not exist"), "{unknown:?}");
    unknown.expect(1);
}

#[test]
fn wrong_events_are_explained() {
    let workspace = Workspace::new();
    workspace.run("submit document 1").expect(0);
    for (arguments, expected) in [
        ("flow event", "required"),
        ("flow event 1:0", "<NAME>"),
        (
            "flow event document approve",
            "write the batch and the position, as in 42:7, or the deduplication key",
        ),
        (
            "flow event 1:0 approve yes",
            "the value `yes` is not JSON; a string needs its own quotes",
        ),
        (
            "flow event 1:0 approve --kind document",
            "--kind goes with key=KEY",
        ),
        (
            "flow event --input missing.jsonl",
            "missing.jsonl cannot be opened",
        ),
        (
            "flow event 1:0 approve --store nowhere.db",
            "the store nowhere.db does not exist",
        ),
    ] {
        let ended = workspace.run(arguments);
        assert!(ended.stderr.contains(expected), "{arguments}: {ended:?}");
        ended.error();
    }
    assert_eq!(
        json_lines(&workspace.run("show 1:0 --json").expect(0))[0]["state"],
        "waiting"
    );
}

fn many_events_are_read_from_lines(make: fn() -> Workspace) {
    let workspace = make();
    workspace.run("flow start document@3 \"a\" \"b\"").expect(0);
    work(&workspace);
    let line =
        |job: &str, value: u32| format!("{{\"job\":\"{job}\",\"name\":\"approve\",\"value\":{value}}}\n");
    let mut lines = line("1:0", 1);
    lines.push('\n');
    lines.push_str(&line("1:1", 2));
    lines.push_str("{\"job\":\"1:1\",\"nam\":\"approve\"}\n");
    let refused = workspace
        .run_with("flow event --input -", lines.as_bytes())
        .error();
    assert!(
        refused.contains("line 4 of -: no event is sent: unknown field `nam`"),
        "{refused}"
    );
    // The first thousand is one transaction: it is sent, and the rest is not.
    let mut lines: String = line("1:0", 1).repeat(1_000);
    lines.push_str("null\n");
    let refused = workspace
        .run_with("flow event --input -", lines.as_bytes())
        .error();
    assert!(
        refused.contains("line 1001 of -: the events of the first 1,000 lines are sent, the others are not"),
        "{refused}"
    );
    workspace.write(
        "events.jsonl",
        [line("1:1", 2), line("7:0", 3), line("1:0", 4)].concat(),
    );
    let sent = workspace.run("flow event --input events.jsonl");
    assert!(sent.stderr.contains("flow 7:0 does not exist"), "{sent:?}");
    assert_eq!(
        sent.expect(1),
        "1 event delivered, 1 kept until their flows await them\n"
    );
    let sent = workspace.run("flow event --input events.jsonl");
    assert!(
        sent.stderr
            .contains("flow 1:0 has 1,000 events that it has not awaited"),
        "{sent:?}"
    );
    sent.expect(1);
}

fn ended_flows_are_forked(make: fn() -> Workspace) {
    let workspace = make();
    workspace.run("flow start document@3 \"a\" \"b\"").expect(0);
    work(&workspace);
    workspace.run("flow event 1:0 approve 7").expect(0);
    work(&workspace);
    let forked = workspace.run("flow fork 1:0 1:1 9:9 --from approve");
    for part in [
        "flow 1:1 is not forked: it has not ended (blocked): cancel it, or wait for its end",
        "flow 9:9 does not exist",
        "1 flow forked",
    ] {
        assert!(forked.stderr.contains(part), "{part} in {forked:?}");
    }
    let line = forked.expect(1);
    let (fork, rest) = line.split_once(' ').unwrap();
    assert_eq!(rest.trim(), "a fork of 1:0");
    let unknown = workspace.run("flow fork 1:0 --from save");
    assert!(
        unknown
            .stderr
            .contains("it has no step `save`; its steps are embed (key pages), approve"),
        "{unknown:?}"
    );
    unknown.expect(1);
    workspace.run("flow fork 1:0 --from 1 --step-key k").expect(2);
    workspace.run("flow fork --from 1").expect(2);
    workspace.run("flow fork 1:0").expect(2);

    // A filter selects flows that have ended. The fork has not.
    let all = json_lines(
        &workspace
            .run("flow fork --kind document@3 --from 0 --to 4 --json")
            .expect(0),
    );
    assert_eq!((all.len(), &all[0]["flow"]), (1, &json!("1:0")));
    let other = all[0]["fork"].as_str().unwrap();
    let shown = workspace.run(&format!("flow show {other}")).expect(0);
    assert!(
        shown.contains("version    4") && shown.contains("fork of    1:0"),
        "{shown}"
    );
    // The map was open when the flow ended, so that the fork has no steps yet.
    let shown: Value =
        serde_json::from_str(&workspace.run(&format!("flow show {fork} --json")).expect(0)).unwrap();
    assert_eq!(
        (&shown["origin"], &shown["steps_total"]),
        (&json!("1:0"), &json!(0))
    );
}
