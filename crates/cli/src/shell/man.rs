//! `gristmill man`: man pages.

use anyhow::anyhow;

use crate::arguments::{ManArguments, help};
use crate::exit::Exit;
use crate::output::print_line;

/// Runs the command.
pub fn man(arguments: &ManArguments) -> anyhow::Result<Exit> {
    let mut program = help::program().disable_help_subcommand(true);
    program.build();
    let mut command = &program;
    for name in &arguments.command {
        command = command.find_subcommand(name).ok_or_else(|| {
            let written = arguments.command.join(" ");
            anyhow!("`gristmill {written}` is not a command; `gristmill help` lists the commands")
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    print_line(String::from_utf8_lossy(&page).trim_end())?;
    Ok(Exit::Done)
}
