//! The readers of sources.

use std::path::Path;

use gristmill_memory::source::{Format, ReadOptions, read as read_source};
use gristmill_model::Timestamp;

/// The first byte selects the format, and the second the maximum length of a chunk.
pub fn read(data: &[u8]) {
    let [format, characters, bytes @ ..] = data else {
        return;
    };
    Format::of(Path::new("fuzz"), bytes);
    let options = ReadOptions {
        chunk_characters: 1 + usize::from(*characters),
        recorded_at: Some(Timestamp(i64::MAX - 5)),
        recorded_pattern: None,
        duration_ms: Some(3_600_000),
        zone_minutes: Some(-420),
    };
    let format = Format::ALL[usize::from(*format) % Format::ALL.len()];
    let Ok(messages) = read_source("fuzz", format, bytes, &options) else {
        return;
    };
    for item in messages {
        let message = match item {
            Ok(message) => message,
            Err(error) => {
                assert!(error.to_string().starts_with("fuzz, "), "{error}");
                continue;
            }
        };
        assert!(!message.is_empty() || message.place.is_some());
        for chunk in &message.text_chunks {
            assert!(
                chunk.chars().count() <= options.chunk_characters,
                "{format:?}: {chunk:?}"
            );
        }
    }
}
