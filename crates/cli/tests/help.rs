//! The texts of `--help`, as they were last accepted. `UPDATE_GOLDEN=1 cargo test -p gristmill --test help`
//! accepts them as they are.

mod workspace;

use std::path::PathBuf;

use workspace::Workspace;

/// The commands, by the folder of their texts.
const COMMANDS: &[(&str, &[&str])] = &[
    ("", &["", "run", "schedule", "completions"]),
    (
        "jobs/",
        &[
            "submit", "jobs", "tags", "show", "logs", "events", "retry", "cancel", "discard", "priority",
            "results", "wait",
        ],
    ),
    ("controls/", &["pause", "resume", "pauses", "limit"]),
    ("fleet/", &["worker", "serve", "agent", "token"]),
    (
        "store/",
        &["runs", "queues", "workers", "stats", "history", "prune"],
    ),
    ("memory/", &["ingest", "recall", "ask", "memory", "mcp"]),
];

#[test]
fn the_help_is_as_it_was_accepted() {
    let workspace = Workspace::new();
    let mut differ = Vec::new();
    let commands = COMMANDS
        .iter()
        .flat_map(|(folder, commands)| commands.iter().map(move |command| (folder, command)));
    for (folder, command) in commands {
        let help = workspace.run(&format!("{command} --help")).expect(0);
        let name = if command.is_empty() { "gristmill" } else { command };
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{folder}{name}.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &help).unwrap();
        } else if std::fs::read_to_string(&path).ok().as_deref() != Some(&help) {
            differ.push(name);
        }
        assert!(
            command.is_empty() || help.contains("gristmill "),
            "{command} has no example"
        );
    }
    assert!(
        differ.is_empty(),
        "{differ:?} differ from tests/golden; accept them with UPDATE_GOLDEN=1"
    );
}
