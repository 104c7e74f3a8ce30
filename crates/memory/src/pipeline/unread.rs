//! The messages of a source that cannot be read.

use crate::error::MemoryError;
use crate::limits::UNREAD_RECORDED_MAX;
use crate::store::Unread;

/// The messages of a source that cannot be read: their number, and the records of the first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnreadMessages {
    /// Number of messages.
    pub messages: u64,
    records: Vec<Unread>,
    source: String,
}

impl UnreadMessages {
    /// Counts the error of one message, and records it if there is room. Returns any other error.
    ///
    /// # Errors
    ///
    /// The error is not about one message.
    pub fn add(&mut self, error: MemoryError) -> Result<(), MemoryError> {
        let text = error.to_string();
        let MemoryError::Unread {
            source_name, place, ..
        } = error
        else {
            return Err(error);
        };
        self.messages += 1;
        if self.records.len() < UNREAD_RECORDED_MAX {
            self.records.push(Unread { place, error: text });
            self.source = source_name;
        }
        Ok(())
    }

    /// The errors that are recorded.
    pub fn errors(&self) -> Vec<String> {
        self.records().into_iter().map(|record| record.error).collect()
    }

    /// The records. Where there are more messages than records, the last one says how many.
    pub fn records(&self) -> Vec<Unread> {
        let mut records = self.records.clone();
        let more = self.messages - records.len() as u64;
        if more > 0 {
            records.push(Unread {
                place: "behind".to_owned(),
                error: format!(
                    "{}: {more} more messages cannot be read; if it is another format, name it with --format",
                    self.source
                ),
            });
        }
        records
    }

    /// Returns an error if messages of a source cannot be read, and no other message can.
    ///
    /// # Errors
    ///
    /// The first error, and the number of messages.
    pub fn check_any_read(&self, messages_read: usize) -> Result<(), MemoryError> {
        match self.records.first() {
            Some(first) if messages_read == 0 => Err(MemoryError::invalid(
                first.error.clone(),
                format!(
                    "none of its messages ({}) can be read; if it is another format, name it with --format",
                    self.messages
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The first error, as an error.
    pub fn first(&self) -> Option<MemoryError> {
        let first = self.records.first()?;
        let reason = first
            .error
            .strip_prefix(&format!("{}, {}: ", self.source, first.place));
        Some(MemoryError::unread(
            &self.source,
            &first.place,
            reason.unwrap_or(&first.error),
        ))
    }
}
