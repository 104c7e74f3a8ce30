//! The failure of a recording.

use std::error::Error;

/// Why a recording came to nothing.
pub type RecordError = Box<dyn Error + Send + Sync>;
