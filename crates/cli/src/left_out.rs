//! A program without the feature `full` has scripts and jobs on SQLite. The modules of this folder take the places of modules
//! that such a program lacks.

use std::ffi::OsString;

use anyhow::anyhow;

/// The commands that it lacks.
const COMMANDS: [&str; 10] = [
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

/// Says that a part is left out, and how to get it.
pub fn left_out(part: &str) -> anyhow::Error {
    anyhow!(
        "this program was built without {part}: build the whole one with `make build`, or with cargo and no \
         --no-default-features"
    )
}

/// Why these arguments of the program cannot be used, where they name a command that it lacks.
pub fn refused(arguments: &[OsString]) -> Option<anyhow::Error> {
    let command = arguments.iter().skip(1).find_map(|argument| argument.to_str())?;
    COMMANDS
        .contains(&command)
        .then(|| left_out(&format!("`gristmill {command}`")))
}
