//! `gristmill schedule`: jobs that are submitted repeatedly.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_model::{Clock, PackedBuilder, SystemClock};
use gristmill_store::{NewSchedule, Schedule, ScheduleChange, Store};
use serde_json::json;

use crate::arguments::schedule::{
    ScheduleArguments, ScheduleCommand, ScheduleListArguments, ScheduleNamesArguments, SchedulePutArguments,
};
use crate::arguments::shared::StoreArguments;
use crate::exit::{Exit, NotFound};
use crate::jobs::submit::key_in;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::output::table::{Align, Table};
use crate::span::{milliseconds, show_count};

/// Runs the command.
pub async fn schedule(arguments: ScheduleArguments) -> anyhow::Result<Exit> {
    match arguments.command {
        ScheduleCommand::Put(put) => self::put(&put).await,
        ScheduleCommand::List(list) => self::list(&list).await,
        ScheduleCommand::Pause(pause) => {
            let now = SystemClock.now();
            let after = |span| now.plus_ms(i64::try_from(milliseconds(span)).unwrap_or(i64::MAX));
            let until = pause.span.map(after);
            change(pause.names, ScheduleChange::Pause { until }, "paused").await
        }
        ScheduleCommand::Resume(names) => change(names, ScheduleChange::Resume, "resumed").await,
        ScheduleCommand::Trigger(names) => trigger(names).await,
        ScheduleCommand::Delete(names) => change(names, ScheduleChange::Delete, "deleted").await,
    }
}

/// The value of a field of the payload, for a key or a tag.
fn field_of(arguments: &SchedulePutArguments, option: &str, field: &str) -> anyhow::Result<String> {
    key_in(&arguments.payload, field).with_context(|| {
        format!(
            "{option} {field}: the payload has no text, number or boolean in this field; nothing is changed"
        )
    })
}

/// The deduplication key of its jobs.
fn key_of(arguments: &SchedulePutArguments) -> anyhow::Result<Option<String>> {
    match (&arguments.key.key_field, arguments.key.keys.as_slice()) {
        (Some(field), _) => field_of(arguments, "--key-field", field).map(Some),
        (None, []) => Ok(None),
        (None, [key]) => Ok(Some(key.clone())),
        (None, keys) => bail!("{} keys for one payload: give --key once", keys.len()),
    }
}

/// The tags of its jobs.
fn tags_of(arguments: &SchedulePutArguments) -> anyhow::Result<BTreeMap<String, String>> {
    let mut tags: BTreeMap<String, String> = arguments.tags.iter().cloned().collect();
    for field in &arguments.tag_fields {
        tags.insert(field.clone(), field_of(arguments, "--tag-field", field)?);
    }
    Ok(tags)
}

async fn put(arguments: &SchedulePutArguments) -> anyhow::Result<Exit> {
    arguments.refused.check()?;
    arguments.key.check(&arguments.hooks)?;
    let mut payload = PackedBuilder::new();
    payload.push(&arguments.payload).with_context(|| {
        format!(
            "the payload `{}` is not JSON; a string needs its own quotes, as in '\"text\"'",
            arguments.payload
        )
    })?;
    let schedule = NewSchedule {
        name: arguments.name.clone(),
        rule: arguments.rule()?,
        kind: arguments.kind.clone(),
        queue: arguments.queue.clone(),
        payload: payload.finish(),
        options: arguments.options(),
        expires_after_ms: arguments.expires.map(milliseconds),
        key: key_of(arguments)?,
        tags: tags_of(arguments)?,
        catch_up: arguments.catch_up,
        overlap: arguments.overlap,
    };
    let store = arguments.store.open_or_create().await?;
    store.put_schedules(vec![schedule]).await?;
    let row = store.schedule(&arguments.name).await?;
    store.close().await?;
    if let (true, Some(row)) = (arguments.json, &row) {
        print_json(row)?;
        return Ok(Exit::Done);
    }
    print_line(&match row.and_then(|row| row.next_at) {
        Some(next_at) => format!("schedule {} is next due at {next_at}", arguments.name),
        None => format!("schedule {} is paused", arguments.name),
    })?;
    Ok(Exit::Done)
}

async fn list(arguments: &ScheduleListArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let mut table = Table::new(&[
        ("schedule", Align::Left),
        ("rule", Align::Left),
        ("kind", Align::Left),
        ("next", Align::Left),
        ("last", Align::Left),
        ("last job", Align::Left),
        ("fired", Align::Right),
    ]);
    let mut after: Option<String> = None;
    loop {
        let rows = store.schedules(after.as_deref(), PAGE_ROWS_MAX).await?;
        let Some(last) = rows.last() else { break };
        after = Some(last.schedule.name.clone());
        for row in rows {
            if arguments.json {
                print_json(&row)?;
            } else {
                table.row(cells(row));
            }
        }
    }
    store.close().await?;
    if !arguments.json {
        if table.is_empty() {
            say!("no schedules");
        } else {
            print_line(&table.text())?;
        }
    }
    Ok(Exit::Done)
}

fn cells(row: Schedule) -> [String; 7] {
    let next = match (row.next_at, row.paused_until) {
        (Some(next_at), Some(_)) => format!("{next_at} (paused)"),
        (Some(next_at), None) => next_at.to_string(),
        (None, None) => "never".to_owned(),
        (None, Some(_)) => "paused".to_owned(),
    };
    [
        row.schedule.name,
        row.schedule.rule.to_string(),
        row.schedule.kind,
        next,
        row.last_at.map(|last_at| last_at.to_string()).unwrap_or_default(),
        row.last_job.map(|job| job.to_string()).unwrap_or_default(),
        show_count(row.fired),
    ]
}

async fn trigger(arguments: ScheduleNamesArguments) -> anyhow::Result<Exit> {
    let names: BTreeSet<String> = arguments.names.iter().cloned().collect();
    let store = arguments.store.open_existing().await?;
    known(&*store, &names, &arguments.store).await?;
    store
        .change_schedules(names.clone(), ScheduleChange::Trigger)
        .await?;
    for name in &names {
        let job = store.schedule(name).await?.and_then(|row| row.last_job);
        print_line(&if arguments.json {
            json!({"schedule": name, "job": job}).to_string()
        } else {
            job.map(|job| job.to_string()).unwrap_or_default()
        })?;
    }
    store.close().await?;
    Ok(Exit::Done)
}

async fn change(
    arguments: ScheduleNamesArguments,
    change: ScheduleChange,
    done: &str,
) -> anyhow::Result<Exit> {
    let names: BTreeSet<String> = arguments.names.iter().cloned().collect();
    let store = arguments.store.open_existing().await?;
    known(&*store, &names, &arguments.store).await?;
    let changed = store.change_schedules(names, change).await?;
    store.close().await?;
    let noun = if changed == 1 { "schedule" } else { "schedules" };
    print_line(&if arguments.json {
        json!({"changed": changed}).to_string()
    } else {
        format!("{} {noun} {done}", show_count(changed))
    })?;
    Ok(Exit::Done)
}

/// Checks that all names exist. Otherwise no schedule is changed.
async fn known(
    store: &dyn Store,
    names: &BTreeSet<String>,
    arguments: &StoreArguments,
) -> anyhow::Result<()> {
    for name in names {
        if store.schedule(name).await?.is_none() {
            let error = format!(
                "schedule `{name}` does not exist in {}; `gristmill schedule list` lists all",
                arguments.store
            );
            return Err(NotFound(error).into());
        }
    }
    Ok(())
}
