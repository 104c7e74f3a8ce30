//! `gristmill run` after Ctrl-C, kill -9 and changes of its script and input.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::workspace::{Ended, Workspace, json_lines, numbers, send_signal};

on_each_store! {
    after_kill_9_the_same_command_goes_on_and_repeats_nothing_that_was_committed,
    the_first_ctrl_c_drains_and_commits_and_tells_how_to_go_on,
    two_at_once_are_one_too_many,
    failed_jobs_can_be_retried_with_a_better_script,
    a_cancel_from_elsewhere_ends_the_run,
}

const COMMAND: &str = "run stopping.py --input items.jsonl --output out.jsonl --batch 100 -j 1 --json";

/// The time that a program may take for immediate work on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run that has reached the payload at which its script stops.
fn run_until_stopped(workspace: &Workspace) -> std::process::Child {
    let child = workspace.spawn(COMMAND, Stdio::null());
    // Opening the pipe waits for the script.
    fs::read(workspace.path("reached")).unwrap();
    child
}

/// The payloads of completed jobs in the store.
fn committed(workspace: &Workspace) -> Vec<u64> {
    let listed = workspace
        .run("jobs --state completed --limit 9999 --json")
        .expect(0);
    let position = |job: &str| -> u64 {
        let (batch, position) = job.split_once(':').unwrap();
        (batch.parse::<u64>().unwrap() - 1) * 100 + position.parse::<u64>().unwrap()
    };
    json_lines(&listed)
        .iter()
        .map(|row| position(row["job"].as_str().unwrap()) + 1)
        .collect()
}

fn check_whole_output(workspace: &Workspace, last: u64) {
    let values: Vec<_> = json_lines(&workspace.read("out.jsonl"))
        .iter()
        .map(|line| line["value"].as_u64())
        .collect();
    assert_eq!(
        values,
        (1..=last).map(|number| Some(number * 2)).collect::<Vec<_>>()
    );
}

fn after_kill_9_the_same_command_goes_on_and_repeats_nothing_that_was_committed(
    new_workspace: fn() -> Workspace,
) {
    let workspace = new_workspace();
    workspace.write_stopping_script(2_500);
    workspace.write("items.jsonl", numbers(5_000));
    let mut child = run_until_stopped(&workspace);
    // The jobs before it are committed.
    let begun = Instant::now();
    while committed(&workspace).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "nothing was committed");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let committed = committed(&workspace);
    fs::remove_file(workspace.path("stop")).unwrap();

    let summary = json_lines(&workspace.run(COMMAND).expect(0)).remove(0);
    assert_eq!(
        (&summary["completed"], &summary["state"]),
        (&json!(5_000), &json!("finished"))
    );
    // A database may commit the last statement of a client that was killed after these were listed.
    let left = (5_000 - committed.len()) as u64;
    let ended = summary["jobs_ended"].as_u64().expect("a number");
    assert!((1..=left).contains(&ended), "{ended} of {left}");
    check_whole_output(&workspace, 5_000);
    let ran = workspace.ran();
    assert_eq!(ran.len(), 5_000);
    for payload in committed {
        assert_eq!(ran[&payload], 1, "{payload} was committed and ran again");
    }

    let runs_before = workspace.ran();
    let again = workspace.run("run stopping.py --input items.jsonl --output again.jsonl --batch 100");
    assert!(
        again.stderr.contains("had finished before; nothing ran"),
        "{}",
        again.stderr
    );
    again.expect(0);
    assert_eq!(workspace.read("again.jsonl"), workspace.read("out.jsonl"));
    assert_eq!(workspace.ran(), runs_before);
}

fn the_first_ctrl_c_drains_and_commits_and_tells_how_to_go_on(new_workspace: fn() -> Workspace) {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let workspace = new_workspace();
        workspace.write_stopping_script(2_500);
        workspace.write("items.jsonl", numbers(5_000));
        let child = run_until_stopped(&workspace);
        send_signal(&child, signal);
        fs::remove_file(workspace.path("stop")).unwrap();
        // The running job is released and can end.
        fs::write(workspace.path("go"), "x").unwrap();
        let ended: Ended = child.wait_with_output().unwrap().into();
        assert!(
            ended.stderr.contains("finishing running jobs"),
            "{}",
            ended.stderr
        );
        let summary = json_lines(&ended.expect(code)).remove(0);
        assert_eq!(summary["state"], "stopped");

        let committed = committed(&workspace);
        assert!(
            committed.contains(&2_500),
            "what was running when Ctrl-C came is committed"
        );
        let written = workspace.read("out.jsonl").lines().count();
        assert!(written <= committed.len());
        check_whole_output(&workspace, written as u64);
        workspace.run(COMMAND).expect(0);
        check_whole_output(&workspace, 5_000);
        assert!(
            workspace.ran().values().all(|times| *times == 1),
            "a drained run repeats nothing"
        );
    }
}

#[test]
fn the_second_ctrl_c_leaves_at_once() {
    let workspace = Workspace::new();
    workspace.write_stopping_script(10);
    workspace.write("items.jsonl", numbers(100));
    let mut child = run_until_stopped(&workspace);
    send_signal(&child, "-INT");
    // The script still waits, so only the second signal can end the program.
    let mut messages = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("finishing running jobs") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut messages, &mut line).unwrap(), 0);
    }
    send_signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    fs::remove_file(workspace.path("stop")).unwrap();
    workspace.run(COMMAND).expect(0);
    check_whole_output(&workspace, 100);
}

fn two_at_once_are_one_too_many(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace.write_stopping_script(10);
    workspace.write("items.jsonl", numbers(100));
    let child = run_until_stopped(&workspace);
    let error = workspace.run(COMMAND).error();
    assert!(
        error.contains("run `stopping.py:items.jsonl` is running in another process"),
        "{error}"
    );
    fs::write(workspace.path("go"), "x").unwrap();
    let ended: Ended = child.wait_with_output().unwrap().into();
    ended.expect(0);
    check_whole_output(&workspace, 100);
}

/// A workspace with a finished run of three numbers.
fn finished() -> Workspace {
    let workspace = Workspace::new();
    workspace
        .write("a.py", "def main(payload):\n    return payload\n")
        .write("items.jsonl", "1\n2\n3\n");
    workspace.run("run a.py -i items.jsonl").expect(0);
    workspace
}

#[test]
fn a_changed_script_stops_the_run_unless_told() {
    let workspace = finished();
    workspace.write("a.py", "def main(payload):\n    return -payload\n");
    let error = workspace.run("run a.py -i items.jsonl").error();
    for part in ["a.py has changed", "--continue", "--restart", "--name"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    // Completed jobs stay as they are.
    assert_eq!(
        workspace
            .run("run a.py -i items.jsonl --continue --values")
            .expect(0),
        "1\n2\n3\n"
    );
    assert_eq!(
        workspace.run("run a.py -i items.jsonl --values").expect(0),
        "1\n2\n3\n"
    );
    assert_eq!(
        workspace
            .run("run a.py -i items.jsonl --restart --values")
            .expect(0),
        "-1\n-2\n-3\n"
    );
}

#[test]
fn a_changed_input_stops_the_run_unless_told() {
    let workspace = finished();
    workspace.write("items.jsonl", "1\n2\n3\n4\n");
    let ended = workspace.run("run a.py -i items.jsonl --values");
    assert!(
        ended
            .stderr
            .contains("goes on with the new items of items.jsonl; 3 jobs done before"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.expect(0), "1\n2\n3\n4\n");
    workspace.write("items.jsonl", "7\n2\n3\n4\n5\n");
    let error = workspace.run("run a.py -i items.jsonl").error();
    assert!(
        error.contains("at least one of its first 4 lines has changed"),
        "{error}"
    );
    assert_eq!(
        workspace
            .run("run a.py -i items.jsonl --continue --values")
            .expect(0),
        "1\n2\n3\n4\n5\n"
    );
    assert_eq!(
        workspace
            .run("run a.py -i items.jsonl --restart --values")
            .expect(0),
        "7\n2\n3\n4\n5\n"
    );
    // The same bytes in a new file are not a change.
    workspace.write("items.jsonl", "7\n2\n3\n4\n5\n");
    assert_eq!(
        workspace.run("run a.py -i items.jsonl --values").expect(0),
        "7\n2\n3\n4\n5\n"
    );
    let error = workspace.run("run a.py -i items.jsonl --format lines").error();
    assert!(
        error.contains("its format was jsonl, and is now lines"),
        "{error}"
    );
}

#[test]
fn standard_input_is_compared_too() {
    let workspace = Workspace::new();
    workspace.write("a.py", "def main(payload):\n    return payload\n");
    workspace
        .run_with("run a.py --name piped --limit 2", b"1\n2\n3\n")
        .expect(0);
    assert_eq!(
        workspace
            .run_with("run a.py --name piped --values", b"1\n2\n3\n")
            .expect(0),
        "1\n2\n3\n"
    );
    let error = workspace.run_with("run a.py --name piped", b"1\n5\n3\n").error();
    assert!(
        error.contains("the input stdin has changed: at least one of its first 3 lines has changed"),
        "{error}"
    );
    let error = workspace.run_with("run a.py --name piped", b"").error();
    assert!(error.contains("it is shorter than before"), "{error}");
}

fn failed_jobs_can_be_retried_with_a_better_script(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace
        .write(
            "a.py",
            "def main(payload):\n    if payload == 2:\n        raise KeyError('two')\n    return payload\n",
        )
        .write("items.jsonl", "1\n2\n3\n");
    workspace.run("run a.py -i items.jsonl").expect(1);
    workspace.write("a.py", "def main(payload):\n    return payload\n");
    assert_eq!(
        workspace
            .run("retry --state dead --run a.py:items.jsonl")
            .expect(0),
        "1 job can run again\n"
    );
    assert_eq!(
        workspace
            .run("run a.py -i items.jsonl --continue --values")
            .expect(0),
        "1\n2\n3\n"
    );
}

fn a_cancel_from_elsewhere_ends_the_run(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace.write_stopping_script(250);
    workspace.write("items.jsonl", numbers(1_000));
    let child = run_until_stopped(&workspace);
    let cancelled = workspace
        .run("cancel --run stopping.py:items.jsonl --json")
        .expect(0);
    assert!(json_lines(&cancelled)[0]["changed"].as_u64().unwrap() > 0);
    fs::write(workspace.path("go"), "x").unwrap();
    let ended: Ended = child.wait_with_output().unwrap().into();
    let summary = json_lines(&ended.expect(1)).remove(0);
    assert_eq!(
        summary["completed"].as_u64().unwrap() + summary["failed"].as_u64().unwrap(),
        1_000
    );
    let cancelled = json_lines(&workspace.read("out.jsonl"))
        .iter()
        .filter(|line| line["error"]["type"] == "cancelled")
        .count();
    assert_eq!(summary["failed"], json!(cancelled));
}

#[test]
fn a_run_with_a_damaged_batch_runs_all_others_and_names_it() {
    let workspace = Workspace::new();
    workspace.write_stopping_script(150);
    workspace.write("items.jsonl", numbers(400));
    let mut child = run_until_stopped(&workspace);
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(workspace.path("stop")).unwrap();
    let store = rusqlite::Connection::open(workspace.path("gristmill.db")).unwrap();
    let damage = "UPDATE batch SET payloads = replace(payloads, '150', '159') WHERE id = 2";
    assert_eq!(store.execute(damage, []), Ok(1));
    drop(store);

    let ended = workspace.run(COMMAND);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("error: batch 2 is damaged"),
        "{}",
        ended.stderr
    );
    let payloads = committed(&workspace);
    let others = payloads.iter().filter(|payload| !(101..=200).contains(*payload));
    assert_eq!(others.count(), 300);
    assert!(!workspace.ran().contains_key(&159), "a damaged payload runs");

    // The error names this remedy.
    workspace.run("cancel --batch 2").expect(0);
    let summary = json_lines(&workspace.run(COMMAND).expect(1)).remove(0);
    assert_eq!(summary["state"], json!("finished"), "{summary}");
    assert_eq!(json_lines(&workspace.read("out.jsonl")).len(), 400);
}
