//! The program without the feature `full`: scripts and jobs on SQLite, and clear errors for everything else.
//! `make test-left-out` builds that program, and runs these tests on it.

use std::path::Path;
use std::process::{Command, Output};

fn gristmill(folder: &Path, arguments: &[&str]) -> Output {
    let program =
        std::env::var_os("GRISTMILL_WITHOUT_FULL").expect("GRISTMILL_WITHOUT_FULL names the program");
    Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env_remove("GRISTMILL_STORE")
        .output()
        .unwrap()
}

#[track_caller]
fn refused(output: &Output, part: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains(&format!("built without {part}")) && error.contains("make build"),
        "{error}"
    );
}

#[test]
#[ignore = "make test-left-out builds the program without the feature `full`"]
fn scripts_run_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let script = "def main(item):\n    return item * 2\n";
    std::fs::write(folder.path().join("double.py"), script).unwrap();
    std::fs::write(folder.path().join("items.jsonl"), "1\n2\n3\n").unwrap();
    let files = ["--input", "items.jsonl", "--output", "doubled.jsonl"];
    let ran = gristmill(folder.path(), &[&["run", "double.py"], &files[..]].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let doubled = std::fs::read_to_string(folder.path().join("doubled.jsonl")).unwrap();
    let values: Vec<&str> = doubled
        .lines()
        .filter_map(|line| line.split("\"value\":").nth(1))
        .filter_map(|rest| rest.split(['}', ',']).next())
        .collect();
    assert_eq!(values, ["2", "4", "6"], "{doubled}");
}

#[test]
#[ignore = "make test-left-out builds the program without the feature `full`"]
fn commands_that_are_left_out_name_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let commands = [
        "serve",
        "dashboard",
        "agent",
        "token",
        "ingest",
        "recall",
        "ask",
        "chat",
        "memory",
        "mcp",
    ];
    for command in commands {
        let part = format!("`gristmill {command}`");
        refused(&gristmill(folder.path(), &[command]), &part);
    }
    let help = gristmill(folder.path(), &["--help"]).stdout;
    let help = String::from_utf8_lossy(&help);
    assert!(help.contains("\n  submit "), "{help}");
    assert!(
        !help.contains("\n  serve ") && !help.contains("\n  recall "),
        "{help}"
    );
}

#[test]
#[ignore = "make test-left-out builds the program without the feature `full`"]
fn databases_and_servers_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let database = ["jobs", "--store", "postgresql://nobody@localhost/none"];
    refused(&gristmill(folder.path(), &database), "PostgreSQL");
    let server = [
        "logs",
        "--follow",
        "--kind",
        "a",
        "--base-url",
        "http://localhost:1",
    ];
    refused(&gristmill(folder.path(), &server), "the client of servers");
}
