//! Messages as JSON, one object on each line.

use std::io::BufRead;

use serde::Deserialize;
use serde_json::Value;

use crate::error::MemoryError;
use crate::message::{Message, Moment};
use crate::source::chunk::split_if_long;
use crate::source::content::{ReadLineError, read_line, skip_line};
use crate::source::{Item, ReadOptions, UTF_8_MARK, moment};

/// A line: `{"text": "…", "speaker": "…", "recipients": ["…"], "timestamp": "2023-05-01T07:00:00Z", "subject": "…",
/// "tags": ["…"]}`. Only the text is required.
#[derive(Deserialize)]
struct Line {
    #[serde(alias = "body", alias = "content", alias = "message")]
    text: String,
    #[serde(default, alias = "sender", alias = "from", alias = "author")]
    speaker: Option<String>,
    #[serde(default, alias = "listeners", alias = "to")]
    recipients: OneOrMany,
    #[serde(default, alias = "time", alias = "date", alias = "created_at")]
    timestamp: Option<Value>,
    #[serde(default, alias = "title")]
    subject: Option<String>,
    #[serde(default)]
    tags: OneOrMany,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
    None(()),
}

impl Default for OneOrMany {
    fn default() -> Self {
        OneOrMany::None(())
    }
}

impl OneOrMany {
    fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
            OneOrMany::None(()) => Vec::new(),
        }
    }
}

/// Reads the messages of JSON lines one by one. A malformed line gives [`MemoryError::Unread`] with its number. Empty
/// lines are skipped.
pub struct JsonLines<R> {
    reader: R,
    name: String,
    options: ReadOptions,
    /// The number of the last line that was read, from 1.
    number: usize,
    /// Whether the rest of the last line, which is too long, is not skipped yet.
    is_inside: bool,
    line: Vec<u8>,
}

impl<R: BufRead> JsonLines<R> {
    /// Reads messages from `reader`: UTF-8, with or without its byte order mark. `name` is used in errors.
    pub fn new(name: &str, reader: R, options: &ReadOptions) -> JsonLines<R> {
        JsonLines {
            reader,
            name: name.to_owned(),
            options: options.clone(),
            number: 0,
            is_inside: false,
            line: Vec::new(),
        }
    }

    fn refused(&self, reason: impl Into<String>) -> MemoryError {
        MemoryError::unread(&self.name, self.place(), reason)
    }

    fn place(&self) -> String {
        format!("line {}", self.number)
    }

    fn message(&self, line: &str) -> Item {
        let parsed: Line = serde_json::from_str(line).map_err(|error| {
            self.refused(format!(
                "it is not a message such as {{\"text\": \"…\", \"speaker\": \"…\"}}: {error}"
            ))
        })?;
        let moment = match parsed.timestamp {
            None | Some(Value::Null) => None,
            Some(value) => Some(moment_of(&value, &self.options).ok_or_else(|| {
                self.refused(format!(
                    "{value} is neither a time such as \"2023-05-01T07:00:00Z\" nor seconds since 1970"
                ))
            })?),
        };
        Ok(Message {
            text_chunks: split_if_long(&parsed.text, self.options.chunk_characters),
            speaker: parsed.speaker,
            recipients: parsed.recipients.into_vec(),
            subject: parsed.subject,
            tags: parsed.tags.into_vec(),
            moment,
            place: Some(self.place()),
            ..Message::default()
        })
    }
}

impl<R: BufRead> JsonLines<R> {
    /// Reads the next line. Returns `false` at the end.
    fn next_line(&mut self) -> Result<bool, ReadLineError> {
        if std::mem::take(&mut self.is_inside) {
            skip_line(&mut self.reader)?;
        }
        self.line.clear();
        self.number += 1;
        read_line(&mut self.reader, &mut self.line)
    }
}

impl<R: BufRead> Iterator for JsonLines<R> {
    type Item = Item;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_line() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error @ ReadLineError::TooLong) => {
                    self.is_inside = true;
                    return Some(Err(self.refused(error.to_string())));
                }
                Err(ReadLineError::System(error)) => {
                    return Some(Err(MemoryError::invalid(&self.name, error.to_string())));
                }
            }
            let line = match self.line.strip_prefix(UTF_8_MARK) {
                Some(rest) if self.number == 1 => rest,
                _ => &self.line,
            };
            let line = String::from_utf8_lossy(line);
            if !line.trim().is_empty() {
                return Some(self.message(&line));
            }
        }
    }
}

fn moment_of(value: &Value, options: &ReadOptions) -> Option<Moment> {
    match value {
        Value::String(text) => moment::parse(text, options.zone_minutes),
        Value::Number(seconds) => {
            let millis = seconds.as_f64()? * 1_000.0;
            (millis.abs() < 8.64e15).then_some(Moment {
                at: gristmill_model::Timestamp(millis as i64),
                zone_minutes: None,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Message>, MemoryError> {
        JsonLines::new("chat.jsonl", text.as_bytes(), &ReadOptions::default()).collect()
    }

    #[test]
    fn reads_lines_and_names_the_malformed_one() {
        let text = "{\"text\":\"Hi\",\"from\":\"Ada\",\"to\":\"Bob\",\"timestamp\":1682924400}\n\n{\"body\":\"Bye\"}\n";
        let messages = read(text).expect("reads");
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[0].recipients, ["Bob"]);
        assert_eq!(
            messages[0].moment.map(|moment| moment.at.to_string()).as_deref(),
            Some("2023-05-01T07:00:00.000Z")
        );
        let error = read("{\"text\":\"Hi\"}\nHi").expect_err("no JSON");
        assert!(error.to_string().starts_with("chat.jsonl, line 2: "), "{error}");
    }
}
