//! `gristmill show`: everything about one job.

use gristmill_model::{Effect, JobState, ShownProgress};
use gristmill_store::rules::admission::held_back::controls_that_hold;
use gristmill_store::rules::lanes::LaneName;
use gristmill_store::{JobCounts, JobDetails, Store, StoredFailure};

use crate::arguments::job::ShowArguments;
use crate::exit::Exit;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::output::terminal::harmless;
use crate::span::show_microseconds;

/// Runs the command.
pub async fn show(arguments: ShowArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let Some(details) = store.job(arguments.job).await? else {
        say!(
            "error: job {} does not exist; `gristmill jobs` lists all jobs",
            arguments.job
        );
        return Ok(Exit::SomeFailed);
    };
    if arguments.json {
        print_json(&details)?;
        return Ok(Exit::Done);
    }
    let mut text = describe(&details);
    for reason in waits_on(&*store, &details).await? {
        text.push_str(&format!("\nwaits on   {reason}"));
    }
    print_line(&harmless(&text))?;
    Ok(Exit::Done)
}

/// The reasons why a claimable job does not run, as far as the store knows them: limits that cover it, and the lack of
/// a worker that serves it.
async fn waits_on(store: &dyn Store, details: &JobDetails) -> anyhow::Result<Vec<String>> {
    let row = &details.row;
    if row.state != JobState::Waiting {
        return Ok(Vec::new());
    }
    let group = row.group.as_deref().unwrap_or_default();
    let workers = store.workers().await?;
    let is_served = workers
        .iter()
        .any(|known| known.worker.may_serve(&row.queue, &row.kind));
    let mut reasons = Vec::new();
    let lane = LaneName {
        queue: &row.queue,
        kind: &row.kind,
        group,
    };
    for control in controls_that_hold(store, &store.controls().await?, lane).await? {
        let perhaps = match control.effect {
            Effect::Concurrency { .. } => "",
            // Only a claim knows the tokens that are left. Without a worker, no claim takes any.
            Effect::Rate { .. } if is_served => "perhaps ",
            // The job's view shows pauses itself.
            _ => continue,
        };
        reasons.push(format!(
            "{perhaps}a limit of {}: {}",
            control.scope, control.effect
        ));
    }
    match workers.len() {
        _ if is_served => {}
        0 => reasons.push("a worker: none is registered".to_owned()),
        count => reasons.push(format!(
            "a worker: none of the {count} registered serves the kind {} on the queue {}",
            row.kind, row.queue
        )),
    }
    Ok(reasons)
}

fn describe(details: &JobDetails) -> String {
    let row = &details.row;
    let policy = &details.options.retry;
    let mut lines = vec![
        format!("job        {}", row.job),
        format!("kind       {}", row.kind),
        format!("queue      {}", row.queue),
        format!("state      {}", described_state(details)),
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
    add("claimed", row.claimed_at.map(|at| at.to_string()));
    add("progress", row.progress.as_ref().map(describe_progress));
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
        let whose = pause.scope.as_ref().map(|scope| format!(" ({scope})"));
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
    for prerequisite in &details.prerequisites {
        let jobs = match &prerequisite.positions {
            Some(positions) => format!("{}:{positions}", prerequisite.batch),
            None => format!("batch {}", prerequisite.batch),
        };
        let shown = format!(
            "{jobs}: {}; if one does not complete: {}",
            counted_by_state(prerequisite.counts),
            prerequisite.on_failure
        );
        add("waits on", Some(shown));
    }
    let cause = details.cause.as_ref().map(|cause| {
        format!(
            "job {}, which it waited for, ended as {}; `gristmill show {}` shows it",
            cause.job, cause.state, cause.job
        )
    });
    add("cause", cause);
    add("parent", details.parent.map(|parent| parent.to_string()));
    add("children", details.children.map(counted));
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

/// The progress of a job in words: `42 % (420 of 1000), 12 a second, 48 s left: reading page 7`.
fn describe_progress(shown: &ShownProgress) -> String {
    let progress = &shown.progress;
    let mut parts = Vec::new();
    let amount = match (progress.done, progress.total) {
        (Some(done), Some(total)) => Some(format!("{done} of {total}")),
        (Some(done), None) => Some(format!("{done} done")),
        _ => None,
    };
    match (progress.fraction, amount) {
        (Some(fraction), Some(amount)) => parts.push(format!("{} ({amount})", percent(fraction))),
        (Some(fraction), None) => parts.push(percent(fraction)),
        (None, amount) => parts.extend(amount),
    }
    if let (Some(rate_per_s), Some(_)) = (shown.rate_per_s, progress.done) {
        parts.push(format!("{rate_per_s:.1} a second"));
    }
    if let Some(left_ms) = shown.left_ms {
        parts.push(format!("{} left", show_microseconds(left_ms as f64 * 1_000.0)));
    }
    if shown.estimated {
        parts.push("estimated from its kind".to_owned());
    }
    match (&progress.message, parts.is_empty()) {
        (Some(message), true) => message.clone(),
        (Some(message), false) => format!("{}: {message}", parts.join(", ")),
        (None, _) => parts.join(", "),
    }
}

/// A fraction as a percentage.
pub fn percent(fraction: f64) -> String {
    format!("{:.0} %", fraction * 100.0)
}

fn described_state(details: &JobDetails) -> String {
    match (details.row.state, &details.children) {
        (JobState::Blocked, Some(_)) => "blocked: waits for its children".to_owned(),
        (state, _) => state.to_string(),
    }
}

/// Jobs by state: `10: 3 waiting, 7 completed`.
fn counted(counts: JobCounts) -> String {
    match counted_by_state(counts) {
        parts if parts.is_empty() => "0".to_owned(),
        parts => format!("{}: {parts}", counts.total()),
    }
}

/// Jobs by state: `3 waiting, 7 completed`.
pub fn counted_by_state(counts: JobCounts) -> String {
    let mut left = counts;
    let parts = JobState::ALL.into_iter().filter_map(|state| {
        let count = *left.get_mut(state);
        (count > 0).then(|| format!("{count} {state}"))
    });
    parts.collect::<Vec<String>>().join(", ")
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
    let error = &failure.error;
    let log = failure.log.as_ref().filter(|log| !log.is_empty());
    let traceback = error.traceback.as_deref().map(str::trim_end).unwrap_or_default();
    // A traceback ends with the message. The traceback of a program is the end of its output.
    if !traceback.ends_with(error.message.trim_end()) || error.message.is_empty() {
        add_indented(lines, &format!("{}: {}", error.error_type, error.message));
    }
    if !error.message.ends_with(traceback) && log.is_none_or(|log| log.trim_end() != traceback) {
        add_indented(lines, traceback);
    }
    if let Some(log) = log {
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

#[cfg(test)]
mod tests {
    use gristmill_model::{Progress, Timestamp};

    use super::*;

    fn shown(progress: Progress, rate_per_s: Option<f64>, left_ms: Option<u64>) -> ShownProgress {
        ShownProgress {
            progress,
            rate_per_s,
            left_ms,
            at: Timestamp(0),
            estimated: false,
        }
    }

    #[test]
    fn progress_is_told_in_words() {
        let counted = Progress {
            fraction: Some(0.42),
            ..Progress::of(420, 1_000).message("page 7")
        };
        for (shown, expected) in [
            (
                shown(counted, Some(12.0), Some(48_000)),
                "42 % (420 of 1000), 12.0 a second, 48.0 s left: page 7",
            ),
            (shown(Progress::fraction(0.5), Some(0.1), None), "50 %"),
            (
                shown(Progress::default().message("waiting"), None, None),
                "waiting",
            ),
            (
                ShownProgress {
                    estimated: true,
                    ..shown(Progress::fraction(0.25), None, Some(3_000))
                },
                "25 %, 3.00 s left, estimated from its kind",
            ),
        ] {
            assert_eq!(describe_progress(&shown), expected);
        }
    }
}
