//! The accepted texts of `--help`. `UPDATE_GOLDEN=1 cargo test -p gristmill --test cli help` accepts the current ones.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::workspace::Workspace;

/// The commands, by the folder of their texts.
const COMMANDS: &[(&str, &[&str])] = &[
    ("", &["", "run", "llm", "schedule", "completions", "man"]),
    (
        "jobs/",
        &[
            "submit",
            "jobs",
            "tags",
            "show",
            "logs",
            "events",
            "retry",
            "cancel",
            "discard",
            "priority",
            "results",
            "wait",
            "flow",
            "flow list",
            "flow show",
            "flow event",
        ],
    ),
    ("controls/", &["pause", "resume", "pauses", "limit"]),
    ("fleet/", &["worker", "serve", "dashboard", "agent", "token"]),
    (
        "store/",
        &[
            "runs", "queues", "workers", "drain", "stats", "history", "prune", "backup", "check",
        ],
    ),
    ("memory/", &["ingest", "recall", "ask", "chat", "memory", "mcp"]),
];

#[test]
fn the_help_has_not_changed_since_it_was_accepted() {
    let workspace = Workspace::new();
    let mut differ = Vec::new();
    let commands = COMMANDS
        .iter()
        .flat_map(|(folder, commands)| commands.iter().map(move |command| (folder, command)));
    for (folder, command) in commands {
        let help = workspace.run(&format!("{command} --help")).expect(0);
        let name = match *command {
            "" => "gristmill".to_owned(),
            command => command.replace(' ', "-"),
        };
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

#[test]
fn the_footer_is_wrapped_once_at_the_width_of_the_terminal() {
    let workspace = Workspace::new();
    for columns in [50, 72, 100] {
        let help = workspace
            .command("help run")
            .env("COLUMNS", columns.to_string())
            .output()
            .unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let footer = &help[help.find("The script has a function").unwrap()..];
        let paragraph: Vec<&str> = footer.lines().take_while(|line| !line.is_empty()).collect();
        let (last, whole) = paragraph.split_last().unwrap();
        assert!(last.len() <= columns, "{footer}");
        for line in whole {
            assert!(
                line.len() <= columns && line.len() + 25 > columns,
                "{columns}: {line}"
            );
        }
    }
}

#[test]
fn help_and_man_pages_exist_for_every_command() {
    let workspace = Workspace::new();
    assert_eq!(
        workspace.run("help schedule put").expect(0),
        workspace.run("schedule put --help").expect(0)
    );
    let page = workspace.run("man schedule put").expect(0);
    assert!(
        page.contains(".TH gristmill-schedule-put 1") && page.contains("cron"),
        "{page}"
    );
    assert!(workspace.run("man").expect(0).contains(".TH gristmill 1"));
    let error = workspace.run("man nope").error();
    assert!(error.contains("`gristmill nope` is not a command"), "{error}");
}

#[test]
fn help_is_coloured_only_on_a_terminal_or_on_request() {
    let workspace = Workspace::new();
    let is_coloured = |text: String| text.contains('\u{1b}');
    assert!(!is_coloured(workspace.run("run --help").expect(0)));
    assert!(is_coloured(workspace.run("run --help --color always").expect(0)));
    assert!(!is_coloured(workspace.run("--color=never run --help").expect(0)));
}

#[test]
fn a_terminal_gets_colours_unless_its_environment_forbids_them() {
    let in_terminal = |no_color: &str| {
        let run = "import pty, sys\npty.spawn(sys.argv[1:])";
        let output = Command::new("python3")
            .args(["-c", run, env!("CARGO_BIN_EXE_gristmill"), "run", "--help"])
            .env("TERM", "xterm-256color")
            .env("NO_COLOR", no_color)
            .stdin(Stdio::null())
            .output()
            .expect("python3 runs");
        String::from_utf8(output.stdout).expect("the help is UTF-8")
    };
    let (coloured, plain) = (in_terminal(""), in_terminal("1"));
    assert!(coloured.contains('\u{1b}'), "{coloured}");
    assert!(plain.contains("Usage:") && !plain.contains('\u{1b}'), "{plain}");
}
