//! The `gristmill` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    gristmill_cli::main()
}
