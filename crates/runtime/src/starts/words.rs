//! The texts of messages about the processes of a script.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::RuntimeError;
use crate::starts::FailedStart;

/// The largest number of changed files that a message names.
const FILES_NAMED_MAX: usize = 3;

/// A start has failed, and is tried again.
pub(crate) fn failed_start(
    script: &str,
    failed: &FailedStart,
    working: usize,
    changed: &[PathBuf],
    error: &RuntimeError,
) -> String {
    let others = match working {
        0 => "no job is charged, and all go back to the store until one can".to_owned(),
        1 => "1 other goes on, and no job is charged".to_owned(),
        count => format!("{count} others go on, and no job is charged"),
    };
    let tries = match failed.failures {
        1 => String::new(),
        failures => format!(" ({failures} tries in {})", span(failed.lasted)),
    };
    let changed = match changed {
        [] => String::new(),
        files => format!("; {} since its processes loaded it", have_changed(files)),
    };
    format!(
        "a process of {script} cannot start{tries}; {others}; the next try is in {}{changed}: {error}",
        span(failed.again_after)
    )
}

/// Processes start again after failures.
pub(crate) fn starts_again(script: &str, failures: u32, lasted: Duration) -> String {
    let tries = if failures == 1 { "try" } else { "tries" };
    format!(
        "processes of {script} start again, after {failures} failed {tries} in {}",
        span(lasted)
    )
}

/// No start is tried again.
pub(crate) fn gave_up(script: &str, lasted: Duration, error: &RuntimeError) -> String {
    format!(
        "no process of {script} could start for {}; no job is charged for that: {error}",
        span(lasted)
    )
}

/// A process has loaded changed code.
pub(crate) fn code_changed(script: &str, files: &[PathBuf]) -> String {
    format!(
        "{} since the processes of {script} loaded it: all are replaced when the jobs that they have begun end, and jobs \
         that begin from now on run the new code",
        have_changed(files)
    )
}

/// Changed code cannot be loaded.
pub(crate) fn change_refused(script: &str, files: &[PathBuf], error: &RuntimeError) -> String {
    format!(
        "{}, and cannot be loaded: the processes of {script} go on with the code that they have: {error}",
        have_changed(files)
    )
}

/// Each job of a program starts the program again.
pub(crate) fn program_changed(program: &Path) -> String {
    format!(
        "{} has changed: jobs that begin from now on run the new one",
        program.display()
    )
}

fn have_changed(files: &[PathBuf]) -> String {
    let named: Vec<String> = files
        .iter()
        .take(FILES_NAMED_MAX)
        .map(|file| file.display().to_string())
        .collect();
    let more = files.len().saturating_sub(FILES_NAMED_MAX);
    match (files.len(), more) {
        (1, _) => format!("{} has changed", named[0]),
        (_, 0) => format!("{} have changed", named.join(", ")),
        _ => format!("{} and {more} more files have changed", named.join(", ")),
    }
}

/// A span in a suitable unit.
fn span(span: Duration) -> String {
    match span.as_millis() {
        milliseconds @ 0..1_000 => format!("{milliseconds} ms"),
        milliseconds => format!("{} s", (milliseconds + 500) / 1_000),
    }
}
