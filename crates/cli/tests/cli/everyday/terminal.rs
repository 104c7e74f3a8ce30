//! Output of commands on a terminal.

use std::process::{Command, Stdio};

use crate::workspace::{Workspace, numbers};

/// This makes three portions, because a batch has as many jobs as a portion.
#[test]
fn a_change_of_many_jobs_shows_a_bar_on_a_terminal() {
    let workspace = Workspace::new();
    let submitted = workspace.run_with("submit page --input -", numbers(30_000).as_bytes());
    submitted.expect(0);
    let shown = in_terminal(&workspace, "pause --batch 1 --reason deploy");
    assert!(!shown.contains(" changed"), "one portion needs no bar: {shown}");
    let shown = in_terminal(&workspace, "cancel --kind page");
    assert!(
        shown.contains(" of 30,000 changed") && shown.contains("30,000 jobs cancelled"),
        "{shown}"
    );
    assert_eq!(
        workspace.run("jobs --state cancelled --count").expect(0),
        "30000\n"
    );
    let plain = workspace.run("retry --kind page");
    assert!(plain.stderr.is_empty(), "{}", plain.stderr);
    assert_eq!(plain.expect(0), "30,000 jobs can run again\n");
}

/// Escapes in a job's error could overwrite text on the screen or the title of the window.
#[test]
fn a_terminal_gets_no_control_characters_of_errors() {
    let workspace = Workspace::new();
    let script = "def main(payload):\n    raise ValueError('\\x1b]0;owned\\x07\\x1b[2Jgone')\n";
    workspace.write("hostile.py", script).write("items.jsonl", "1\n");
    for arguments in [
        "run hostile.py items.jsonl --output out.jsonl",
        "show 1:0",
        "jobs",
        "run hostile.py items.jsonl --output out.jsonl --retry-failed",
    ] {
        let shown = in_terminal(&workspace, arguments);
        assert!(shown.contains("gone"), "{arguments}: {shown}");
        assert!(
            !shown.contains("\u{1b}]0;") && !shown.contains("\u{1b}[2J"),
            "{arguments}: {shown:?}"
        );
    }
    // A file keeps the text.
    let plain = workspace.run("run hostile.py items.jsonl --output out.jsonl --retry-failed");
    assert!(plain.stderr.contains("\u{1b}[2Jgone"), "{:?}", plain.stderr);
}

/// The output of a command on a terminal.
fn in_terminal(workspace: &Workspace, arguments: &str) -> String {
    let command = workspace.command(arguments);
    let mut terminal = Command::new("python3");
    terminal
        .args(["-c", "import pty, sys\npty.spawn(sys.argv[1:])"])
        .arg(command.get_program())
        .args(command.get_args())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        terminal.current_dir(folder);
    }
    let output = terminal.output().expect("python3 runs");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}
