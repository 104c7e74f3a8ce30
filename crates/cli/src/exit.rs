//! The end of the program, as its caller sees it.

use std::process::ExitCode;

use gristmill_operations::Refused;

/// The exit statuses, as `--help` explains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command is done, and every job completed.
    Done,
    /// Some jobs did not complete, or a named object does not exist.
    SomeFailed,
    /// The command, its input or its store is wrong; nothing changed.
    Refused,
    /// Stopped by Ctrl-C. Shells use 128 plus the signal's number.
    Interrupted,
    /// Stopped by SIGTERM.
    Terminated,
    /// The reader of the output closed the pipe.
    PipeClosed,
}

impl Exit {
    /// The status as a number.
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

/// A named object does not exist: the command ends with [`Exit::SomeFailed`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

/// The error of a refused request: the problem and the remedy.
pub fn refused(refused: Refused) -> anyhow::Error {
    match refused {
        Refused::NotFound { .. } => NotFound(refused.to_string()).into(),
        Refused::Store(error) => error.into(),
        refused => anyhow::anyhow!("{}", refused.told()),
    }
}

impl Exit {
    /// The status of a command that ends with this error.
    pub fn of_error(error: &anyhow::Error) -> Exit {
        if error.chain().any(|cause| cause.is::<NotFound>()) {
            Exit::SomeFailed
        } else {
            Exit::Refused
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// The exit statuses in `--help`.
pub const EXIT_STATUS_HELP: &str = "\
Exit status:
  0    done, and every job completed
  1    some jobs failed, or a named object does not exist
  2    the command, its input or its store is wrong
  130  stopped by Ctrl-C (143 by SIGTERM); commits are not lost
  141  the reader of the output closed the pipe";
