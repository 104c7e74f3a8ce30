//! Events of an ingestion for programs: JSON lines, each about committed data.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use gristmill_memory::pipeline::{IngestEvent, Progress};
use serde_json::{Value, json};

use crate::output::OutputError;
use crate::output::target::refuse_database;

/// The destination of events.
pub struct Events {
    name: String,
    sink: Box<dyn Write + Send>,
    /// The progress that earlier events have reported.
    told: Progress,
}

impl Events {
    /// Appends to the file at `path`, which is created if needed, or to standard output for `-`.
    pub fn open(path: &Path) -> Result<Events, OutputError> {
        if path == Path::new("-") {
            return Ok(Events {
                name: "stdout".to_owned(),
                sink: Box::new(io::stdout()),
                told: Progress::default(),
            });
        }
        let name = path.display().to_string();
        refuse_database(path)?;
        match OpenOptions::new().append(true).create(true).open(path) {
            Ok(file) => Ok(Events {
                name,
                sink: Box::new(file),
                told: Progress::default(),
            }),
            Err(reason) => Err(OutputError::Create { name, reason }),
        }
    }

    /// Writes one event, so that a reader gets it at once.
    pub fn write(&mut self, event: &IngestEvent) -> Result<(), OutputError> {
        let line = format!("{}\n", self.event_json(event));
        let written = self.sink.write_all(line.as_bytes());
        written
            .and_then(|()| self.sink.flush())
            .map_err(|reason| OutputError::of(self.name.clone(), reason))
    }

    fn event_json(&mut self, event: &IngestEvent) -> Value {
        match event {
            IngestEvent::Skipped { source } => json!({ "event": "skipped", "source": source }),
            IngestEvent::Moved { from, source } => {
                json!({ "event": "moved", "source": source, "from": from })
            }
            IngestEvent::Planned {
                source,
                chunks,
                known,
            } => json!({ "event": "planned", "source": source, "chunks": chunks, "chunks_known": known }),
            IngestEvent::Failed { source, error } => {
                json!({ "event": "failed", "source": source, "error": error })
            }
            IngestEvent::Unread {
                source,
                messages,
                errors,
            } => json!({ "event": "unread", "source": source, "messages": messages, "errors": errors }),
            IngestEvent::WithoutText { source, format } => {
                json!({ "event": "without_text", "source": source, "format": format.name() })
            }
            IngestEvent::Committed(progress) => {
                let before = std::mem::replace(&mut self.told, *progress);
                let mut event = counts(&progress.since(&before));
                event["event"] = json!("committed");
                event
            }
        }
    }
}

/// The progress of an ingestion, for programs.
pub fn progress_json(progress: &Progress) -> Value {
    let mut shown = counts(progress);
    shown["chunks_total"] = json!(progress.chunks_total);
    shown
}

/// The numbers of committed messages, chunks and refs, and of the model calls and tokens for them.
fn counts(progress: &Progress) -> Value {
    json!({
        "messages": progress.messages,
        "chunks": progress.chunks,
        "refs": progress.refs,
        "failures": progress.failures,
        "unread": progress.unread,
        "model_calls": progress.usage.calls,
        "retries": progress.usage.retries,
        "input_tokens": progress.usage.input_tokens,
        "output_tokens": progress.usage.output_tokens,
    })
}
