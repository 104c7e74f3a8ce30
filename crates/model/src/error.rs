//! The error of a failed attempt.

use serde::{Deserialize, Serialize};

use crate::limits::{ERROR_MESSAGE_BYTES_MAX, ERROR_TRACEBACK_BYTES_MAX};

/// The error of one attempt of one job, with the job's advice on a retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// The kind of error, for grouping: an exception's class, or `timeout`, `crash`, `panic`, …
    #[serde(rename = "type")]
    pub error_type: String,
    /// The message.
    pub message: String,
    /// The place of the error, if known: a traceback or a stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// Whether a retry cannot help. The job is dead at once then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
    /// The delay before the next attempt, whatever the policy says, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl JobError {
    /// Makes a retryable error. Text beyond its limit is cut.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        JobError {
            error_type: cut(error_type.into(), 200),
            message: cut(message.into(), ERROR_MESSAGE_BYTES_MAX),
            traceback: None,
            permanent: false,
            retry_after_ms: None,
        }
    }

    /// Marks the error as permanent: a retry cannot help.
    pub fn permanent(mut self) -> Self {
        self.permanent = true;
        self
    }

    /// Sets the delay before the next attempt.
    pub fn retry_after_ms(mut self, milliseconds: u64) -> Self {
        self.retry_after_ms = Some(milliseconds);
        self
    }

    /// Adds the place of the error. A long traceback loses its beginning, because its end says most.
    pub fn with_traceback(mut self, traceback: impl Into<String>) -> Self {
        let mut traceback = traceback.into();
        if traceback.len() > ERROR_TRACEBACK_BYTES_MAX {
            let mut from = traceback.len() - ERROR_TRACEBACK_BYTES_MAX;
            while !traceback.is_char_boundary(from) {
                from += 1;
            }
            traceback = format!("…{}", &traceback[from..]);
        }
        self.traceback = Some(traceback);
        self
    }

    /// The same error, with its texts cut at their limits and without NUL characters, which PostgreSQL cannot store in a text.
    pub fn cleaned(self) -> Self {
        let clean = |text: String| text.replace('\0', "\u{fffd}");
        let mut error = JobError::new(clean(self.error_type), clean(self.message));
        if let Some(traceback) = self.traceback {
            error = error.with_traceback(clean(traceback));
        }
        JobError {
            permanent: self.permanent,
            retry_after_ms: self.retry_after_ms,
            ..error
        }
    }
}

fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let mut end = bytes_max;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
