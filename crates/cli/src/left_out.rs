//! A program without the feature `full` runs scripts, with jobs in SQLite. The modules of this folder replace the
//! modules that such a program lacks.

use std::ffi::OsString;

use anyhow::anyhow;

/// The commands that are missing in it.
const COMMANDS: [&str; 11] = [
    "llm",
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

/// An error which says that a part is missing, and how to get it.
pub fn left_out(part: &str) -> anyhow::Error {
    anyhow!(
        "this program was built without {part}: build the whole one with `make build`, or with cargo and no \
         --no-default-features"
    )
}

/// The error if these arguments name a command that is missing.
pub fn refused(arguments: &[OsString]) -> Option<anyhow::Error> {
    let command = arguments.iter().skip(1).find_map(|argument| argument.to_str())?;
    COMMANDS
        .contains(&command)
        .then(|| left_out(&format!("`gristmill {command}`")))
}
