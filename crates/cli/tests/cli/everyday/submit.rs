//! A submit stores all of its jobs or none. If it cannot, it says which ones are stored.

use std::io::Write;
use std::process::Stdio;

use crate::workspace::{Ended, Workspace};

on_each_store!(
    a_file_of_several_batches_is_stored_as_a_whole_or_not_at_all,
    a_pipe_that_pauses_says_what_is_stored,
    the_first_items_can_be_left_out,
);

/// Items with the keys 0, 1, …. The last item repeats the first.
fn items_with_a_duplicate(count: u32) -> String {
    let items = (0..count)
        .chain([0])
        .map(|key| format!("{{\"key\": \"{key}\"}}\n"));
    items.collect()
}

fn jobs(workspace: &Workspace) -> usize {
    let listed = workspace.run("jobs --limit 5000 --json");
    listed.expect(0).lines().count()
}

fn a_file_of_several_batches_is_stored_as_a_whole_or_not_at_all(workspace: fn() -> Workspace) {
    let workspace = workspace();
    workspace.write("items.jsonl", items_with_a_duplicate(2_500));
    workspace.run("submit other 1").expect(0);
    let error = workspace
        .run("submit page --input items.jsonl --key-field key --on-duplicate reject")
        .error();
    assert!(error.starts_with("error: nothing is submitted: "), "{error}");
    assert_eq!(jobs(&workspace), 1);
    let told = workspace
        .run("submit page --input items.jsonl --key-field key")
        .expect(0);
    assert!(told.contains("2,500 jobs submitted as batches"), "{told}");
}

fn a_pipe_that_pauses_says_what_is_stored(workspace: fn() -> Workspace) {
    let workspace = workspace();
    workspace.run("submit other 1").expect(0);
    let mut submitting = workspace
        .command("submit page --input - --key-field key --on-duplicate reject")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = submitting.stdin.take().unwrap();
    pipe.write_all(b"{\"key\": 1}\n{\"key\": 2}\n").unwrap();
    // The command submits the items that have arrived, although the pipe is still open.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while jobs(&workspace) < 3 {
        assert!(
            std::time::Instant::now() < deadline,
            "the pipe's items are not submitted"
        );
    }
    pipe.write_all(b"{\"key\": 3}\n{\"key\": 2}\n").unwrap();
    drop(pipe);
    let error = Ended::from(submitting.wait_with_output().unwrap()).error();
    assert!(
        error.starts_with(
            "error: the first 2 items are submitted, and no others; submit the rest with --skip 2: "
        ),
        "{error}"
    );
    assert_eq!(jobs(&workspace), 3);
}

fn the_first_items_can_be_left_out(workspace: fn() -> Workspace) {
    let workspace = workspace();
    workspace.write("items.jsonl", "1\nno JSON\n3\nno JSON either\n5\n");
    let told = workspace
        .run("submit page --input items.jsonl --skip 2 --batch 2")
        .expect(1);
    assert!(told.starts_with("3 jobs submitted as batches"), "{told}");
    let listed = workspace.run("jobs --json").expect(0);
    assert_eq!(listed.matches("\"dead\"").count(), 1, "{listed}");
    let error = workspace.run("submit page --input items.jsonl --skip 5").error();
    assert!(
        error.contains("items.jsonl has no items behind the first 5"),
        "{error}"
    );
}
