//! The JSON output of commands.

use serde_json::{Value, json};

use super::{PAGE, json_of};
use crate::workspace::{Workspace, json_lines};

/// Reports whether the value of this field is a time in the form of RFC 3339.
fn is_time(row: &Value, field: &str) -> bool {
    let text = row[field].as_str().unwrap_or_default();
    text.len() == 24 && text.starts_with("20") && text.ends_with('Z')
}

#[test]
fn submit_has_one_shape_as_json() {
    let workspace = Workspace::new();
    workspace.write("items.jsonl", "{\"k\":1}\n{\"k\":1}\nnope\n");
    let told = |command: &str, code| json_lines(&workspace.run(command).expect(code)).remove(0);
    assert_eq!(
        told("submit page 1 2 --json", 0),
        json!({"jobs": 2, "rejected": 0, "duplicates": 0, "batches": [{"batch": 1, "jobs": 2}], "ids": ["1:0", "1:1"]})
    );
    assert_eq!(
        told("submit page 1 2 --key a --key a --json", 0),
        json!({"jobs": 1, "rejected": 0, "duplicates": 1, "batches": [{"batch": 2, "jobs": 1}], "ids": ["2:0", "2:0"]})
    );
    assert_eq!(
        told("submit page --input items.jsonl --batch 2 --json", 1),
        json!({
            "jobs": 3, "rejected": 1, "duplicates": 0, "ids": ["3:0", "3:1", "4:0"],
            "batches": [{"batch": 3, "jobs": 2}, {"batch": 4, "jobs": 1}],
        })
    );
}

#[test]
fn times_as_json_are_texts() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE).write("items.jsonl", "1\n");
    workspace
        .run("submit page 3 {\"run_at\":12345678901234567890123} --retries 0 --expires 1h")
        .expect(0);
    workspace.run("worker page.py --drain --quiet").expect(1);
    workspace
        .run("run page.py items.jsonl --name r -o out.jsonl --quiet")
        .expect(0);
    workspace.run("schedule put nightly page --every 1h").expect(0);
    for (command, fields) in [
        ("jobs --json", ["submitted_at", "finished_at"].as_slice()),
        ("show 1:0 --json", &["submitted_at", "finished_at"]),
        ("runs --json", &["created_at"]),
        ("schedule list --json", &["since", "next_at"]),
        ("pause --kind page --for 1h --json", &[]),
        ("history --by day --json", &["from"]),
        (
            "token create --role admin --group me --json",
            &["created_at", "expires_at"],
        ),
        ("token list --json", &["created_at", "expires_at"]),
    ] {
        let row = json_of(&workspace, command).remove(0);
        for field in fields {
            assert!(is_time(&row, field), "{command}: {field} of {row}");
        }
    }
    assert!(is_time(
        &json_of(&workspace, "show 1:0 --json")[0]["failures"][0],
        "failed_at"
    ));
    let pause = &json_of(&workspace, "pauses --json")[0];
    assert!(is_time(&pause["effect"]["pause"], "until"), "{pause}");
    let shown = workspace.run("show 1:1 --json").expect(0);
    assert!(shown.contains("{\"run_at\":12345678901234567890123}"), "{shown}");
}

#[test]
fn tokens_are_told_as_json() {
    let workspace = Workspace::new();
    let told = |command: &str| json_of(&workspace, command).remove(0);
    let created = told("token create --role admin --group me --json");
    assert!(created["token"].as_str().unwrap().len() > 40, "{created}");
    let jti = created["jti"].as_str().unwrap();
    let listed = told("token list --json");
    assert_eq!((&listed["jti"], listed.get("token")), (&created["jti"], None));
    let revoked = told(&format!("token revoke {jti} --json"));
    assert!(
        revoked["jti"] == jti && is_time(&revoked, "revoked_at"),
        "{revoked}"
    );
    assert!(told("token rotate-key --json")["kid"].is_string());
}

#[test]
fn changes_are_told_as_json() {
    let workspace = Workspace::new();
    workspace.run("submit page 1 2").expect(0);
    let told = |command: &str| json_of(&workspace, command).remove(0);
    assert_eq!(told("pause 1:0 --json")["changed"], 1);
    assert_eq!(told("resume 1:0 --json")["changed"], 1);
    assert_eq!(told("pause --kind page --json")["scope"]["kind"], "page");
    assert_eq!(told("resume --kind page --json"), json!({"lifted": 1}));
    assert_eq!(
        told("limit set --kind page --concurrency 2 --json")["scope"]["kind"],
        "page"
    );
    assert_eq!(told("limit lift --kind page --json"), json!({"lifted": 1}));
    assert_eq!(
        told("schedule put nightly page --every 1h --json")["kind"],
        "page"
    );
    assert_eq!(
        told("schedule trigger nightly --json"),
        json!({"schedule": "nightly", "job": "2:0"})
    );
    assert_eq!(told("schedule delete nightly --json"), json!({"changed": 1}));
}

#[test]
fn logs_are_told_as_json() {
    let workspace = Workspace::new();
    let script = "def main(payload):\n    print('hello', payload)\n    print('bye')\n";
    workspace.write("say.py", script);
    workspace.run("submit say 1").expect(0);
    workspace.run("worker say.py --drain --quiet").expect(0);
    let printed = json!({"job": "1:0", "attempt": 1, "text": "hello 1\nbye\n"});
    let ended = json!({"job": "1:0", "state": "completed"});
    let followed = json_of(&workspace, "logs 1:0 --follow --json");
    assert_eq!(followed, [printed, ended]);
    assert_eq!(json_of(&workspace, "logs 1:0 --json"), followed[..1]);
}
