//! `gristmill completions`: shell completions.

use clap::CommandFactory;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::exit::Exit;
use crate::output::print_line;

/// Runs the command.
pub fn completions(arguments: &CompletionsArguments) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "gristmill",
        &mut script,
    );
    print_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
