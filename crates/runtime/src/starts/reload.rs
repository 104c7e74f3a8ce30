//! Replaces the processes of a script as soon as its code has changed.
//!
//! A process on trial loads the changed code first, so that unusable code replaces nothing.

use std::path::PathBuf;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use crate::descriptors::{milliseconds_until, poll_ms};
use crate::error::RuntimeError;
use crate::limits::RELOAD_LOOK_EVERY_MS;
use crate::pool::{Pool, Started};
use crate::process::{Recipe, WarmProcess};
use crate::starts::code::Seen;
use crate::starts::words::change_refused;

/// Reads the code repeatedly, until the pool shuts down.
pub(crate) fn watch(pool: &Pool, recipe: &Recipe) {
    let (mut before, mut refused) = (Seen::default(), Seen::default());
    while !pool.is_shutting_down() {
        let mut fds = [PollFd::new(pool.watcher(), PollFlags::IN)];
        if poll_ms(&mut fds, Some(RELOAD_LOOK_EVERY_MS)).is_err() {
            return;
        }
        let (seen, changed) = pool.changed_code();
        // A file that is being written is not complete yet.
        let is_at_rest = seen.is_as(&before);
        before = seen;
        if changed.is_empty() || !is_at_rest || before.is_as(&refused) {
            continue;
        }
        match load_on_trial(pool, recipe) {
            Ok((started, files)) => {
                pool.start_succeeded(None, started, &before, files);
            }
            Err(RuntimeError::ShutDown) => return,
            Err(error) => {
                pool.tell(&change_refused(&recipe.script.name(), &changed, &error));
                refused = before.clone();
            }
        }
    }
}

/// Loads the code in a separate process, which then ends.
fn load_on_trial(pool: &Pool, recipe: &Recipe) -> Result<(Started, Vec<PathBuf>), RuntimeError> {
    let mut process = WarmProcess::start(recipe)?;
    loop {
        let deadline = process.start_deadline().unwrap_or_else(Instant::now);
        let mut arrived = process.wait(Some(milliseconds_until(deadline)), pool.watcher())?;
        if pool.is_shutting_down() {
            return Err(RuntimeError::ShutDown);
        }
        if let Some(error) = process.start_failure(recipe, &mut arrived) {
            return Err(error);
        }
        if let Some(started) = process.ready() {
            process.shut_down(recipe.script.path());
            return Ok((started, arrived.files));
        }
    }
}
