//! `gristmill logs`: what a job printed, attempt by attempt, and what jobs print, as it comes.

mod printer;

use std::sync::Arc;

use anyhow::bail;
use gristmill_agent::{AttemptLog, HttpSourceOptions, LogClient, LogsError, LogsWanted, ServerListener};
use gristmill_engine::live_logs::{FollowedJobs, Interest, LiveLogs, LogEvent, attempt_logs};
use gristmill_model::{JobId, JobState, SplitMix64, TagCondition};
use gristmill_store::{JobFilter, Store};

use crate::arguments::job::LogsArguments;
use crate::exit::Exit;
use crate::fleet::agent::token;
use crate::interrupt::Interrupt;
use crate::jobs::filter::find_run;
use printer::Printer;
pub use printer::harmless;

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
        exit = of_servers(&arguments) => exit,
        exit = interrupt.wait() => Ok(exit),
    }
}

fn say_unknown(job: JobId) -> Exit {
    eprintln!("error: there is no job {job}; `gristmill jobs` lists those that there are");
    Exit::SomeFailed
}

async fn of_store(arguments: &LogsArguments, interrupt: &mut Interrupt) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let wanted = match arguments.job {
        None => FollowedJobs::Matching(Box::new(filter(arguments, &store).await?)),
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
    // Whatever happened, nobody follows any more.
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
    // It was deleted.
    Ok(Exit::SomeFailed)
}

async fn filter(arguments: &LogsArguments, store: &Arc<dyn Store>) -> anyhow::Result<JobFilter> {
    Ok(JobFilter {
        kind: arguments.kind.clone(),
        queue: arguments.queue.clone(),
        run: match &arguments.run {
            Some(name) => Some(find_run(store, name).await?.id),
            None => None,
        },
        tags: arguments
            .tags
            .iter()
            .map(|text| TagCondition::parse(text))
            .collect(),
        ..JobFilter::default()
    })
}

async fn of_servers(arguments: &LogsArguments) -> anyhow::Result<Exit> {
    let options = HttpSourceOptions {
        base_urls: arguments.base_urls.clone(),
        token: token(arguments.token_file.as_deref())?,
        ca_certificate: arguments.ca_cert.clone(),
        allow_plain_http: arguments.plain_http,
        listener: Some(ServerListener::new(|news| eprintln!("gristmill: {news}"))),
        ..HttpSourceOptions::new("")
    };
    let wanted = LogsWanted {
        job: arguments.job,
        kind: arguments.kind.clone(),
        queue: arguments.queue.clone(),
        run: arguments.run.clone(),
        tags: arguments.tags.clone(),
    };
    let seed = u64::from(std::process::id());
    let client = LogClient::new(&options, Box::new(SplitMix64::new(seed)), wanted)?;
    let exit = match arguments.job {
        Some(job) if !arguments.follow => print_attempts(&client, job, arguments.json).await,
        _ => follow_at_server(client, arguments).await,
    };
    match (exit, arguments.job) {
        (Err(error), Some(job)) if is_not_found(&error) => Ok(say_unknown(job)),
        (Err(error), None) if is_not_found(&error) => {
            eprintln!("error: {error}");
            Ok(Exit::SomeFailed)
        }
        (exit, _) => exit,
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(LogsError::NotFound(_)))
}

async fn print_attempts(client: &LogClient, job: JobId, is_json: bool) -> anyhow::Result<Exit> {
    let attempts = client.attempts(job).await?;
    let has_several = attempts.len() > 1;
    let logs = attempts.iter().filter_map(|attempt: &AttemptLog| {
        let log = attempt.log.as_deref().filter(|log| !log.is_empty())?;
        Some((attempt.attempt, log))
    });
    Printer::new(Some(job), is_json).stored(job, logs, has_several)?;
    Ok(Exit::Done)
}

async fn follow_at_server(mut client: LogClient, arguments: &LogsArguments) -> anyhow::Result<Exit> {
    let job = arguments.job;
    let mut printer = Printer::new(job, arguments.json);
    loop {
        let event = client.next().await?;
        if let Some(exit) = take(&event, job, &mut printer)? {
            return Ok(exit);
        }
    }
}

/// Prints an event. How the program ends, where that was the end of the one job that it follows.
fn take(event: &LogEvent, only: Option<JobId>, printer: &mut Printer) -> anyhow::Result<Option<Exit>> {
    match event {
        LogEvent::Printed(piece) => printer.piece(piece)?,
        LogEvent::AttemptEnded { job, attempt, log } => printer.attempt_ended(*job, *attempt, log)?,
        LogEvent::LeftOut { jobs } => eprintln!(
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
