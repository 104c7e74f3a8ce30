//! How the program ends, as its caller sees it.

use std::process::ExitCode;

/// The exit statuses, as `--help` explains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything that was asked for is done, and every job completed.
    Done,
    /// Some jobs did not complete, or something that was named does not exist.
    SomeFailed,
    /// The command, its input or its store is wrong; nothing was done half.
    Refused,
    /// Stopped by Ctrl-C, as shells count it: 128 and the signal's number.
    Interrupted,
    /// Stopped by SIGTERM.
    Terminated,
    /// Whoever read the output has gone.
    PipeClosed,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::SomeFailed => 1,
            Exit::Refused => 2,
            Exit::Interrupted => 130,
            Exit::PipeClosed => 141,
            Exit::Terminated => 143,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// What `--help` says of the exit statuses.
pub const EXIT_STATUS_HELP: &str = "\
Exit status:
  0    done, and every job completed
  1    some jobs failed, or what was named does not exist
  2    the command, its input or its store is wrong
  130  stopped by Ctrl-C (143 by SIGTERM); nothing that was committed is lost
  141  whoever read the output has closed the pipe";
