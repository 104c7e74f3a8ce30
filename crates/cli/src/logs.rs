//! `gristmill logs`: what a job printed, attempt by attempt, and what it prints, as it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use gristmill_model::{Followed, JobId, JobState, Printed};
use gristmill_store::{JobDetails, Store};

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::job_arguments::LogsArguments;
use crate::output::{OutputError, print_line};

/// How often a follower looks for output and for the job's end.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often it says that it still follows.
const FOLLOW_EVERY: Duration = Duration::from_secs(5);

/// Pieces of other workers appear up to so long after later ones. Milliseconds.
const LATE_MS_MAX: i64 = 3_000;

/// Bytes of what was shown last, by which the rest is found in the stored log.
const SHOWN_BYTES_KEPT: usize = 4 << 10;

/// Runs the command.
pub async fn logs(arguments: LogsArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let store = arguments.store.open_existing().await?;
    let Some(details) = store.job(arguments.job).await? else {
        eprintln!(
            "error: there is no job {}; `gristmill jobs` lists those that there are",
            arguments.job
        );
        return Ok(Exit::SomeFailed);
    };
    if !arguments.follow {
        print_stored(&details)?;
        return Ok(Exit::Done);
    }
    let follower = format!("{}-{}", std::process::id(), store.now().0);
    let ended = tokio::select! {
        ended = follow(&store, &follower, arguments.job) => ended,
        exit = interrupt.wait() => Ok(exit),
    };
    // Whatever happened, nobody follows any more.
    let left = store.unfollow(&follower).await;
    let exit = ended?;
    left?;
    Ok(exit)
}

/// The logs of a job's attempts, oldest first.
fn attempts(details: &JobDetails) -> Vec<(u32, &str)> {
    let failed = details.failures.iter();
    let mut logs: Vec<(u32, &str)> = failed
        .filter_map(|failure| Some((failure.attempt, failure.log.as_deref()?)))
        .collect();
    let last = details.log.as_deref().map(|log| (details.row.attempt, log));
    logs.extend(last);
    logs.retain(|(_, log)| !log.is_empty());
    logs
}

fn print_stored(details: &JobDetails) -> Result<(), OutputError> {
    let logs = attempts(details);
    let has_several = details.failures.len() + usize::from(details.log.is_some()) > 1;
    for (attempt, log) in logs {
        if has_several {
            print_line(&format!("--- attempt {attempt} ---"))?;
        }
        print_line(log.strip_suffix('\n').unwrap_or(log))?;
    }
    Ok(())
}

/// The output of a job that was shown.
#[derive(Default)]
struct Shown {
    /// The pieces that were read already, by their ids, as far as they may be read again.
    read: BTreeSet<i64>,
    /// By attempt: where the next piece begins, and what was shown last.
    attempts: BTreeMap<u32, (u64, String)>,
    /// Attempts that are over, and whose stored logs were shown to their ends.
    whole: BTreeSet<u32>,
}

impl Shown {
    /// What there is to show of a piece, with a note of what is missing before it.
    fn take(&mut self, printed: &Printed) -> String {
        let (next, last) = self.attempts.entry(printed.attempt).or_default();
        let missing = printed.offset.saturating_sub(*next);
        *next = printed.offset + printed.text.len() as u64;
        last.push_str(&printed.text);
        let surplus = last.ceil_char_boundary(last.len().saturating_sub(SHOWN_BYTES_KEPT));
        last.drain(..surplus);
        match missing {
            0 => printed.text.clone(),
            _ => format!("\n… {missing} bytes are left out here …\n{}", printed.text),
        }
    }

    /// What of an attempt's stored log comes after what was shown.
    fn rest<'l>(&self, attempt: u32, log: &'l str) -> &'l str {
        match self.attempts.get(&attempt) {
            Some((_, last)) if !last.is_empty() => {
                let found = log.rfind(last.as_str());
                found.map_or(log, |at| &log[at + last.len()..])
            }
            _ => log,
        }
    }
}

/// Prints what a job prints until it has ended.
async fn follow(store: &Arc<dyn Store>, follower: &str, job: JobId) -> anyhow::Result<Exit> {
    let followed = vec![Followed::Job(job)];
    let mut shown = Shown::default();
    let mut after = 0;
    let mut said_at: Option<tokio::time::Instant> = None;
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if said_at.is_none_or(|at| at.elapsed() >= FOLLOW_EVERY) {
            store.follow(follower, followed.clone()).await?;
            said_at = Some(tokio::time::Instant::now());
        }
        // Looked at before the output, so that none comes between.
        let details = store.job(job).await?;
        let page = store.live_output(followed.clone(), after).await?;
        let settled = store.now().plus_ms(-LATE_MS_MAX);
        for piece in &page.pieces {
            let is_new = shown.read.insert(piece.id) && !shown.whole.contains(&piece.printed.attempt);
            if is_new {
                print(&shown.take(&piece.printed))?;
            }
            if piece.at < settled {
                after = after.max(piece.id);
            }
        }
        shown.read = shown.read.split_off(&(after + 1));
        let Some(details) = details else {
            return Ok(Exit::SomeFailed);
        };
        for (attempt, log) in attempts(&details) {
            if shown.whole.insert(attempt) {
                print(shown.rest(attempt, log))?;
            }
        }
        if details.row.state.is_final() {
            return Ok(match details.row.state {
                JobState::Completed => Exit::Done,
                _ => Exit::SomeFailed,
            });
        }
    }
}

fn print(text: &str) -> Result<(), OutputError> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|reason| OutputError::of("stdout".to_owned(), reason))
}

#[cfg(test)]
mod tests {
    use gristmill_model::BatchId;

    use super::*;

    fn printed(attempt: u32, offset: u64, text: &str) -> Printed {
        Printed {
            job: JobId {
                batch: BatchId(1),
                position: 0,
            },
            kind: "work".into(),
            attempt,
            offset,
            text: text.to_owned(),
        }
    }

    #[test]
    fn gaps_are_named_and_the_rest_of_the_log_follows_what_was_shown() {
        let mut shown = Shown::default();
        assert_eq!(shown.rest(1, "all"), "all");
        assert_eq!(shown.take(&printed(1, 0, "one\n")), "one\n");
        assert_eq!(
            shown.take(&printed(1, 10, "two\n")),
            "\n… 6 bytes are left out here …\ntwo\n"
        );
        let mut next = Shown::default();
        next.take(&printed(2, 0, "two\n"));
        next.take(&printed(2, 4, "three"));
        assert_eq!(next.rest(2, "one\ntwo\nthree\nfour\n"), "\nfour\n");
        assert_eq!(next.rest(3, "other"), "other");
    }
}
