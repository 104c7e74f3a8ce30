//! The commands beside `run`.

use gristmill_model::{Clock, SystemClock};
use serde_json::json;

use crate::workspace::{self, Workspace, json_lines, numbers};

on_each_store! {
    jobs_are_submitted_listed_run_and_shown,
    a_file_is_submitted_in_batches_and_its_bad_lines_are_told,
    jobs_with_keys_are_submitted_once,
    jobs_are_found_by_tags,
    delayed_and_expiring_jobs_say_when,
    jobs_wait_for_others,
    a_worker_ends_what_runs_when_it_is_interrupted,
    a_worker_that_is_drained_ends_what_runs_and_its_process_succeeds,
    old_batches_are_pruned_once_they_are_told,
    runs_are_listed_and_a_wrong_name_names_the_right_ones,
}

const DOUBLE: &str =
    "def main(payload):\n    if payload == 3:\n        raise ValueError('three')\n    return payload * 2\n";

fn jobs_are_submitted_listed_run_and_shown(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace.write("double.py", DOUBLE);
    assert_eq!(
        workspace.run("submit double 1 2 3 --retries 0").expect(0),
        "1:0\n1:1\n1:2\n"
    );
    let listed = workspace.run("jobs --state waiting").expect(0);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    assert!(
        listed.starts_with("job  kind    queue    state    attempt  when"),
        "{listed}"
    );
    let totals = workspace.run("worker double.py --drain --json").expect(1);
    assert_eq!(
        json_lines(&totals)[0],
        json!({"completed": 2, "failed_attempts": 1, "dead": 1, "refused": 0})
    );
    let shown = json_lines(&workspace.run("show 1:1 --json").expect(0)).remove(0);
    assert_eq!(
        (&shown["payload"], &shown["value"], &shown["state"]),
        (&json!(2), &json!(4), &json!("completed"))
    );
    assert_eq!(
        workspace.run("results --batch 1 --values").expect(1),
        "2\n4\nnull\n"
    );
    assert_eq!(workspace.run("retry 1:2").expect(0), "1 job can run again\n");
    workspace.run("retry 1:0").expect(1);
    assert_eq!(workspace.run("cancel 1:2").expect(0), "1 job cancelled\n");
    let counts = json_lines(&workspace.run("stats --json").expect(0)).remove(0);
    assert_eq!(
        (&counts["kinds"][0]["completed"], &counts["kinds"][0]["cancelled"]),
        (&json!(2), &json!(1))
    );
    let history = json_lines(&workspace.run("history --by hour --since 1h --json").expect(0));
    assert_eq!(history[0]["kind"], counts["kinds"][0]["kind"]);
    assert_eq!(history[0]["completed"], counts["kinds"][0]["completed"]);
    assert!(history[0]["duration"]["p95_us"].is_u64(), "{history:?}");
    assert!(workspace.run("history").expect(0).contains("p95"));
    let none = workspace.run("history --kind other").expect(0);
    assert_eq!(none, "no job has ended in this period\n");
    let stats = workspace.run("stats").expect(0);
    for part in [
        "double",
        "step ",
        "claim",
        "commit",
        "full",
        "queue empty",
        "on disk",
    ] {
        assert!(stats.contains(part), "{part} in {stats}");
    }
}

fn a_file_is_submitted_in_batches_and_its_bad_lines_are_told(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace.write("items.jsonl", format!("{}nope\n", numbers(2_500)));
    let ended = workspace.run("submit k --input items.jsonl --queue slow --priority -3 --json");
    let told = json_lines(&ended.expect(1)).remove(0);
    assert_eq!(
        (
            &told["jobs"],
            &told["rejected"],
            told["batches"].as_array().unwrap().len()
        ),
        (&json!(2_501), &json!(1), 3)
    );
    let dead = json_lines(&workspace.run("jobs --state dead --json").expect(0));
    assert_eq!(
        dead[0]["error"].as_str().unwrap(),
        "items.jsonl:2501: not JSON: expected ident at column 2"
    );
    let page = workspace.run("jobs --queue slow --limit 2 --after 1:998");
    assert!(
        page.stderr.contains("more jobs match: add --after 2:0"),
        "{}",
        page.stderr
    );
    assert_eq!(page.expect(0).lines().count(), 3);
    assert_eq!(
        workspace.run("cancel --kind k").expect(0),
        "2,500 jobs cancelled\n"
    );
    let error = workspace.run("cancel").error();
    assert!(error.contains("or --all"), "{error}");
}

fn jobs_with_keys_are_submitted_once(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    let submit = |arguments: &str| workspace.run(&format!("submit page {arguments}"));
    assert_eq!(submit("1 2 --key a --key b").expect(0), "1:0\n1:1\n");
    assert_eq!(submit("3 4 --key b --key c").expect(0), "1:1\n2:0\n");
    let refused = submit("5 --key c --on-duplicate reject").error();
    assert!(refused.contains("`c`") && refused.contains("2:0"), "{refused}");
    submit("5 6 --key d").error();
    workspace.write(
        "pages.jsonl",
        "{\"url\":\"x\"}\n{\"url\":\"y\"}\n{\"url\":\"x\"}\n{}\n",
    );
    let summary = submit("--input pages.jsonl --key-field url --on-duplicate replace --json").expect(0);
    let summary = json_lines(&summary).remove(0);
    assert_eq!((&summary["jobs"], &summary["duplicates"]), (&json!(3), &json!(1)));
    assert_eq!(summary["ids"][0], summary["ids"][2]);
    let shown = workspace.run("show 2:0 --json").expect(0);
    assert_eq!(json_lines(&shown)[0]["key"], "c");
}

fn jobs_are_found_by_tags(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace
        .run("submit page 1 2 --tag customer=7 --tag size=large --key a/1 --key b/1")
        .expect(0);
    workspace.run("submit page 3 --tag customer=8").expect(0);
    workspace.run("submit page 4 --tag customer").error();
    let listed = |filter: &str| {
        let listed = workspace.run(&format!("jobs {filter} --json")).expect(0);
        json_lines(&listed).len()
    };
    assert_eq!(listed("--tag customer"), 3);
    let values = workspace.run("tags customer --json").expect(0);
    assert_eq!(
        json_lines(&values),
        [json!({"value": "7", "jobs": 2}), json!({"value": "8", "jobs": 1})]
    );
    assert_eq!(
        workspace.run("jobs --tag customer --ids").expect(0),
        "1:0-1\n2:0\n"
    );
    assert_eq!(listed("--tag customer=7 --tag si*"), 2);
    assert_eq!(listed("--key-prefix a/"), 1);
    let shown = workspace.run("show 1:0").expect(0);
    assert!(shown.contains("customer=7 size=large"), "{shown}");
    assert_eq!(
        workspace.run("cancel --tag customer=8").expect(0),
        "1 job cancelled\n"
    );
    assert_eq!(
        workspace.run("priority urgent --tag customer=7").expect(0),
        "2 jobs now at priority 100\n"
    );
    assert_eq!(
        workspace.run("priority -5 1:0 1:9").expect(1),
        "1 job now at priority -5\n"
    );
    assert!(workspace.run("show 1:0").expect(0).contains("priority   -5"));
    workspace.run("priority higher 1:0").error();
    assert_eq!(
        workspace.run("pause --tag customer=7 --reason deploy").expect(0),
        "2 jobs paused\n"
    );
    let shown = workspace.run("show 1:1").expect(0);
    assert!(
        shown.contains("state      paused") && shown.contains("paused     deploy, until it is resumed"),
        "{shown}"
    );
    assert_eq!(listed("--state paused"), 2);
    assert_eq!(
        workspace.run("resume 1:0 2:0 --reason deploy").expect(1),
        "1 job resumed\n"
    );
    assert_eq!(
        workspace.run("resume --batch 1 --reason deploy").expect(0),
        "1 job resumed\n"
    );
    assert_eq!(workspace.run("discard --all").expect(0), "0 jobs discarded\n");
    let first = workspace.run("submit note 1 --key n --debounce 1h").expect(0);
    assert_eq!(
        workspace.run("submit note 2 --key n --debounce 1h").expect(0),
        first
    );
    let shown = workspace.run(&format!("show {}", first.trim())).expect(0);
    assert!(
        shown.contains("state      scheduled") && shown.contains("payload    2"),
        "{shown}"
    );
    workspace
        .run("submit note 3 --key n --debounce 1h --on-duplicate skip")
        .error();
    assert_eq!(workspace.run("cancel --key b/1").expect(0), "1 job cancelled\n");
    assert_eq!(listed("--state waiting"), 1);
}

fn delayed_and_expiring_jobs_say_when(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    let in_an_hour = || SystemClock.now().plus_ms(3_600_000);
    let begun = in_an_hour();
    workspace
        .run("submit k 1 --delay 1h --timeout 30s --retries 2")
        .expect(0);
    let shown = json_lines(&workspace.run("show 1:0 --json").expect(0)).remove(0);
    assert_eq!(
        (&shown["state"], &shown["options"]["timeout_ms"]),
        (&json!("scheduled"), &json!(30_000))
    );
    assert_eq!(shown["options"]["retry"]["attempts_max"], 3);
    let within = begun.to_string()..=in_an_hour().to_string();
    let run_at = shown["run_at"].as_str().unwrap().to_owned();
    assert!(within.contains(&run_at), "{shown}");
}

fn jobs_wait_for_others(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace.write("double.py", DOUBLE);
    workspace.run("submit double 1 3 --retries 0").expect(0);
    workspace.run("submit double 5 --after 1:0").expect(0);
    workspace
        .run("submit double 6 --after 1 --after 2:0 --after-failure fail")
        .expect(0);
    let blocked = workspace.run("jobs --state blocked").expect(0);
    assert_eq!(blocked.lines().count(), 3, "{blocked}");
    let error = workspace.run("submit double 7 --after 99").error();
    assert!(error.contains("option `after` names batch 99"), "{error}");
    let error = workspace.run("submit double 7 --after 1:x").error();
    assert!(error.contains("42:7"), "{error}");
    workspace.run("worker double.py --kind double --drain").expect(1);
    let shown = json_lines(&workspace.run("show 3:0 --json").expect(0)).remove(0);
    assert_eq!(
        (&shown["state"], &shown["error"]),
        (
            &json!("dead"),
            &json!("job 1:1, which it waited for, ended as dead")
        )
    );
    let shown = json_lines(&workspace.run("show 2:0 --json").expect(0)).remove(0);
    assert_eq!(
        (&shown["state"], &shown["value"]),
        (&json!("completed"), &json!(10))
    );
    prerequisites_are_read(&workspace);
}

/// Jobs of scripts read the outcomes of the jobs for which they waited.
fn prerequisites_are_read(workspace: &Workspace) {
    workspace.write(
        "gather.py",
        r#"
import gristmill


def main(payload):
    told = gristmill.job().prerequisites
    assert told == gristmill.job().prerequisites and gristmill.job().flow is None
    return [[one["job"], one["state"], one.get("value"), one.get("error", {}).get("type")] for one in told]
"#,
    );
    workspace.write(
        "gather.mjs",
        r#"
export async function main() {
  const { prerequisites, flow } = gristmill.job();
  if (flow !== null) throw new Error("a job is no step");
  return prerequisites.map(({ job, state, value = null, error }) => [job, state, value, error?.type ?? null]);
}
"#,
    );
    let after = "--after 2:0 --after 1 --after-failure ignore";
    for (batch, kind, script) in [(4, "gather", "gather.py"), (5, "gatherjs", "gather.mjs")] {
        workspace.run(&format!("submit {kind} 1 2 {after}")).expect(0);
        let work = format!("worker {script} --kind {kind} --drain");
        workspace.run(&work).expect(0);
        for position in 0..2 {
            let shown = workspace
                .run(&format!("show {batch}:{position} --json"))
                .expect(0);
            assert_eq!(
                json_lines(&shown)[0]["value"],
                json!([
                    ["2:0", "completed", 10, null],
                    ["1:0", "completed", 2, null],
                    ["1:1", "dead", null, "ValueError"]
                ]),
                "{script}: {shown}"
            );
        }
    }
}

fn a_worker_ends_what_runs_when_it_is_interrupted(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace.write_stopping_script(2);
    workspace.run("submit k 2").expect(0);
    let child = workspace.spawn("worker stopping.py --kind k --json", std::process::Stdio::null());
    // Opening the pipe waits for the script.
    std::fs::read(workspace.path("reached")).unwrap();
    workspace::send_signal(&child, "-INT");
    std::fs::write(workspace.path("go"), "x").unwrap();
    let ended: workspace::Ended = child.wait_with_output().unwrap().into();
    assert_eq!(json_lines(&ended.expect(130))[0]["completed"], json!(1));
    assert_eq!(workspace.run("results --batch 1 --values").expect(0), "4\n");
}

fn a_worker_that_is_drained_ends_what_runs_and_its_process_succeeds(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace.write_stopping_script(2);
    workspace.run("submit k 2").expect(0);
    let child = workspace.spawn("worker stopping.py --kind k --json", std::process::Stdio::null());
    // Opening the pipe waits for the script.
    std::fs::read(workspace.path("reached")).unwrap();
    let worker = json_lines(&workspace.run("workers --json").expect(0)).remove(0);
    assert_eq!(worker["drain_at"], json!(null));
    let refused = workspace.run("drain 999").error();
    assert!(refused.contains("no worker has the id 999"), "{refused}");
    let asked = workspace.run(&format!("drain {}", worker["id"])).expect(0);
    assert_eq!(asked, "1 worker asked to drain\n");
    assert!(workspace.run("workers").expect(0).contains("draining"));
    std::fs::write(workspace.path("go"), "x").unwrap();
    let ended: workspace::Ended = child.wait_with_output().unwrap().into();
    assert_eq!(json_lines(&ended.expect(0))[0]["completed"], json!(1));
    assert_eq!(workspace.run("workers --json").expect(0), "");
}

fn old_batches_are_pruned_once_they_are_told(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace
        .write("double.py", DOUBLE)
        .write("items.jsonl", "1\n2\n");
    workspace.run("run double.py -i items.jsonl").expect(0);
    workspace.run("submit later 1").expect(0);
    assert_eq!(
        workspace.run("prune --older-than 1h").expect(0),
        "0 batches with 0 jobs deleted\n"
    );
    assert_eq!(
        workspace.run("prune --older-than 0s --dry-run").expect(0),
        "1 batch with 2 jobs would be deleted\n"
    );
    let pruned = workspace.run("prune --older-than 0s --json").expect(0);
    assert_eq!(json_lines(&pruned)[0], json!({"batches": 1, "jobs": 2}));
    assert_eq!(json_lines(&workspace.run("jobs --json").expect(0)).len(), 1);
}

fn runs_are_listed_and_a_wrong_name_names_the_right_ones(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace
        .write("double.py", DOUBLE)
        .write("items.jsonl", "1\n3\n");
    workspace
        .run("run double.py -i items.jsonl --name mine")
        .expect(1);
    let listed = workspace.run("runs").expect(0);
    assert!(
        listed.contains("mine  finished     2          1       1     0"),
        "{listed}"
    );
    let run = json_lines(&workspace.run("runs --json").expect(0)).remove(0);
    assert_eq!(
        (&run["counts"]["dead"], &run["progress"]["lines"]),
        (&json!(1), &json!(2))
    );
    for command in ["results other", "jobs --run other", "retry --run other"] {
        let ended = workspace.run(command);
        let error = ended.stderr.clone();
        ended.expect(1);
        assert!(
            error.contains("run `other` does not exist; this store has `mine`"),
            "{error}"
        );
    }
    workspace.run("show 9:9").expect(1);
}

#[test]
fn wrong_payloads_and_kinds_store_nothing() {
    let workspace = Workspace::new();
    workspace.write("double.py", DOUBLE).write("empty.jsonl", "\n");
    for (arguments, expected) in [
        ("submit k 1 {", "payload 2 is not JSON"),
        ("submit k text", "a string needs its own quotes"),
        ("submit k", "required arguments were not provided"),
        ("submit k --input empty.jsonl", "empty.jsonl has no items"),
        ("worker double.py double.py", "two scripts have the kind `double`"),
        ("worker double.py --kind a --kind b", "1 scripts and 2 kinds"),
        ("show 7", "write the batch and the position, as in 42:7"),
        ("jobs --state done", "is not a state"),
        ("fly", "unrecognized subcommand"),
    ] {
        let ended = workspace.run(arguments);
        let error = ended.error();
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    let workspace = Workspace::new();
    for (shell, part) in [
        ("bash", "_gristmill()"),
        ("zsh", "#compdef gristmill"),
        ("fish", "complete -c gristmill"),
    ] {
        assert!(
            workspace
                .run(&format!("completions {shell}"))
                .expect(0)
                .contains(part),
            "{shell}"
        );
    }
}

#[test]
fn the_dashboard_names_the_fault_of_its_store_or_address() {
    let workspace = Workspace::new();
    workspace.write("notes.txt", "notes");
    for (line, said) in [
        (
            "dashboard missing.db",
            "the store missing.db does not exist; name another with --store",
        ),
        (
            "dashboard --store missing.db",
            "the store missing.db does not exist",
        ),
        (
            "dashboard notes.txt",
            "notes.txt cannot be opened: it is not a SQLite database",
        ),
        (
            "dashboard .",
            ". cannot be opened: it is a folder; name a file in it",
        ),
        (
            "dashboard missing.db --listen 0.0.0.0:0",
            "`gristmill serve --trust DIR` shows the page to others",
        ),
    ] {
        let ended = workspace.run(line);
        assert!(ended.stderr.contains(said), "{line}: {}", ended.stderr);
        ended.expect(2);
    }
}
