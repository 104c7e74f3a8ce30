//! JSON lines from a pipe that stays open. Each line is ingested when it arrives.
//!
//! A followed source only grows. Its new lines may begin with stored ones, because the program that writes them may
//! have started again from the beginning of its file.

use std::collections::{BTreeSet, VecDeque};
use std::thread;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use crate::error::MemoryError;
use crate::limits::{FOLLOWED_MESSAGES_MAX, SURVEY_MESSAGES_MAX};
use crate::message::Message;
use crate::pipeline::input::Followed;
use crate::source::{self, ReadOptions};
use crate::store::KnowledgeStore;

/// The digest of a followed source, whose content has no end yet.
pub(crate) const FOLLOWED_DIGEST: &str = "followed";

/// The messages of a stream that the source does not have yet.
#[derive(Debug)]
pub(crate) struct Stream {
    source: String,
    /// The channel from the thread that reads the lines.
    messages: mpsc::Receiver<Result<Message, MemoryError>>,
    /// The message that [`arrived`](Stream::arrived) received and nobody has taken; `Some(None)` is the end.
    ahead: Option<Option<Result<Message, MemoryError>>>,
    /// Number of stored messages to compare with the first messages of the stream.
    stored: u32,
    /// Number of messages that were equal so far.
    compared: u32,
    /// The next stored messages to compare.
    known: VecDeque<Message>,
    people: BTreeSet<String>,
}

/// The next item of a stream.
#[derive(Debug)]
pub(crate) enum Streamed {
    /// The next message.
    Message(Message),
    /// A line is no message.
    Unread(MemoryError),
    /// No message yet: [`Stream::arrived`] waits for the next one.
    Later,
    /// The stream has ended.
    End,
}

impl Stream {
    /// Reads the lines on a thread of its own, which waits for each line and for room in the channel. The source has
    /// `stored` messages.
    pub fn start(followed: Followed, stored: u32, options: &ReadOptions) -> Result<Stream, MemoryError> {
        let (sender, messages) = mpsc::channel(FOLLOWED_MESSAGES_MAX);
        let Followed { name, reader } = followed;
        let lines = source::json_lines(&name, reader, options);
        let read = move || {
            for message in lines {
                if sender.blocking_send(message).is_err() {
                    return;
                }
            }
        };
        let started = thread::Builder::new()
            .name("gristmill-lines".to_owned())
            .spawn(read);
        started.map_err(|error| MemoryError::File {
            path: name.clone().into(),
            reason: error.to_string(),
        })?;
        Ok(Stream {
            source: name,
            messages,
            ahead: None,
            stored,
            compared: 0,
            known: VecDeque::new(),
            people: BTreeSet::new(),
        })
    }

    /// The people of all messages that were taken.
    pub fn people(&self) -> impl Iterator<Item = &str> {
        self.people.iter().map(String::as_str)
    }

    /// Takes the next message.
    ///
    /// # Errors
    ///
    /// The stream cannot be read on.
    pub fn take_next(&mut self) -> Result<Streamed, MemoryError> {
        let is_unread = matches!(self.ahead, Some(Some(Err(MemoryError::Unread { .. }))));
        if self.is_comparing() && !is_unread {
            return Ok(Streamed::Later);
        }
        let next = match self.ahead.take() {
            Some(next) => next,
            None => match self.messages.try_recv() {
                Ok(message) => Some(message),
                Err(TryRecvError::Empty) => return Ok(Streamed::Later),
                Err(TryRecvError::Disconnected) => None,
            },
        };
        let message = match next {
            Some(Ok(message)) => message,
            Some(Err(error @ MemoryError::Unread { .. })) => return Ok(Streamed::Unread(error)),
            Some(Err(error)) => return Err(error),
            None => return Ok(Streamed::End),
        };
        for person in message.speaker.iter().chain(&message.recipients) {
            if !self.people.contains(person) {
                self.people.insert(person.clone());
            }
        }
        Ok(Streamed::Message(message))
    }

    /// Waits until there is a message that the source does not have, or the end. A caller that stops waiting loses nothing.
    pub async fn arrived(&mut self, store: &dyn KnowledgeStore) -> Result<(), MemoryError> {
        loop {
            if self.ahead.is_none() {
                self.ahead = Some(self.messages.recv().await);
            }
            // A line that is no message says nothing about the stored messages around it.
            let is_unread = matches!(self.ahead, Some(Some(Err(MemoryError::Unread { .. }))));
            if !self.is_comparing() || is_unread {
                return Ok(());
            }
            let Some(Some(Ok(message))) = &self.ahead else {
                self.end_comparison();
                return Ok(());
            };
            if self.known.is_empty() {
                let page = store.source_messages(&self.source, self.compared, SURVEY_MESSAGES_MAX as u32);
                self.known = page.await?.into_iter().map(|stored| stored.message).collect();
            }
            let known = self.known.pop_front();
            if !known.is_some_and(|known| known.is_same(message)) {
                self.end_comparison();
                return Ok(());
            }
            assert!(self.compared < self.stored, "only stored messages are compared");
            self.compared += 1;
            self.ahead = None;
        }
    }

    fn is_comparing(&self) -> bool {
        self.compared < self.stored
    }

    fn end_comparison(&mut self) {
        self.known.clear();
        self.stored = self.compared;
    }
}
