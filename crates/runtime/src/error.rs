//! Errors before a job runs.

use std::io;
use std::path::PathBuf;

use gristmill_model::JobError;
use rustix::io::Errno;

/// The error of a script that cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// There is no such file.
    #[error("cannot open the script {path}: {source}")]
    NoScript {
        /// The path as it was given.
        path: PathBuf,
        /// The system's message.
        source: io::Error,
    },
    /// Neither the extension nor a first line `#!…` reveals the language.
    #[error(
        "{path}: unknown language; name it .py, .js, .mjs, .cjs, .ts or .sh, begin it with #!, or give its \
         command after --"
    )]
    UnknownLanguage {
        /// The script.
        path: PathBuf,
    },
    /// No interpreter for the script's language.
    #[error("{path} needs {needs}, and {found}; {remedy}")]
    NoInterpreter {
        /// The script.
        path: PathBuf,
        /// The required interpreter.
        needs: &'static str,
        /// The found interpreter.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// An interpreter or program could not be started.
    #[error("cannot start {program}: {source}{}", remedy(source))]
    Spawn {
        /// The interpreter or program.
        program: String,
        /// The system's message.
        source: io::Error,
    },
    /// `--` without a program after it.
    #[error("the program is missing: write it after --, as in `-- jq .name`")]
    NoProgram,
    /// The script was found and its interpreter started, but it cannot be imported or has no `main`.
    #[error("{script}: {}: {}{}", error.error_type, error.message, Traceback(error))]
    ScriptRefused {
        /// The script.
        script: PathBuf,
        /// The error, with the traceback.
        error: Box<JobError>,
    },
    /// The process died before it had imported the script.
    #[error(
        "{script}: its process {status} before the script was imported{}",
        Output(output)
    )]
    DiedAtStart {
        /// The script.
        script: PathBuf,
        /// The end of the process in words.
        status: String,
        /// The end of its output.
        output: String,
    },
    /// The process died after it had imported the script, before its first job began.
    #[error("{script}: its process {status} before its first job began{}", Output(output))]
    DiedBeforeWork {
        /// The script.
        script: PathBuf,
        /// The end of the process in words.
        status: String,
        /// The end of its output.
        output: String,
    },
    /// The script's import takes too long.
    #[error("{script}: the import did not end within {milliseconds} ms")]
    StartTimedOut {
        /// The script.
        script: PathBuf,
        /// The limit. Milliseconds.
        milliseconds: u64,
    },
    /// The system allows this user no further thread.
    #[error("cannot start a thread for the script's processes: {0}{help}", help = remedy(.0))]
    NoThread(#[source] io::Error),
    /// A thread of the handler has panicked.
    #[error(
        "a thread that drives the script's processes has panicked; please report it, with the message above"
    )]
    Panicked,
    /// The handler shuts down.
    #[error("the handler is shutting down")]
    ShutDown,
    /// A system call of the runtime itself failed.
    #[error("cannot talk to the script's process: {0}")]
    Plumbing(#[source] io::Error),
}

/// The remedy if the system gives no further process or thread.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            "; the user's limit of processes (ulimit -u) counts threads, too: raise it, or ask for fewer processes (-j)"
        }
        _ => "",
    }
}

impl RuntimeError {
    /// Reports whether the system lacks file descriptors, processes or memory, and may have them later.
    pub(crate) fn is_shortage(&self) -> bool {
        let (RuntimeError::Spawn { source, .. } | RuntimeError::Plumbing(source)) = self else {
            return false;
        };
        let shortages = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
        Errno::from_io_error(source).is_some_and(|errno| shortages.contains(&errno))
    }
}

struct Traceback<'a>(&'a JobError);

impl std::fmt::Display for Traceback<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0.traceback {
            Some(traceback) => write!(formatter, "\n{}", traceback.trim_end()),
            None => Ok(()),
        }
    }
}

struct Output<'a>(&'a str);

impl std::fmt::Display for Output<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(formatter, ":\n{}", self.0)
        }
    }
}
