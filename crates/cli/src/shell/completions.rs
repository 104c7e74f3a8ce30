//! `gristmill completions`: shell completions.

use crate::arguments::{CompletionsArguments, help};
use crate::exit::Exit;
use crate::output::print_line;

/// Runs the command.
pub fn completions(arguments: &CompletionsArguments) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut help::program(), "gristmill", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
