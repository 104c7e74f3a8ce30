//! Messages as JSON, one object on each line.

use std::collections::VecDeque;
use std::io::BufRead;

use serde_json::Value;

use crate::error::MemoryError;
use crate::message::Message;
use crate::source::content::{ReadLineError, read_line, skip_line};
use crate::source::json_message::{self, ConversationMessages};
use crate::source::{Item, ReadOptions, UTF_8_MARK};

/// Reads the messages of JSON lines one by one. A malformed line gives [`MemoryError::Unread`] with its number. Empty
/// lines are skipped. A line with a list `messages`, as in the training files of models, gives all of them.
pub struct JsonLines<R> {
    reader: R,
    name: String,
    options: ReadOptions,
    /// The number of the last line that was read, from 1.
    number: usize,
    /// Whether the rest of the last line, which is too long, is not skipped yet.
    is_inside: bool,
    line: Vec<u8>,
    /// Messages of the last line that are not taken yet.
    ahead: VecDeque<Item>,
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
            ahead: VecDeque::new(),
        }
    }

    fn refused(&self, reason: impl Into<String>) -> MemoryError {
        MemoryError::unread(&self.name, self.place(), reason)
    }

    fn place(&self) -> String {
        format!("line {}", self.number)
    }

    fn messages(&self, line: &str) -> VecDeque<Item> {
        let parsed: Value = match serde_json::from_str(line) {
            Ok(parsed) => parsed,
            Err(error) => {
                let refused = self.refused(format!(
                    "it is not a message such as {{\"text\": \"…\", \"speaker\": \"…\"}}: {error}"
                ));
                return VecDeque::from([Err(refused)]);
            }
        };
        let read = |message: &Value| match json_message::message(message, &self.options) {
            Ok(message) => Ok(Message {
                place: Some(self.place()),
                ..message
            }),
            Err(reason) => Err(self.refused(reason)),
        };
        match ConversationMessages::of(&parsed) {
            Some(conversation) => conversation.map(|message| read(&message)).collect(),
            None => VecDeque::from([read(&parsed)]),
        }
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
            if let Some(message) = self.ahead.pop_front() {
                return Some(message);
            }
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
                self.ahead = self.messages(&line);
            }
        }
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
        let mut lines = JsonLines::new(
            "chat.jsonl",
            "Hi\n{\"text\":\"Bees\"}\n".as_bytes(),
            &ReadOptions::default(),
        );
        assert!(lines.next().expect("a line").is_err());
        let after = lines.next().expect("a line").expect("a message");
        assert_eq!(after.text(), "Bees", "a malformed line does not end the source");
    }

    #[test]
    fn a_line_may_hold_a_conversation() {
        let text = "{\"messages\":[{\"role\":\"user\",\"content\":\"Do bees hum?\"},\
                    {\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"They do.\"}]}]}\n";
        let messages = read(text).expect("reads");
        let found: Vec<(Option<&str>, String)> = messages
            .iter()
            .map(|message| (message.speaker.as_deref(), message.text()))
            .collect();
        assert_eq!(
            found,
            [
                (Some("user"), "Do bees hum?".to_owned()),
                (Some("assistant"), "They do.".to_owned())
            ]
        );
    }
}
