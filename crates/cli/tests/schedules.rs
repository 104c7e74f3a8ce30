//! `gristmill schedule`.

mod workspace;

use serde_json::json;
use workspace::{Workspace, json_lines};

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
