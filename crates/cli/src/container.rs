//! Containers say in the environment what they are: `MODE` stands for the command where none is written.

use std::ffi::OsString;

/// The variable.
pub const MODE_VARIABLE: &str = "MODE";

/// What `--help` says of it.
pub const CONTAINER_HELP: &str = "\
Containers:
  Where no command is written, the environment's MODE stands for it: standalone and server (serve),
  worker, agent, and agent-batch (agent --batch, with BATCH_PULL_SIZE or 1000). What follows are the
  scripts. Also read: GRISTMILL_STORE, PGPASSWORD, GRISTMILL_LISTEN, GRISTMILL_TRUST, GRISTMILL_LEASE, BASE_URL,
  AGENT_TOKEN.
    docker run -e MODE=agent-batch -e BASE_URL=… -e AGENT_TOKEN=… IMAGE resize.py --kind resize";

/// The jobs that `agent-batch` takes at once where `BATCH_PULL_SIZE` does not say.
const BATCH_PULL_SIZE_DEFAULT: &str = "1000";

/// The program's arguments with the command that `mode` stands for, where `arguments` begin with none of `commands`.
pub fn with_command(
    arguments: Vec<OsString>,
    mode: Option<&str>,
    is_batch_size_known: bool,
    is_command: impl Fn(&str) -> bool,
) -> Vec<OsString> {
    let words: &[&str] = match mode {
        Some("standalone" | "server") => &["serve"],
        Some("worker") => &["worker"],
        Some("agent-batch") if !is_batch_size_known => &["agent", "--batch", BATCH_PULL_SIZE_DEFAULT],
        Some("agent" | "agent-batch") => &["agent"],
        _ => return arguments,
    };
    let first = arguments.get(1).map(|argument| argument.to_string_lossy());
    if first.is_some_and(|first| is_command(&first)) {
        return arguments;
    }
    let mut arguments = arguments.into_iter();
    let program = arguments.next();
    program
        .into_iter()
        .chain(words.iter().map(OsString::from))
        .chain(arguments)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mode: Option<&str>, is_batch_size_known: bool, arguments: &str) -> String {
        let arguments = arguments.split(' ').map(OsString::from).collect();
        let is_command = |word: &str| ["jobs", "agent", "--help"].contains(&word);
        let words = with_command(arguments, mode, is_batch_size_known, is_command);
        words
            .iter()
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_mode_stands_for_the_command_where_none_is_written() {
        for (mode, known, arguments, expected) in [
            (None, false, "gristmill", "gristmill"),
            (Some("server"), false, "gristmill", "gristmill serve"),
            (
                Some("standalone"),
                false,
                "gristmill a.py --kind a",
                "gristmill serve a.py --kind a",
            ),
            (Some("worker"), false, "gristmill a.py", "gristmill worker a.py"),
            (Some("agent"), false, "gristmill a.py", "gristmill agent a.py"),
            (
                Some("agent-batch"),
                false,
                "gristmill a.py",
                "gristmill agent --batch 1000 a.py",
            ),
            (
                Some("agent-batch"),
                true,
                "gristmill a.py",
                "gristmill agent a.py",
            ),
            (
                Some("agent-batch"),
                false,
                "gristmill jobs --json",
                "gristmill jobs --json",
            ),
            (Some("server"), false, "gristmill --help", "gristmill --help"),
            (Some("production"), false, "gristmill a.py", "gristmill a.py"),
        ] {
            assert_eq!(with(mode, known, arguments), expected);
        }
    }
}
