//! `gristmill schedule`.

use serde_json::json;

use crate::workspace::{Workspace, json_lines};

#[test]
fn a_schedule_is_put_listed_triggered_and_deleted() {
    let workspace = Workspace::new();
    let put = workspace
        .run("schedule put nightly shout \"hello\" --cron @daily --time-zone Asia/Tokyo --priority 3");
    let put = put.expect(0);
    assert!(put.starts_with("schedule nightly is next due at 2"), "{put}");
    workspace
        .run("schedule put beat shout --every 90s --overlap skip")
        .expect(0);
    let listed = workspace.run("schedule list").expect(0);
    assert!(listed.starts_with("schedule  rule"), "{listed}");
    for part in ["@daily (Asia/Tokyo)", "every 90s", "nightly"] {
        assert!(listed.contains(part), "{part} in {listed}");
    }

    assert_eq!(workspace.run("schedule trigger nightly").expect(0), "1:0\n");
    let shown = json_lines(&workspace.run("show 1:0 --json").expect(0)).remove(0);
    assert_eq!(
        (&shown["payload"], &shown["priority"], &shown["kind"]),
        (&json!("hello"), &json!(3), &json!("shout"))
    );

    assert_eq!(
        workspace.run("schedule pause nightly beat").expect(0),
        "2 schedules paused\n"
    );
    assert_eq!(
        workspace.run("schedule list").expect(0).matches("paused").count(),
        2
    );
    assert_eq!(
        workspace.run("schedule resume beat").expect(0),
        "1 schedule resumed\n"
    );
    let rows = json_lines(&workspace.run("schedule list --json").expect(0));
    assert!(
        rows[0]["next_at"].is_string() && rows[1]["next_at"].is_null(),
        "{rows:?}"
    );
    assert_eq!(
        (&rows[0]["paused_until"], &rows[1]["paused_until"]),
        (&json!(null), &json!("9999-12-31T23:59:59.999Z"))
    );
    assert_eq!(
        workspace.run("schedule delete beat nightly").expect(0),
        "2 schedules deleted\n"
    );
    assert_eq!(workspace.run("schedule list").expect(0), "");
}

#[test]
fn wrong_schedules_are_explained() {
    let workspace = Workspace::new();
    for (command, told) in [
        ("schedule put x y --cron boo", "`boo` is not a cron expression"),
        (
            "schedule put x y --cron @daily --time-zone Mars",
            "time zone `Mars` does not exist",
        ),
        (
            "schedule put x y not-json --every 1h",
            "the payload `not-json` is not JSON",
        ),
        ("schedule put x y", "--cron <EXPRESSION>"),
        ("schedule put x y --every 1ms", "give 1000 to 316224000000 ms"),
    ] {
        let error = workspace.run(command).error();
        assert!(error.contains(told), "{command}: {error}");
    }
    workspace.run("schedule put x y --every 1h").expect(0);
    let ended = workspace.run("schedule delete x absent");
    let error = ended.stderr.clone();
    ended.expect(1);
    assert!(error.contains("schedule `absent` does not exist"), "{error}");
    assert!(
        workspace.run("schedule list").expect(0).contains("every 3600s"),
        "nothing was deleted"
    );
}

#[test]
fn a_schedule_takes_the_options_of_a_submit() {
    let workspace = Workspace::new();
    let shown = |job: &str| {
        let shown = workspace.run(&format!("show {job} --json")).expect(0);
        json_lines(&shown).remove(0)
    };
    workspace
        .run(
            "schedule put sync import {\"shop\":7,\"eu\":true} --every 10m --key-field shop --on-duplicate replace \
             --key-scope queue --key-period 1h --tag-field eu --tag size=s --queue slow --group acme --priority high \
             --retries 5 --backoff linear --retry-delay 2s --timeout 1m --complete-within 1h --expires 1d",
        )
        .expect(0);
    assert_eq!(workspace.run("schedule trigger sync").expect(0), "1:0\n");
    let job = shown("1:0");
    assert_eq!(
        (
            &job["key"],
            &job["tags"],
            &job["queue"],
            &job["group"],
            &job["priority"]
        ),
        (
            &json!("7"),
            &json!({"eu": "true", "size": "s"}),
            &json!("slow"),
            &json!("acme"),
            &json!(10)
        ),
        "{job}"
    );
    let options = &job["options"];
    assert_eq!(
        (
            &options["retry"]["attempts_max"],
            &options["timeout_ms"],
            &options["complete_within_ms"],
            &options["unique"]["period_ms"]
        ),
        (&json!(6), &json!(60_000), &json!(3_600_000), &json!(3_600_000)),
        "{job}"
    );
    assert!(options["expires_at"].is_string(), "{job}");
    // Another submit has its key: the next moment takes its place.
    workspace
        .run("submit other 1 --queue slow --key 7 --key-scope queue --on-duplicate replace")
        .expect(0);
    assert_eq!(shown("1:0")["state"], "cancelled");
    assert_eq!(workspace.run("schedule trigger sync").expect(0), "3:0\n");
    assert_eq!(shown("2:0")["state"], "cancelled");

    workspace
        .run("schedule put once import 1 --every 10m --key one --debounce 10s --debounce-max 1m --debounce-merge")
        .expect(0);
    let merged = workspace.run("schedule trigger once").expect(0);
    assert_eq!(workspace.run("schedule trigger once").expect(0), merged);
    assert_eq!(shown(merged.trim())["payload"], json!([1, 1]));
    workspace
        .run("schedule put cached import 1 --every 10m --cached 1h --on-success done")
        .expect(0);
    let rows = json_lines(&workspace.run("schedule list --json").expect(0));
    assert_eq!(rows[0]["options"]["cached_ms"], 3_600_000, "{rows:?}");
    assert_eq!(rows[2]["key"], "7", "{rows:?}");
}

#[test]
fn options_without_a_use_for_schedules_are_refused_with_the_reason() {
    let workspace = Workspace::new();
    for (options, says) in [
        (
            "--input a.jsonl",
            "does not take --input: a schedule submits one job at a time",
        ),
        ("--format lines", "does not take --format"),
        ("--batch 10", "does not take --batch"),
        (
            "--delay 5m",
            "does not take --delay: the jobs of a schedule start when they are due",
        ),
        (
            "--after 1",
            "does not take --after: the jobs of a schedule wait for no others",
        ),
        ("--after-failure fail", "does not take --after-failure"),
        ("--key a --key b", "2 keys for one payload"),
        (
            "--key-field b",
            "--key-field b: the payload has no text, number or boolean in this field",
        ),
        (
            "--tag-field b",
            "--tag-field b: the payload has no text, number or boolean in this field",
        ),
        ("--debounce 1m", "give --key or --key-field"),
        ("--key a --on-success done", "jobs with keys cannot have hooks"),
        (
            "--key a --on-duplicate reject",
            "choose `skip`, `replace` or `rerun`",
        ),
        ("--key a --overlap skip", "leave out one of them"),
        ("--key a --cached 1h", "cannot be used with"),
    ] {
        let error = workspace
            .run(&format!("schedule put x y {{\"a\":1}} --every 1h {options}"))
            .error();
        assert!(error.contains(says), "{options}: {error}");
    }
    assert_eq!(workspace.run("schedule list").expect(0), "");
    let help = workspace.run("schedule put --help").expect(0);
    assert!(
        help.contains("--key-field") && !help.contains("--after"),
        "{help}"
    );
}
