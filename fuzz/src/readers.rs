//! The readers of sources.

use std::path::Path;
use std::sync::LazyLock;

use gristmill_memory::source::{Format, ReadOptions, read as read_source};
use gristmill_model::Timestamp;

/// The format of the target `reader-FORMAT`.
static FORMAT: LazyLock<Format> = LazyLock::new(|| {
    let target = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    let name = target.trim_start_matches("reader-");
    Format::from_name(name).unwrap_or_else(|| panic!("FUZZ_TARGET={target} names no format"))
});

/// The first byte selects the format, and the second the maximum length of a chunk.
pub fn read(data: &[u8]) {
    if let [format, ..] = data {
        read_as(Format::ALL[usize::from(*format) % Format::ALL.len()], data);
    }
}

/// The same with the format that the target names, whatever the first byte is.
pub fn read_one(data: &[u8]) {
    read_as(*FORMAT, data);
}

fn read_as(format: Format, data: &[u8]) {
    let [_, characters, bytes @ ..] = data else {
        return;
    };
    Format::of(Path::new("fuzz"), bytes);
    let options = ReadOptions {
        chunk_characters: 1 + usize::from(*characters),
        // Without one, the text may tell it.
        recorded_at: (characters % 2 == 0).then_some(Timestamp(i64::MAX - 5)),
        recorded_pattern: None,
        duration_ms: Some(3_600_000),
        zone_minutes: Some(-420),
    };
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
