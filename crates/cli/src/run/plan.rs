//! Plans a `gristmill run`: start, resume, or only write the results.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use gristmill_model::{BatchLimits, BatchOptions, Clock, RunId, SystemClock};
use gristmill_store::run::{NewRun, RunProgress};
use gristmill_store::{JobCounts, JobFilter, Run, RunState, Store};

use super::corrections::Corrections;
use super::identity::{Description, check_name, default_name};
use super::placeholders;
use super::retry_failed::{FailedItems, Retried};
use super::work::Work;
use crate::arguments::run::ItemsArguments;
use crate::input::{BatchReader, Input, InputBatch, Reopened};
use crate::output::target::refuse_taken;
use crate::span::show_number_of;

/// The work and the input, before the store is read.
pub struct Request {
    /// The script, the program or the model.
    pub work: Work,
    /// The items.
    pub input: Input,
    /// The run's name.
    pub name: String,
    /// The identity to store.
    pub description: Description,
}

impl Request {
    /// Finds the input of the work.
    pub fn new(arguments: &ItemsArguments, inputs: Vec<PathBuf>, work: Work) -> anyhow::Result<Request> {
        let input =
            Input::of(&or_standard_input(inputs)?, arguments.format)?.with_dialect(arguments.dialect)?;
        let input = work.reads(input);
        check_output(arguments, work.file(), &input)?;
        let identity = work.identity()?;
        let name = arguments
            .name
            .clone()
            .unwrap_or_else(|| default_name(&identity, &input, SystemClock.now()));
        check_name(&name)?;
        let kind = work.kind(&identity);
        let description = Description {
            script: identity,
            kind,
            input: input.fingerprint()?,
            is_rated: arguments.rate.is_some(),
            is_halted: false,
        };
        Ok(Request {
            work,
            input,
            name,
            description,
        })
    }
}

/// The plan.
pub struct Plan {
    /// The run in the store.
    pub run: RunId,
    /// The kind of its batches.
    pub kind: String,
    /// The identity to store from now on.
    pub remember: NewRun,
    /// The input, if a part of it is still to be read. `None` if it is submitted to its end.
    pub reader: Option<BatchReader>,
    /// The run's jobs at the start of this process.
    pub counts: JobCounts,
    /// The place up to which its input was submitted.
    pub progress: RunProgress,
    /// An earlier process started the run.
    pub is_resumed: bool,
    /// All of the input was submitted before, and now has new items.
    pub has_new_items: bool,
    /// The failed items that run again.
    pub retried: Option<Retried>,
    /// The run's corrected items.
    pub corrections: Corrections,
    /// An earlier process may have left a rate limit behind.
    pub was_rated: bool,
}

/// The refusal to resume a run that differs from this command.
fn has_changed(name: &str, changes: &[String], is_other_program: bool) -> anyhow::Error {
    let changes = changes.join(", and ");
    if is_other_program {
        anyhow!(
            "run `{name}` is of another program: {changes}; give this run another --name, or say --continue to keep what is done \
             and run the rest with this program, --retry-failed to run the failed items with it, too, or --restart to begin anew"
        )
    } else {
        anyhow!(
            "run `{name}` cannot go on as it is, because {changes}; say --retry-failed to run the failed items again, --continue to \
             keep what is done and run the rest as it is now, --restart to begin anew, or give this run another --name"
        )
    }
}

impl Plan {
    /// Finds the run and compares it, or starts a new one.
    pub async fn make(
        store: &Arc<dyn Store>,
        request: &Request,
        arguments: &ItemsArguments,
    ) -> anyhow::Result<Plan> {
        let limits = BatchLimits {
            jobs_max: arguments.batch,
            ..BatchLimits::default()
        };
        let existing = store.run(&request.name).await?;
        if let Some(run) = existing.as_ref().filter(|_| !arguments.restart) {
            return Plan::go_on(store, request, arguments, limits, run.clone()).await;
        }
        // The input is opened first. If this fails, no run is started and none forgotten.
        let mut reader = request.input.open(limits)?.with_jobs_limit(arguments.limit);
        let program_arguments = &request.description.script.arguments;
        if placeholders::have_fields(program_arguments)
            && let Some(first) = reader.peek()?
        {
            placeholders::check(program_arguments, first)?;
        }
        if request.work.makes_payloads()
            && let Some(first) = reader.peek()?
        {
            refuse_all_unreadable(first)?;
        }
        if let Some(run) = existing {
            store.delete_run(run.id).await?;
        }
        let remember = remember(&request.name, &request.description)?;
        let run = store.create_run(remember.clone()).await?;
        Ok(Plan {
            run: run.id,
            kind: request.description.kind.clone(),
            remember,
            reader: Some(reader),
            counts: JobCounts::default(),
            progress: RunProgress::default(),
            is_resumed: false,
            has_new_items: false,
            retried: None,
            corrections: Corrections::default(),
            was_rated: false,
        })
    }

    async fn go_on(
        store: &Arc<dyn Store>,
        request: &Request,
        arguments: &ItemsArguments,
        limits: BatchLimits,
        run: Run,
    ) -> anyhow::Result<Plan> {
        let before: Description = serde_json::from_str(&run.description).with_context(|| {
            format!(
                "another program than `gristmill run` created run `{}`; give this one another --name",
                run.name
            )
        })?;
        let mut changes: Vec<String> = before
            .script
            .difference(&request.description.script)
            .into_iter()
            .collect();
        if request.work.makes_payloads() && !changes.is_empty() {
            refuse_other_requests(store, request, arguments, &run, &before).await?;
        }
        let mut retried = None;
        let options = batch_options(arguments);
        let mut reader = match request.input.reopen(limits, run.progress, &before.input)? {
            Reopened::Unchanged(reader) => {
                if !arguments.retry_failed {
                    *reader
                } else {
                    let failed = FailedItems::of(store, &run, &before.kind, &options).await?;
                    // Other requests are made of the same lines.
                    if request.work.makes_payloads() && !changes.is_empty() {
                        let (corrected, reader) = failed.correct(&request.input, limits, false).await?;
                        retried = Some(corrected);
                        reader
                    } else {
                        retried = Some(failed.retry().await?);
                        *reader
                    }
                }
            }
            Reopened::Changed { .. } if arguments.retry_failed && !request.input.is_stdin() => {
                let failed = FailedItems::of(store, &run, &before.kind, &options).await?;
                let (corrected, reader) = failed.correct(&request.input, limits, true).await?;
                retried = Some(corrected);
                reader
            }
            Reopened::Changed { what } => {
                changes.push(format!("the input {} has changed: {what}", request.input.name()));
                request.input.reopen_after_lines(limits, run.progress)?
            }
        }
        .with_jobs_limit(arguments.limit);
        if arguments.retry_failed {
            changes.clear();
        }
        if !changes.is_empty() && !arguments.continue_run {
            let is_other_program = before.script.is_other_program(&request.description.script);
            return Err(has_changed(&run.name, &changes, is_other_program));
        }
        let mut counts = counts_of(store, run.id).await?;
        let corrections = Corrections::of(store, run.id).await?;
        // The corrected jobs stand for the cancelled ones.
        counts.cancelled = counts.cancelled.saturating_sub(corrections.replaced());
        // The kind stays the same, so that the new script runs the rest of the old batches.
        let description = Description {
            kind: before.kind.clone(),
            ..request.description.clone()
        };
        let remember = remember(&run.name, &description)?;
        let was_submitted = run.state != RunState::Submitting;
        let has_new_items = was_submitted && reader.has_next()?;
        if description != before {
            store.update_run(run.id, remember.clone(), run.state).await?;
        }
        let at_end = was_submitted && !has_new_items;
        Ok(Plan {
            run: run.id,
            kind: before.kind,
            remember,
            reader: (!at_end).then_some(reader),
            counts,
            progress: run.progress,
            is_resumed: true,
            has_new_items,
            retried,
            corrections,
            was_rated: before.is_rated,
        })
    }

    /// The identity to store for a halted run.
    pub fn halted(&self) -> anyhow::Result<NewRun> {
        let description: Description = serde_json::from_str(&self.remember.description)?;
        remember(
            &self.remember.name,
            &Description {
                is_halted: true,
                ..description
            },
        )
    }

    /// Reports whether no job is left to run.
    pub fn is_finished(&self) -> bool {
        self.reader.is_none() && self.counts.ended() == self.counts.total()
    }
}

async fn counts_of(store: &Arc<dyn Store>, run: RunId) -> anyhow::Result<JobCounts> {
    let filter = JobFilter {
        run: Some(run),
        ..JobFilter::default()
    };
    Ok(store.counts(&filter).await?)
}

/// Refuses to go on with other requests where some would stay as they were: with jobs that are submitted and have not ended,
/// with items that cannot be read again, or with changed lines, which nobody could compare with the old requests.
async fn refuse_other_requests(
    store: &Arc<dyn Store>,
    request: &Request,
    arguments: &ItemsArguments,
    run: &Run,
    before: &Description,
) -> anyhow::Result<()> {
    if !arguments.continue_run && !arguments.retry_failed {
        return Ok(());
    }
    let name = &run.name;
    let counts = counts_of(store, run.id).await?;
    let pending = counts.total() - counts.ended();
    if pending > 0 {
        bail!(
            "run `{name}` has {} of its former requests that have not ended, and the options of the requests have changed: run it \
             to its end with the former options first, say --restart to begin anew, or give this run another --name",
            show_number_of(pending, "job")
        );
    }
    if arguments.retry_failed && request.input.is_stdin() {
        bail!(
            "the options of the requests have changed, and the items of standard input cannot be made into other requests: say \
             --restart to begin anew, or run the failed items again with the former options"
        );
    }
    if arguments.retry_failed && before.input != request.description.input {
        bail!(
            "the options of the requests and the input {} have both changed: run the changed lines with the former options first, \
             or say --restart to begin anew",
            request.input.name()
        );
    }
    Ok(())
}

/// Refuses a run none of whose first items can be read: the problem is one of the command, and not of the items.
fn refuse_all_unreadable(first: &InputBatch) -> anyhow::Result<()> {
    let is_all = first.rejected.len() as u64 == u64::from(first.payloads.count());
    match first.rejected.first() {
        Some(rejected) if is_all => bail!("no item can be read; the first: {}", rejected.error.message),
        _ => Ok(()),
    }
}

/// The options of the run's batches.
pub fn batch_options(arguments: &ItemsArguments) -> BatchOptions {
    BatchOptions {
        timeout_ms: arguments.retry.timeout_ms(),
        retry: arguments.retry.policy_of_run(),
        ..BatchOptions::default()
    }
}

fn remember(name: &str, description: &Description) -> anyhow::Result<NewRun> {
    Ok(NewRun {
        name: name.to_owned(),
        description: serde_json::to_string(description)?,
    })
}

/// The named inputs, or standard input if it is piped.
fn or_standard_input(inputs: Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    use std::io::IsTerminal;
    if !inputs.is_empty() {
        return Ok(inputs);
    }
    if std::io::stdin().is_terminal() {
        bail!("the input is missing: name a file, or pipe items in");
    }
    Ok(vec![Path::new("-").to_owned()])
}

fn check_output(arguments: &ItemsArguments, script: Option<&Path>, input: &Input) -> anyhow::Result<()> {
    let Some(output) = arguments.output_file() else {
        return Ok(());
    };
    let inputs = input.files().iter().map(PathBuf::as_path);
    refuse_taken(output, inputs, script, arguments.store.store.file())
}
