//! `gristmill show`: everything about one job.

use gristmill_store::{JobDetails, StoredFailure};

use crate::arguments::ShowArguments;
use crate::control::show_scope;
use crate::exit::Exit;
use crate::output::print_line;
use crate::span::show_microseconds;

/// Runs the command.
pub async fn show(arguments: ShowArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let Some(details) = store.job(arguments.job).await? else {
        eprintln!(
            "error: there is no job {}; `gristmill jobs` lists those that there are",
            arguments.job
        );
        return Ok(Exit::SomeFailed);
    };
    let text = if arguments.json {
        serde_json::to_string(&details)?
    } else {
        describe(&details)
    };
    print_line(&text)?;
    Ok(Exit::Done)
}

fn describe(details: &JobDetails) -> String {
    let row = &details.row;
    let policy = &details.options.retry;
    let mut lines = vec![
        format!("job        {}", row.job),
        format!("kind       {}", row.kind),
        format!("queue      {}", row.queue),
        format!("state      {}", row.state),
        format!("attempt    {} of {}", row.attempt, policy.attempts_max),
        format!("submitted  {}", row.submitted_at),
    ];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("{name:<10} {value}"));
        }
    };
    add("group", row.group.as_ref().map(ToString::to_string));
    add("runs at", row.run_at.map(|at| at.to_string()));
    add("ended", row.finished_at.map(|at| at.to_string()));
    add(
        "took",
        details.duration_us.map(|us| show_microseconds(f64::from(us))),
    );
    add("worker", details.worker.as_ref().map(ToString::to_string));
    for pause in &details.pauses {
        let until = match pause.until {
            Some(until) => format!("until {until}"),
            None => "until it is resumed".to_owned(),
        };
        let whose = pause
            .scope
            .as_ref()
            .map(|scope| format!(" ({})", show_scope(scope)));
        add(
            "paused",
            Some(format!("{}, {until}{}", pause.reason, whose.unwrap_or_default())),
        );
    }
    add("key", details.key.clone());
    let tags: Vec<String> = details
        .tags
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    add("tags", (!tags.is_empty()).then(|| tags.join(" ")));
    add("priority", (row.priority != 0).then(|| row.priority.to_string()));
    add(
        "timeout",
        details
            .options
            .timeout_ms
            .map(|ms| show_microseconds(ms as f64 * 1_000.0)),
    );
    add("payload", Some(details.payload.get().to_owned()));
    add(
        "value",
        details.value.as_ref().map(|value| value.get().to_owned()),
    );
    for failure in &details.failures {
        add_failure(&mut lines, failure);
    }
    if let Some(log) = details.log.as_ref().filter(|log| !log.is_empty()) {
        lines.push("printed:".to_owned());
        add_indented(&mut lines, log);
    }
    lines.join("\n")
}

fn add_failure(lines: &mut Vec<String>, failure: &StoredFailure) {
    let what = if failure.attempt == 0 {
        "rejected".to_owned()
    } else {
        format!("attempt {} failed", failure.attempt)
    };
    let by = failure
        .worker
        .as_ref()
        .map(|worker| format!(" on {worker}"))
        .unwrap_or_default();
    let took = if failure.duration_us > 0 {
        format!(" after {}", show_microseconds(f64::from(failure.duration_us)))
    } else {
        String::new()
    };
    lines.push(format!("{what} at {}{took}{by}:", failure.failed_at));
    add_indented(
        lines,
        &format!("{}: {}", failure.error.error_type, failure.error.message),
    );
    if let Some(traceback) = &failure.error.traceback {
        add_indented(lines, traceback);
    }
    if let Some(log) = failure.log.as_ref().filter(|log| !log.is_empty()) {
        lines.push("  printed:".to_owned());
        add_indented(lines, log);
    }
}

fn add_indented(lines: &mut Vec<String>, text: &str) {
    lines.extend(
        text.trim_end()
            .lines()
            .map(|line| format!("  {line}").trim_end().to_owned()),
    );
}
