//! `gristmill ingest --dry-run`: what would be read, as what, and what not.

use std::collections::BTreeSet;

use gristmill_memory::MemoryError;
use gristmill_memory::pipeline::{Input, IntoInput};
use gristmill_memory::source::{self, ReadOptions};
use gristmill_model::Timestamp;
use serde_json::{Value, json};

use super::shown::plain;
use super::sources::{Found, Source};
use crate::exit::Exit;
use crate::output::print_line;
use crate::output::table::{Align, Table};
use crate::span::{show_count, show_number_of};

/// Speakers of a source that are counted. More are "more than" these.
const SPEAKERS_MAX: usize = 100_000;

/// The messages that a reader finds in a source.
#[derive(Debug, Default)]
struct Seen {
    name: String,
    format: &'static str,
    messages: u64,
    /// Messages without a text.
    empty: u64,
    speakers: BTreeSet<String>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    /// The messages that cannot be read, and the first error.
    unread: u64,
    error: Option<String>,
}

/// Reads all sources, stores nothing, and prints what it has found.
pub async fn dry_run(found: Found, options: ReadOptions, json: bool) -> anyhow::Result<Exit> {
    let mut table = Table::new(&[
        ("source", Align::Left),
        ("format", Align::Left),
        ("messages", Align::Right),
        ("speakers", Align::Right),
        ("first", Align::Left),
        ("last", Align::Left),
        ("unread", Align::Right),
    ]);
    let mut errors = Vec::new();
    let mut without_text = Vec::new();
    let (mut sources, mut messages) = (0_u64, 0);
    for source in found.sources {
        let options = options.clone();
        let seen = tokio::task::spawn_blocking(move || look_at(source, &options)).await?;
        errors.extend(seen.error.clone());
        sources += 1;
        messages += seen.messages;
        if seen.messages == seen.empty && seen.error.is_none() {
            without_text.push(seen.name.clone());
        }
        if json {
            print_line(&seen.json().to_string())?;
            continue;
        }
        let date = |at: Option<Timestamp>| at.map_or_else(String::new, |at| at.to_string()[..10].to_owned());
        table.row([
            plain(&seen.name),
            seen.format.to_owned(),
            show_count(seen.messages),
            show_count(seen.speakers.len() as u64),
            date(seen.first),
            date(seen.last),
            show_count(seen.unread),
        ]);
    }
    for passed in &found.passed_over {
        if json {
            let told = json!({ "source": passed.path.display().to_string(), "passed_over": passed.reason });
            print_line(&told.to_string())?;
        }
    }
    if !json {
        print_line(&table.text())?;
        for passed in &found.passed_over {
            say!(
                "passed over: {}: {}",
                plain(&passed.path.display().to_string()),
                passed.reason
            );
        }
        for name in &without_text {
            say!(
                "without a text: {}; if it is another format, name it with --format",
                plain(name)
            );
        }
        for error in &errors {
            say!("error: {}", plain(error));
        }
        say!(
            "gristmill: {} of {} would be read, and {} passed over; nothing is stored",
            show_number_of(messages, "message"),
            show_number_of(sources, "source"),
            show_number_of(found.passed_over.len() as u64, "file")
        );
    }
    Ok(match errors.is_empty() {
        true => Exit::Done,
        false => Exit::SomeFailed,
    })
}

fn look_at(source: Source, options: &ReadOptions) -> Seen {
    let mut seen = Seen {
        name: source.name().unwrap_or_default(),
        ..Seen::default()
    };
    if let Err(error) = seen.read(source, options) {
        seen.unread += u64::from(seen.error.is_none());
        seen.error = Some(error.to_string());
    }
    seen
}

impl Seen {
    fn read(&mut self, source: Source, options: &ReadOptions) -> Result<(), MemoryError> {
        let input = match source.into_input()? {
            Input::Whole(input) => input,
            // It has no end.
            Input::Followed(_) => {
                self.format = "jsonl";
                return Ok(());
            }
        };
        self.format = input.format.name();
        for item in source::messages(&input.name, input.format, &input.content, options)? {
            let message = match item {
                Ok(message) => message,
                Err(error @ MemoryError::Unread { .. }) => {
                    self.unread += 1;
                    self.error.get_or_insert(error.to_string());
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.messages += 1;
            self.empty += u64::from(message.is_empty());
            if let Some(moment) = message.moment {
                self.first = Some(self.first.map_or(moment.at, |first| first.min(moment.at)));
                self.last = Some(self.last.map_or(moment.at, |last| last.max(moment.at)));
            }
            if self.speakers.len() < SPEAKERS_MAX {
                self.speakers.extend(message.speaker);
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        json!({
            "source": self.name,
            "format": self.format,
            "messages": self.messages,
            "empty": self.empty,
            "speakers": self.speakers.len(),
            "first": self.first.map(|at| at.to_string()),
            "last": self.last.map(|at| at.to_string()),
            "unread": self.unread,
            "error": self.error,
        })
    }
}
