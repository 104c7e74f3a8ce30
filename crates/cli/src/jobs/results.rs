//! `gristmill results`: writes the results of a run or a batch again.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use gristmill_model::BatchId;
use gristmill_store::Store;

use crate::arguments::job::ResultsArguments;
use crate::exit::{Exit, NotFound};
use crate::jobs::filter::find_run;
use crate::output::target::refuse_taken;
use crate::output::{LineForm, Output};
use crate::run::Corrections;
use crate::span::show_count;

/// The number of batches in one query.
const PAGE_BATCHES: u32 = 256;

/// Runs the command.
pub async fn results(arguments: ResultsArguments) -> anyhow::Result<Exit> {
    if arguments.output != Path::new("-") {
        refuse_taken(&arguments.output, [], None, arguments.store.store.file())?;
    }
    let store = arguments.store.open_existing().await?;
    let form = if arguments.values {
        LineForm::Value
    } else {
        LineForm::Outcome
    };
    let statistics = match (&arguments.run, arguments.batch) {
        (Some(name), _) => {
            let run = find_run(&*store, name).await?;
            let mut output = Output::create(Some(&arguments.output), form)?;
            let corrections = Corrections::of(&store, run.id).await?;
            let mut after = None;
            loop {
                let page = store.run_batches(run.id, after, PAGE_BATCHES).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.batch);
                for row in page.iter().filter(|row| !corrections.are_in(row.batch)) {
                    write(&store, row.batch, &corrections, &mut output).await?;
                }
            }
            output.finish()?
        }
        (None, Some(batch)) => {
            if store.outcomes(BatchId(batch)).await?.is_none() {
                return Err(NotFound(format!(
                    "batch {batch} does not exist; `gristmill jobs` lists all jobs"
                ))
                .into());
            }
            let mut output = Output::create(Some(&arguments.output), form)?;
            write(&store, BatchId(batch), &Corrections::default(), &mut output).await?;
            output.finish()?
        }
        (None, None) => bail!("name a run, or a batch with --batch"),
    };
    if statistics.missing > 0 {
        say!(
            "{} jobs have not ended and have no line",
            show_count(statistics.missing)
        );
    }
    Ok(if statistics.failed + statistics.missing == 0 {
        Exit::Done
    } else {
        Exit::SomeFailed
    })
}

async fn write(
    store: &Arc<dyn Store>,
    batch: BatchId,
    corrections: &Corrections,
    output: &mut Output,
) -> anyhow::Result<()> {
    output.stand_for(corrections.of_batch(batch));
    if let Some(outcomes) = corrections.outcomes(store, batch).await? {
        output.write_batch(&outcomes)?;
    }
    Ok(())
}
