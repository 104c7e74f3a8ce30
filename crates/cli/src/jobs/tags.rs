//! `gristmill tags`: the values of a tag.

use crate::arguments::job::TagsArguments;
use crate::exit::Exit;
use crate::output::print_line;
use crate::output::table::{Align, Table};
use crate::span::show_count;

/// Runs the command.
pub async fn tags(arguments: TagsArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    // One extra value shows whether there is a next page.
    let mut values = store
        .tag_values(&arguments.name, arguments.after.as_deref(), arguments.limit + 1)
        .await?;
    let has_more = values.len() > arguments.limit as usize;
    values.truncate(arguments.limit as usize);
    if arguments.json {
        for value in &values {
            print_line(&serde_json::to_string(value)?)?;
        }
    } else if values.is_empty() {
        say!("no job has the tag `{}`", arguments.name);
    } else {
        let mut table = Table::new(&[("value", Align::Left), ("jobs", Align::Right)]);
        for value in &values {
            table.row([value.value.clone(), show_count(value.jobs)]);
        }
        print_line(&table.text())?;
    }
    if let Some(last) = values.last().filter(|_| has_more) {
        say!("more values exist: add --after '{}'", last.value);
    }
    Ok(Exit::Done)
}
