//! Exports of chats. Each message of a person becomes a message; what a program reports, such as who joined, is left out
//! unless a reader says otherwise.

pub mod discord;
pub mod irc;
pub mod matrix;
pub mod mattermost;
pub mod slack;
pub mod telegram;
pub mod whatsapp;
pub mod zulip;

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::MemoryError;
use crate::message::{Message, Moment};
use crate::source::chunk::split_if_long;
use crate::source::{Item, ReadOptions};

/// Makes the message of a chat. `channel` becomes its tag.
fn said(
    speaker: Option<String>,
    text: &str,
    moment: Option<Moment>,
    channel: Option<&str>,
    options: &ReadOptions,
) -> Message {
    Message {
        text_chunks: split_if_long(text, options.chunk_characters),
        speaker: speaker.filter(|name| !name.trim().is_empty()),
        tags: channel
            .filter(|name| !name.trim().is_empty())
            .map(str::to_owned)
            .into_iter()
            .collect(),
        moment,
        ..Message::default()
    }
}

/// Joins the words of a message and the names of its attachments, a line each.
fn with_attachments<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> String {
    let mut whole = text.trim().to_owned();
    for name in names.filter(|name| !name.trim().is_empty()) {
        if !whole.is_empty() {
            whole.push('\n');
        }
        whole.push_str(&format!("[attachment: {}]", name.trim()));
    }
    whole
}

/// A JSON document with lists of messages.
#[derive(Clone, Copy)]
pub(super) struct Document<'t> {
    /// The name of the source, for errors.
    pub name: &'t str,
    /// The document's path in an archive.
    pub path: Option<&'t str>,
    /// The JSON.
    pub text: &'t str,
}

impl<'t> Document<'t> {
    /// The JSON of a whole source.
    pub fn new(name: &'t str, text: &'t str) -> Document<'t> {
        Document {
            name,
            path: None,
            text,
        }
    }

    fn within(&self, place: &str) -> String {
        self.path
            .map_or_else(|| place.to_owned(), |path| format!("{path}, {place}"))
    }

    /// Parses the frame of the document. `what` names the expected export.
    pub fn frame<T: Deserialize<'t>>(&self, what: &str) -> Result<T, MemoryError> {
        serde_json::from_str(self.text).map_err(|error| {
            let place = self.within(&format!("line {}", error.line().max(1)));
            let reason = format!("it is not {what}: {error}; --format names another format");
            match self.path {
                // One damaged file of an archive does not lose the others.
                Some(_) => MemoryError::unread(self.name, place, reason),
                None => MemoryError::invalid(format!("{}, {place}", self.name), reason),
            }
        })
    }

    /// Reads each message. A message that cannot be read is one failure, with its number in the list.
    pub fn messages<T: Deserialize<'t>>(
        &self,
        list: &[&'t RawValue],
        mut read: impl FnMut(T) -> Result<Option<Message>, String>,
    ) -> Vec<Item> {
        let mut messages = Vec::with_capacity(list.len());
        for (number, raw) in (1..).zip(list) {
            let parsed: Result<T, _> = serde_json::from_str(raw.get());
            let message = match parsed {
                Ok(parsed) => read(parsed),
                Err(error) => Err(format!("it is not a message of this export: {error}")),
            };
            match message {
                Ok(Some(message)) => messages.push(Ok(Message {
                    place: Some(self.within(&format!("message {number}"))),
                    ..message
                })),
                Ok(None) => {}
                Err(reason) => {
                    let place = format!("message {number}, line {}", self.line_of(raw));
                    messages.push(Err(MemoryError::unread(self.name, self.within(&place), reason)));
                }
            }
        }
        messages
    }

    /// The number of the line on which a value of the document begins.
    fn line_of(&self, raw: &RawValue) -> usize {
        let before = (raw.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let before = self.text.as_bytes().get(..before).unwrap_or_default();
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }
}

/// The threads of a chat whose messages name the one that they answer.
#[derive(Default)]
struct Threads(HashMap<String, String>);

impl Threads {
    /// The thread of a message: that of the message it answers, or a new one with its own id.
    fn thread_of(&mut self, id: &str, answered: Option<&str>) -> Option<String> {
        let answered = answered?;
        let root = self
            .0
            .get(answered)
            .cloned()
            .unwrap_or_else(|| answered.to_owned());
        self.0.insert(id.to_owned(), root.clone());
        Some(root)
    }

    /// Adds each message that is answered to its own thread.
    fn with_roots(self, mut messages: Vec<Item>) -> Vec<Item> {
        let roots: HashSet<String> = self.0.into_values().collect();
        for message in messages.iter_mut().flatten() {
            if message.thread.is_none() {
                message.thread = message.id.clone().filter(|id| roots.contains(id));
            }
        }
        messages
    }
}
