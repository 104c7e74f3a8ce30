//! Messages as JSON, one object a line.

use serde::Deserialize;
use serde_json::Value;

use crate::error::MemoryError;
use crate::message::{Message, Moment};
use crate::source::chunk::split_if_long;
use crate::source::{ReadOptions, moment};

/// A line: `{"text": "…", "speaker": "…", "recipients": ["…"], "timestamp": "2023-05-01T07:00:00Z", "subject": "…",
/// "tags": ["…"]}`. Only the text is needed.
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

/// The messages of a file of JSON lines. Empty lines are passed over.
///
/// # Errors
///
/// [`MemoryError::Invalid`] with the number of the line that is no message.
pub fn read(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            let place = || format!("{name}, line {}", number + 1);
            let parsed: Line = serde_json::from_str(line).map_err(|error| {
                MemoryError::invalid(
                    place(),
                    format!("it is no message such as {{\"text\": \"…\", \"speaker\": \"…\"}}: {error}"),
                )
            })?;
            let moment = match parsed.timestamp {
                None | Some(Value::Null) => None,
                Some(value) => Some(moment_of(&value, options).ok_or_else(|| {
                    MemoryError::invalid(
                        place(),
                        format!(
                            "{value} is no time such as \"2023-05-01T07:00:00Z\", nor seconds since 1970"
                        ),
                    )
                })?),
            };
            Ok(Message {
                text_chunks: split_if_long(&parsed.text, options.chunk_characters),
                speaker: parsed.speaker,
                recipients: parsed.recipients.into_vec(),
                subject: parsed.subject,
                tags: parsed.tags.into_vec(),
                moment,
            })
        })
        .collect()
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

    #[test]
    fn reads_lines_and_names_the_wrong_one() {
        let text = "{\"text\":\"Hi\",\"from\":\"Ada\",\"to\":\"Bob\",\"timestamp\":1682924400}\n\n{\"body\":\"Bye\"}\n";
        let messages = read("chat.jsonl", text, &ReadOptions::default()).expect("reads");
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[0].recipients, ["Bob"]);
        assert_eq!(
            messages[0].moment.map(|moment| moment.at.to_string()).as_deref(),
            Some("2023-05-01T07:00:00.000Z")
        );
        let error =
            read("chat.jsonl", "{\"text\":\"Hi\"}\nHi", &ReadOptions::default()).expect_err("no JSON");
        assert!(error.to_string().starts_with("chat.jsonl, line 2: "), "{error}");
    }
}
