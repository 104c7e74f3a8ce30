//! `gristmill check`: looks for damage in a store.

use anyhow::bail;
use gristmill_store::{CheckPlace, Finding, StoreError};
use gristmill_store_sqlite::{Access, SqliteOptions};
use indicatif::ProgressBar;

use crate::arguments::CheckArguments;
use crate::exit::Exit;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::span::show_number_of;
use crate::store::location::StoreLocation;
use crate::store::open::open_location;

/// Runs the command.
pub async fn check(arguments: CheckArguments) -> anyhow::Result<Exit> {
    if let StoreLocation::File(path) = &arguments.store
        && !path.is_file()
    {
        bail!(
            "the store {} does not exist; name the file to check",
            path.display()
        );
    }
    let options = SqliteOptions {
        access: Access::Read,
        create: false,
        ..SqliteOptions::default()
    };
    let store = match open_location(&arguments.store, options).await {
        Ok(store) => store,
        Err(error) => {
            return match error.downcast_ref() {
                Some(StoreError::Corrupt { reason, .. }) => {
                    print(&Finding::beside("file", reason), arguments.json)?;
                    Ok(Exit::SomeFailed)
                }
                _ => Err(error),
            };
        }
    };
    // The bar appears only on a terminal.
    let progress = ProgressBar::new(0);
    let (mut place, mut batches, mut damages) = (Some(CheckPlace::default()), 0, 0);
    while let Some(next) = place {
        let page = store.check(next).await?;
        progress.inc_length(page.batches_in_all);
        batches += page.batches;
        progress.set_position(batches);
        damages += page.findings.len() as u64;
        progress.suspend(|| {
            page.findings
                .iter()
                .try_for_each(|finding| print(finding, arguments.json))
        })?;
        place = page.next;
    }
    progress.finish_and_clear();
    store.close().await?;
    let batches = show_number_of(batches, "batch");
    match damages {
        0 => say!("{batches} checked: no damage"),
        damages => say!(
            "{batches} checked: {} of damage",
            show_number_of(damages, "finding")
        ),
    }
    Ok(match damages {
        0 => Exit::Done,
        _ => Exit::SomeFailed,
    })
}

fn print(finding: &Finding, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(finding);
    }
    let place = match finding.batch {
        Some(batch) => format!("batch {batch}, {}", finding.table),
        None => finding.table.clone(),
    };
    Ok(print_line(&format!("{place}: {}", finding.what))?)
}
