//! Logs of jobs at servers, over HTTP.

use gristmill_agent::{AttemptLog, HttpSourceOptions, LogClient, LogsError, LogsWanted, ServerListener};
use gristmill_model::{JobId, SplitMix64};

use super::printer::Printer;
use super::{say_unknown, take};
use crate::arguments::job::LogsArguments;
use crate::exit::Exit;
use crate::fleet::agent::token;

/// Prints the logs that the arguments name.
pub async fn of_servers(arguments: &LogsArguments) -> anyhow::Result<Exit> {
    let options = HttpSourceOptions {
        base_urls: arguments.base_urls.clone(),
        token: token(arguments.token_file.as_deref())?,
        ca_certificate: arguments.ca_cert.clone(),
        allow_plain_http: arguments.plain_http,
        listener: Some(ServerListener::new(|news| say!("gristmill: {news}"))),
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
            say!("error: {error}");
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
