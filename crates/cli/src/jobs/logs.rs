//! `gristmill logs`: prints the stored logs of a job's attempts, and the output of running jobs.

mod printer;
#[cfg(feature = "full")]
mod server;
#[cfg(not(feature = "full"))]
#[path = "../left_out/server_logs.rs"]
mod server;

use anyhow::bail;
use gristmill_engine::live_logs::{FollowedJobs, Interest, LiveLogs, attempt_logs};
use gristmill_model::{JobId, JobState, LogEvent};
use gristmill_operations::jobs::selection::FilterRequest;
use gristmill_store::{JobFilter, Store};

use crate::arguments::job::LogsArguments;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::jobs::filter::filter_of;
use printer::Printer;

/// Runs the command.
pub async fn logs(arguments: LogsArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let names_others = arguments.kind.is_some()
        || arguments.queue.is_some()
        || arguments.run.is_some()
        || !arguments.tags.is_empty();
    if arguments.job.is_none() && !names_others {
        bail!(
            "nothing says which jobs to follow: give a job, as in 42:7, or --kind, --queue, --tag or --run"
        );
    }
    if arguments.base_urls.is_empty() {
        return of_store(&arguments, &mut interrupt).await;
    }
    tokio::select! {
        exit = server::of_servers(&arguments) => exit,
        exit = interrupt.wait() => Ok(exit),
    }
}

fn say_unknown(job: JobId) -> Exit {
    say!("error: there is no job {job}; `gristmill jobs` lists those that there are");
    Exit::SomeFailed
}

async fn of_store(arguments: &LogsArguments, interrupt: &mut Interrupt) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let wanted = match arguments.job {
        None => FollowedJobs::Matching(Box::new(filter(arguments, &*store).await?)),
        Some(job) => {
            let Some(details) = store.job(job).await? else {
                return Ok(say_unknown(job));
            };
            if !arguments.follow {
                let logs = attempt_logs(&details).into_iter();
                let has_several = details.failures.len() + usize::from(details.log.is_some()) > 1;
                Printer::new(Some(job), arguments.json).stored(job, logs, has_several)?;
                return Ok(Exit::Done);
            }
            FollowedJobs::Job(job)
        }
    };
    let follower = format!("{}-{}", std::process::id(), store.now().0);
    let mut logs = LiveLogs::new(store, follower, wanted, Interest::default());
    let mut printer = Printer::new(arguments.job, arguments.json);
    let ended = tokio::select! {
        ended = follow_in_store(&mut logs, arguments.job, &mut printer) => ended,
        exit = interrupt.wait() => Ok(exit),
    };
    // Whatever happened, this follower is gone.
    let left = logs.leave().await;
    let exit = ended?;
    left?;
    Ok(exit)
}

async fn follow_in_store(
    logs: &mut LiveLogs,
    job: Option<JobId>,
    printer: &mut Printer,
) -> anyhow::Result<Exit> {
    while let Some(event) = logs.next().await? {
        if let Some(exit) = take(&event, job, printer)? {
            return Ok(exit);
        }
    }
    // The job was deleted.
    Ok(Exit::SomeFailed)
}

/// The jobs to follow.
async fn filter(arguments: &LogsArguments, store: &dyn Store) -> anyhow::Result<JobFilter> {
    let request = FilterRequest {
        kind: arguments.kind.clone(),
        queue: arguments.queue.clone(),
        run: arguments.run.clone(),
        tags: arguments.tags.clone(),
        ..FilterRequest::default()
    };
    filter_of(store, request).await
}

/// Prints an event. Returns the program's exit status if the only followed job has ended.
fn take(event: &LogEvent, only: Option<JobId>, printer: &mut Printer) -> anyhow::Result<Option<Exit>> {
    match event {
        LogEvent::Printed(piece) => printer.piece(piece)?,
        LogEvent::AttemptEnded { job, attempt, log } => printer.attempt_ended(*job, *attempt, log)?,
        LogEvent::LeftOut { jobs } => say!(
            "gristmill: the output of {jobs} more running jobs is left out; name fewer, with --tag, --queue or --run"
        ),
        LogEvent::Ended { job, state } => {
            printer.ended(*job, *state)?;
            return Ok(only.map(|_| match state {
                JobState::Completed => Exit::Done,
                _ => Exit::SomeFailed,
            }));
        }
    }
    Ok(None)
}
