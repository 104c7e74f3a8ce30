//! Reads the messages of a source on threads that may block, a few at a time. So an ingestion can stop at once, however
//! long a message is.

use std::collections::VecDeque;

use crate::error::MemoryError;
use crate::limits::{SURVEY_BYTES_MAX, SURVEY_MESSAGES_MAX};
use crate::message::Message;
use crate::pipeline::NewInput;
use crate::source::{self, Messages, ReadOptions};
use crate::store::blocking;

/// The reader of a source whose end is known.
#[derive(Debug)]
pub(crate) struct SourceReader {
    /// The messages that are not read yet; `None` at the end.
    messages: Option<Messages>,
    /// The messages that are read and not taken yet.
    ahead: VecDeque<Result<Message, MemoryError>>,
}

impl SourceReader {
    /// Opens an input at its first message.
    ///
    /// # Errors
    ///
    /// The errors of [`source::messages`].
    pub async fn open(input: &NewInput, options: &ReadOptions) -> Result<SourceReader, MemoryError> {
        let (input, options) = (input.clone(), options.clone());
        let read = move || source::messages(&input.name, input.format, &input.content, &options);
        Ok(SourceReader {
            messages: Some(blocking(read).await?),
            ahead: VecDeque::new(),
        })
    }

    /// All messages, if they are in memory and none has been taken.
    pub fn whole(&self) -> Option<&[Message]> {
        match &self.messages {
            Some(Messages::Whole(messages)) if self.ahead.is_empty() => Some(messages.as_slice()),
            _ => None,
        }
    }

    /// Takes the next message; `None` at the end.
    ///
    /// # Errors
    ///
    /// The message cannot be read.
    pub async fn next(&mut self) -> Result<Option<Message>, MemoryError> {
        if self.ahead.is_empty()
            && let Some(mut messages) = self.messages.take()
        {
            let read = move || {
                let ahead = read_some(&mut messages);
                Ok((messages, ahead))
            };
            let (messages, ahead) = blocking(read).await?;
            self.messages = (!ahead.is_empty()).then_some(messages);
            self.ahead = ahead;
        }
        self.ahead.pop_front().transpose()
    }

    /// Skips messages.
    ///
    /// # Errors
    ///
    /// One of them cannot be read.
    pub async fn skip(&mut self, messages: usize) -> Result<(), MemoryError> {
        for _ in 0..messages {
            self.next().await?;
        }
        Ok(())
    }
}

/// Reads the next messages, up to the first that cannot be read.
fn read_some(messages: &mut Messages) -> VecDeque<Result<Message, MemoryError>> {
    let mut read = VecDeque::new();
    let mut bytes = 0;
    while read.len() < SURVEY_MESSAGES_MAX && bytes < SURVEY_BYTES_MAX {
        let Some(message) = messages.next() else { break };
        bytes += message.as_ref().map_or(SURVEY_BYTES_MAX, Message::text_bytes);
        read.push_back(message);
    }
    read
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_stop_is_heard_while_messages_are_skipped() {
        let (stop, stopped) = oneshot::channel();
        let mut stop = Some(stop);
        let endless = (0..).map(move |number: u64| {
            if number == 1_000 {
                let _ = stop.take().map(|stop| stop.send(()));
            }
            Ok(Message::new("Bees hum."))
        });
        let mut reader = SourceReader {
            messages: Some(Messages::OneByOne(Box::new(endless))),
            ahead: VecDeque::new(),
        };
        tokio::select! {
            passed = reader.skip(usize::MAX) => panic!("it has no end: {passed:?}"),
            heard = stopped => heard.expect("the stop is sent"),
        }
    }

    #[tokio::test]
    async fn messages_before_an_error_are_read() {
        let content = b"{\"text\": \"Bees hum.\"}\nno JSON\n".to_vec();
        let input = NewInput::from_bytes("bees.jsonl", content);
        let mut reader = SourceReader::open(&input, &ReadOptions::default())
            .await
            .expect("opens");
        let first = reader
            .next()
            .await
            .expect("a message")
            .map(|message| message.text());
        assert_eq!(first.as_deref(), Some("Bees hum."));
        let error = reader.next().await.expect_err("no JSON").to_string();
        assert!(error.starts_with("bees.jsonl, line 2: "), "{error}");
        assert_eq!(reader.next().await.expect("the end"), None);
    }
}
