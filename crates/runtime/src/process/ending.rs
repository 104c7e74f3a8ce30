//! The end of a process that has no more jobs.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::{Arrived, WarmProcess};
use crate::descriptors::poll_ms;
use crate::limits::{CRASH_OUTPUT_BYTES_MAX, SHUT_DOWN_MS_MAX};
use crate::protocol::Note;

impl WarmProcess {
    /// Lets the process end by itself, so that the script's exit handlers run and its files are written. Kills it if it
    /// does not end. The log has what could not end normally, and the output.
    pub fn shut_down(mut self, script: &Path) {
        // The end of the requests tells the shim to end.
        self.requests = None;
        let script = script.display();
        let (has_ended, unended) = self.wait_for_end();
        let status = self.end();
        for problem in unended {
            tracing::error!("a process of {script} did not end in order: {problem}");
        }
        if !has_ended {
            tracing::error!(
                "a process of {script} did not end by itself within {SHUT_DOWN_MS_MAX} ms and was killed"
            );
        }
        let output = self.output.take_unclaimed().tail(CRASH_OUTPUT_BYTES_MAX);
        if output.is_empty() {
            return;
        }
        if has_ended && !status.success() {
            tracing::error!(output, "a process of {script} failed at its end");
        } else {
            tracing::info!(output, "printed at the end of {script}");
        }
    }

    /// Reads the messages and output of the process until it has ended. Returns whether it has, and what it could not
    /// end normally.
    fn wait_for_end(&mut self) -> (bool, Vec<String>) {
        let deadline = Instant::now() + Duration::from_millis(SHUT_DOWN_MS_MAX);
        let mut unended = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.child.exit_fd(), PollFlags::IN),
                PollFd::new(&self.outcomes, PollFlags::IN),
            ];
            if !self.printed_ended {
                fds.push(PollFd::new(&self.printed, PollFlags::IN));
            }
            let polled = poll_ms(&mut fds, Some(left.as_millis() as u64 + 1));
            let mut arrived = Arrived {
                ended: !fds[0].revents().is_empty(),
                ..Arrived::default()
            };
            drop(fds);
            let read = self.read_frames(&mut arrived);
            self.read_printed();
            let notes = arrived.frames.into_iter().flat_map(|frame| frame.notes);
            unended.extend(notes.filter_map(|note| match note {
                Note::Unended(problem) => Some(problem),
                _ => None,
            }));
            if arrived.ended || polled.is_err() || read.is_err() || left.is_zero() {
                return (arrived.ended, unended);
            }
        }
    }
}
