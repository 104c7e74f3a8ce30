//! Plans a `gristmill run`: start, resume, or only write the results.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use gristmill_model::RunId;
use gristmill_runtime::Script;
use gristmill_store::run::{NewRun, RunProgress};
use gristmill_store::{JobCounts, JobFilter, Run, RunState, Store};

use super::identity::{Description, ScriptIdentity, check_name, default_name, kind_of};
use crate::arguments::run::RunArguments;
use crate::input::{BatchLimits, BatchReader, Input, InputError, Reopened};

/// The script and the input, before the store is read.
pub struct Request {
    /// The script or program.
    pub script: Script,
    /// The items.
    pub input: Input,
    /// The run's name.
    pub name: String,
    /// The identity to store.
    pub description: Description,
}

impl Request {
    /// Finds the script and the input.
    pub fn new(arguments: &RunArguments, script: Script) -> anyhow::Result<Request> {
        let input_path = input_argument(arguments)?;
        let input = Input::new(&input_path, arguments.format)?;
        check_output(arguments, &input)?;
        let program_arguments = arguments.program.iter().skip(1).cloned().collect();
        let identity = ScriptIdentity::read(script.path(), program_arguments)
            .with_context(|| format!("{} cannot be read", script.path().display()))?;
        let name = arguments
            .name
            .clone()
            .unwrap_or_else(|| default_name(&identity, &input));
        check_name(&name)?;
        let kind = kind_of(&identity);
        let description = Description {
            script: identity,
            kind,
            input: input.fingerprint()?,
        };
        Ok(Request {
            script,
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
    /// The input, where it is to be read further; `None` where it is submitted to its end.
    pub reader: Option<BatchReader>,
    /// The run's jobs when this process began.
    pub counts: JobCounts,
    /// How far its input was submitted.
    pub progress: RunProgress,
    /// The run was begun by an earlier process.
    pub is_resumed: bool,
}

impl Plan {
    /// Looks up the run and compares it, or begins a new run.
    pub async fn make(
        store: &Arc<dyn Store>,
        request: &Request,
        arguments: &RunArguments,
    ) -> anyhow::Result<Plan> {
        let limits = BatchLimits {
            jobs_max: arguments.batch,
            ..BatchLimits::default()
        };
        let existing = store.run(&request.name).await?;
        if let Some(run) = existing.as_ref().filter(|_| !arguments.restart) {
            return Plan::go_on(store, request, arguments, limits, run.clone()).await;
        }
        // The input is opened first: where it cannot be, nothing is begun and nothing forgotten.
        let reader = request.input.open(limits)?.with_jobs_limit(arguments.limit);
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
        })
    }

    async fn go_on(
        store: &Arc<dyn Store>,
        request: &Request,
        arguments: &RunArguments,
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
        let reader = match reopen(request, limits, &run, &before)? {
            Reopened::Unchanged(reader) => *reader,
            Reopened::Changed { what } => {
                changes.push(format!("the input {} has changed: {what}", request.input.name()));
                request.input.reopen_after_lines(limits, run.progress)?
            }
        };
        if !changes.is_empty() && !arguments.continue_run {
            bail!(
                "run `{}` cannot go on as it is, because {}; say --continue to keep what is done and run the rest as \
                 it is now, --restart to begin anew, or give this run another --name",
                run.name,
                changes.join(", and ")
            );
        }
        let filter = JobFilter {
            run: Some(run.id),
            ..JobFilter::default()
        };
        let counts = store.counts(&filter).await?;
        // The kind stays, so that the rest of the old batches runs with the new script.
        let description = Description {
            kind: before.kind.clone(),
            ..request.description.clone()
        };
        let remember = remember(&run.name, &description)?;
        let is_submitted = run.state != RunState::Submitting;
        if description != before {
            store.update_run(run.id, remember.clone(), run.state).await?;
        }
        let at_end = is_submitted && changes.is_empty();
        Ok(Plan {
            run: run.id,
            kind: before.kind,
            remember,
            reader: (!at_end).then(|| reader.with_jobs_limit(arguments.limit)),
            counts,
            progress: run.progress,
            is_resumed: true,
        })
    }

    /// Whether nothing is left to be run.
    pub fn is_finished(&self) -> bool {
        self.reader.is_none() && self.counts.ended() == self.counts.total()
    }
}

/// Opens the input where the run stopped. Where all of it was submitted, more of it is a change too.
fn reopen(
    request: &Request,
    limits: BatchLimits,
    run: &Run,
    before: &Description,
) -> Result<Reopened, InputError> {
    let reopened = request.input.reopen(limits, run.progress, &before.input)?;
    if run.state == RunState::Submitting {
        return Ok(reopened);
    }
    match reopened {
        Reopened::Unchanged(mut reader) => {
            if reader.next_batch()?.is_some() {
                let what = format!("it had {} lines, and now has more", run.progress.lines);
                return Ok(Reopened::Changed { what });
            }
            Ok(Reopened::Unchanged(reader))
        }
        changed @ Reopened::Changed { .. } => Ok(changed),
    }
}

fn remember(name: &str, description: &Description) -> anyhow::Result<NewRun> {
    Ok(NewRun {
        name: name.to_owned(),
        description: serde_json::to_string(description)?,
    })
}

/// The named input, or standard input if it is piped.
fn input_argument(arguments: &RunArguments) -> anyhow::Result<std::path::PathBuf> {
    use std::io::IsTerminal;
    match &arguments.input {
        Some(path) => Ok(path.clone()),
        None if std::io::stdin().is_terminal() => {
            bail!("the input is missing: name a file with --input, or pipe items in")
        }
        None => Ok(Path::new("-").to_owned()),
    }
}

fn check_output(arguments: &RunArguments, input: &Input) -> anyhow::Result<()> {
    let Some(output) = arguments.output_file() else {
        return Ok(());
    };
    for (what, path) in [
        ("input", input.path()),
        ("store", arguments.store.store.file()),
        ("script", arguments.script.as_deref()),
    ] {
        if path.is_some_and(|path| crate::output::is_same_file(path, output)) {
            bail!("--output {} is the {what}; name another file", output.display());
        }
    }
    Ok(())
}
