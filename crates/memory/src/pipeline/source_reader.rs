//! Reads the messages of a source on threads that may block, a few at a time. So an ingestion can stop at once, however
//! long a message is.

use std::collections::VecDeque;

use crate::error::MemoryError;
use crate::limits::{SURVEY_BYTES_MAX, SURVEY_MESSAGES_MAX};
use crate::message::Message;
use crate::pipeline::NewInput;
use crate::pipeline::unread::UnreadMessages;
use crate::source::{self, Item, Messages, ReadOptions};
use crate::store::blocking;

/// The reader of a source whose end is known.
#[derive(Debug)]
pub(crate) struct SourceReader {
    /// The messages that are not read yet; `None` at the end.
    messages: Option<Messages>,
    /// The messages that are read and not taken yet.
    ahead: VecDeque<Item>,
    /// The messages that were passed over because they cannot be read.
    unread: UnreadMessages,
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
            unread: UnreadMessages::default(),
        })
    }

    /// All items, if they are in memory and none has been taken.
    pub fn whole(&self) -> Option<&[Item]> {
        match &self.messages {
            Some(Messages::Whole(messages)) if self.ahead.is_empty() => Some(messages.as_slice()),
            _ => None,
        }
    }

    /// The messages that were passed over so far because they cannot be read.
    pub fn unread(&self) -> &UnreadMessages {
        &self.unread
    }

    /// Takes the next message that can be read; `None` at the end.
    ///
    /// # Errors
    ///
    /// The source cannot be read on.
    pub async fn next(&mut self) -> Result<Option<Message>, MemoryError> {
        loop {
            match self.next_item().await? {
                Some(Err(error)) => self.unread.add(error)?,
                Some(Ok(message)) => return Ok(Some(message)),
                None => return Ok(None),
            }
        }
    }

    async fn next_item(&mut self) -> Result<Option<Item>, MemoryError> {
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
        Ok(self.ahead.pop_front())
    }

    /// Skips messages.
    ///
    /// # Errors
    ///
    /// The source cannot be read on.
    pub async fn skip(&mut self, messages: usize) -> Result<(), MemoryError> {
        for _ in 0..messages {
            self.next().await?;
        }
        Ok(())
    }
}

/// Reads the next items.
fn read_some(messages: &mut Messages) -> VecDeque<Item> {
    let mut read = VecDeque::new();
    let mut bytes = 0;
    while read.len() < SURVEY_MESSAGES_MAX && bytes < SURVEY_BYTES_MAX {
        let Some(message) = messages.next() else { break };
        bytes += message.as_ref().map_or(0, Message::text_bytes);
        read.push_back(message);
    }
    assert!(read.len() <= SURVEY_MESSAGES_MAX, "a piece has its limit");
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
            unread: UnreadMessages::default(),
        };
        tokio::select! {
            passed = reader.skip(usize::MAX) => panic!("it has no end: {passed:?}"),
            heard = stopped => heard.expect("the stop is sent"),
        }
    }

    #[tokio::test]
    async fn messages_around_an_unread_one_are_read() {
        let content = b"{\"text\": \"Bees hum.\"}\nno JSON\n{\"text\": \"Drums.\"}\n".to_vec();
        let input = NewInput::from_bytes("bees.jsonl", content);
        let mut reader = SourceReader::open(&input, &ReadOptions::default())
            .await
            .expect("opens");
        for expected in ["Bees hum.", "Drums."] {
            let message = reader.next().await.expect("reads");
            assert_eq!(message.map(|message| message.text()).as_deref(), Some(expected));
        }
        assert_eq!(reader.next().await.expect("the end"), None);
        let errors = reader.unread().errors();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with("bees.jsonl, line 2: "), "{errors:?}");
    }
}
