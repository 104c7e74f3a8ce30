//! Containers select the command by the environment variable `MODE`.

use std::ffi::OsString;

use anyhow::{Context, bail};
use gristmill_model::limits::LEASE_JOBS_MAX;

/// The variable.
pub const MODE_VARIABLE: &str = "MODE";

/// The number of jobs that `agent-batch` takes at once.
const BATCH_VARIABLE: &str = "BATCH_PULL_SIZE";

/// Its text in `--help`.
pub const CONTAINER_HELP: &str = "\
Containers:
Without a command, the environment variable MODE selects it: standalone or server (serve), worker, agent, or
agent-batch (agent --batch, with BATCH_PULL_SIZE or 1000). The arguments are the scripts. Other variables are
GRISTMILL_STORE, PGPASSWORD, GRISTMILL_LISTEN, GRISTMILL_TRUST, GRISTMILL_LEASE, BASE_URL or BASE_INTERNAL_URL (one
server or several), AGENT_TOKEN. An empty variable counts as unset.
  docker run -e MODE=agent-batch -e BASE_URL=… -e AGENT_TOKEN=… IMAGE resize.py --kind resize";

/// The number of jobs that `agent-batch` takes at once, unless `BATCH_PULL_SIZE` is set.
const BATCH_PULL_SIZE_DEFAULT: &str = "1000";

/// The value of an environment variable, unless it is unset or empty.
pub fn variable(name: &str) -> anyhow::Result<Option<String>> {
    match std::env::var_os(name).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => match text.into_string() {
            Ok(text) => Ok(Some(text)),
            Err(_) => bail!("the environment variable {name} is not UTF-8; correct it"),
        },
    }
}

/// The same command, without the environment's variables that are empty.
pub fn without_empty_variables(command: clap::Command) -> clap::Command {
    command
        .mut_args(|argument| {
            let is_empty = |name| std::env::var_os(name).is_some_and(|text| text.is_empty());
            if argument.get_env().is_some_and(is_empty) {
                argument.env(None::<&str>)
            } else {
                argument
            }
        })
        .mut_subcommands(without_empty_variables)
}

/// The program's arguments. If they name no command, the environment's command comes first.
pub fn with_command(
    arguments: Vec<OsString>,
    environment: impl Fn(&str) -> anyhow::Result<Option<String>>,
    is_command: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<OsString>> {
    let first = arguments.get(1).map(|argument| argument.to_string_lossy());
    if first.as_ref().is_some_and(|first| is_command(first)) {
        return Ok(arguments);
    }
    let Some(mode) = environment(MODE_VARIABLE)? else {
        return Ok(arguments);
    };
    let mut words = match mode.as_str() {
        "standalone" | "server" => vec!["serve".to_owned()],
        "worker" => vec!["worker".to_owned()],
        "agent" | "agent-batch" => vec!["agent".to_owned()],
        _ => {
            let written = first.map_or_else(String::new, |first| format!(", and `{first}` is not a command"));
            bail!(
                "the environment variable {MODE_VARIABLE} is `{mode}`{written}: give standalone, server, worker, agent or \
                 agent-batch, or write a command first (see --help)"
            );
        }
    };
    let is_batch = |word: &OsString| {
        let word = word.to_string_lossy();
        word == "--batch" || word.starts_with("--batch=")
    };
    if mode == "agent-batch" && !arguments.iter().any(is_batch) {
        let size = environment(BATCH_VARIABLE)?.unwrap_or_else(|| BATCH_PULL_SIZE_DEFAULT.to_owned());
        let is_size = size
            .parse()
            .is_ok_and(|size: u32| (1..=LEASE_JOBS_MAX).contains(&size));
        if !is_size {
            bail!(
                "the environment variable {BATCH_VARIABLE} is `{size}`: give a number from 1 to {LEASE_JOBS_MAX}"
            );
        }
        words.extend(["--batch".to_owned(), size]);
    }
    let mut arguments = arguments.into_iter();
    let program = arguments.next().context("the program has a name")?;
    Ok(std::iter::once(program)
        .chain(words.into_iter().map(OsString::from))
        .chain(arguments)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mode: Option<&str>, size: Option<&str>, arguments: &str) -> Result<String, String> {
        let arguments = arguments.split(' ').map(OsString::from).collect();
        let environment = |name: &str| {
            let value = if name == MODE_VARIABLE { mode } else { size };
            Ok(value.map(str::to_owned))
        };
        let is_command = |word: &str| ["jobs", "agent", "--help"].contains(&word);
        let words = with_command(arguments, environment, is_command).map_err(|error| error.to_string())?;
        let words: Vec<_> = words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        Ok(words.join(" "))
    }

    #[test]
    fn the_mode_selects_the_command_if_none_is_written() {
        for (mode, size, arguments, expected) in [
            (None, None, "gristmill", "gristmill"),
            (Some("server"), None, "gristmill", "gristmill serve"),
            (
                Some("standalone"),
                None,
                "gristmill a.py --kind a",
                "gristmill serve a.py --kind a",
            ),
            (Some("worker"), None, "gristmill a.py", "gristmill worker a.py"),
            (Some("agent"), Some("7"), "gristmill a.py", "gristmill agent a.py"),
            (
                Some("agent-batch"),
                None,
                "gristmill a.py",
                "gristmill agent --batch 1000 a.py",
            ),
            (
                Some("agent-batch"),
                Some("7"),
                "gristmill a.py",
                "gristmill agent --batch 7 a.py",
            ),
            (
                Some("agent-batch"),
                Some("7"),
                "gristmill a.py --batch=9",
                "gristmill agent a.py --batch=9",
            ),
            (
                Some("agent-batch"),
                None,
                "gristmill jobs --json",
                "gristmill jobs --json",
            ),
            (Some("server"), None, "gristmill --help", "gristmill --help"),
            (Some("production"), Some("x"), "gristmill jobs", "gristmill jobs"),
        ] {
            assert_eq!(with(mode, size, arguments).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn an_error_names_the_wrong_variable() {
        for (mode, size, arguments, says) in [
            ("production", None, "gristmill a.py", "MODE is `production`"),
            ("Agent", None, "gristmill", "MODE is `Agent`"),
            (
                "agent-batch",
                Some("many"),
                "gristmill a.py",
                "BATCH_PULL_SIZE is `many`",
            ),
            (
                "agent-batch",
                Some("0"),
                "gristmill a.py",
                "BATCH_PULL_SIZE is `0`",
            ),
        ] {
            let error = with(Some(mode), size, arguments).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
