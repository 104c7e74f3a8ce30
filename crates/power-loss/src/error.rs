//! The error of a recording.

use std::error::Error;

/// The reason a recording failed.
pub type RecordError = Box<dyn Error + Send + Sync>;
