//! Reading sources: from the bytes of a file to messages.
//!
//! Readers take whatever bytes they get and never panic: what has no sense gives few messages or an error that names
//! the line.

pub mod chunk;
pub mod conversation;
pub mod json_lines;
pub mod mail;
pub mod markdown;
pub mod moment;
pub mod subtitles;
pub mod transcript;

use std::path::Path;

use gristmill_model::Timestamp;

use crate::error::MemoryError;
use crate::limits::{CHUNK_CHARACTERS_DEFAULT, SOURCE_BYTES_MAX, SOURCE_MESSAGES_MAX};
use crate::message::Message;

/// How a source is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `SPEAKER: what was said`, with an introduction before the first speaker.
    Transcript,
    /// WebVTT subtitles, with their voices.
    WebVtt,
    /// SubRip subtitles.
    Srt,
    /// One mail.
    Mail,
    /// Many mails in one file.
    Mbox,
    /// Markdown: a message for each section.
    Markdown,
    /// Plain text.
    Text,
    /// A JSON object a line.
    JsonLines,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 8] = [
        Format::Transcript,
        Format::WebVtt,
        Format::Srt,
        Format::Mail,
        Format::Mbox,
        Format::Markdown,
        Format::Text,
        Format::JsonLines,
    ];

    /// Its name: `transcript`, `vtt`, `srt`, `eml`, `mbox`, `markdown`, `text`, `jsonl`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Transcript => "transcript",
            Format::WebVtt => "vtt",
            Format::Srt => "srt",
            Format::Mail => "eml",
            Format::Mbox => "mbox",
            Format::Markdown => "markdown",
            Format::Text => "text",
            Format::JsonLines => "jsonl",
        }
    }

    /// The format of a name.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The format of a file, by its ending, and for `.txt` and unknown endings by what is in it.
    pub fn of(path: &Path, bytes: &[u8]) -> Format {
        let ending = path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        match ending.as_str() {
            "vtt" => Format::WebVtt,
            "srt" => Format::Srt,
            "eml" => Format::Mail,
            "mbox" => Format::Mbox,
            "md" | "markdown" => Format::Markdown,
            "jsonl" | "ndjson" => Format::JsonLines,
            _ if bytes.starts_with(b"WEBVTT") => Format::WebVtt,
            _ if bytes.starts_with(b"From ") => Format::Mbox,
            _ if transcript::is_transcript(&decode(bytes)) => Format::Transcript,
            _ => Format::Text,
        }
    }
}

/// How a source is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// Characters of one chunk at most: what one model call reads.
    pub chunk_characters: usize,
    /// The offset from UTC, in minutes, of times that tell none themselves. UTC, where `None`.
    pub zone_minutes: Option<i16>,
    /// When a recording began: the times of subtitles, which count from its beginning, and of transcripts.
    pub recorded_at: Option<Timestamp>,
    /// How long a transcript's recording is. Its messages are spread over that time by their length. Milliseconds.
    pub duration_ms: Option<i64>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            chunk_characters: CHUNK_CHARACTERS_DEFAULT,
            zone_minutes: None,
            recorded_at: None,
            duration_ms: None,
        }
    }
}

impl ReadOptions {
    /// Everything that decides how a source is cut, as one text: with another one, an unchanged file counts as
    /// changed.
    pub fn describe(&self) -> String {
        format!(
            "chunk={} zone={:?} recorded={:?} duration={:?}",
            self.chunk_characters,
            self.zone_minutes,
            self.recorded_at.map(|at| at.0),
            self.duration_ms
        )
    }
}

/// Reads the file at `path`.
///
/// # Errors
///
/// [`MemoryError::File`] where it cannot be read or is over [`SOURCE_BYTES_MAX`].
pub fn read_file(path: &Path) -> Result<Vec<u8>, MemoryError> {
    let failed = |reason: String| MemoryError::File {
        path: path.to_path_buf(),
        reason,
    };
    let metadata = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if metadata.len() > SOURCE_BYTES_MAX {
        let size = metadata.len();
        return Err(failed(format!(
            "it has {size} bytes, and one source may have {SOURCE_BYTES_MAX}; cut it into several files"
        )));
    }
    std::fs::read(path).map_err(|error| failed(error.to_string()))
}

/// The messages of a source, in reading order. `name` is for errors.
///
/// # Errors
///
/// [`MemoryError::Invalid`] with the line, where the bytes do not have the format, and for more than
/// [`SOURCE_MESSAGES_MAX`] messages.
pub fn read(
    name: &str,
    format: Format,
    bytes: &[u8],
    options: &ReadOptions,
) -> Result<Vec<Message>, MemoryError> {
    let mut messages = match format {
        Format::Transcript => transcript::read(&decode(bytes), options),
        Format::WebVtt => subtitles::read_web_vtt(name, &decode(bytes), options)?,
        Format::Srt => subtitles::read_srt(&decode(bytes), options),
        Format::Mail => mail::read_mail(name, bytes, options)?,
        Format::Mbox => mail::read_mbox(name, bytes, options)?,
        Format::Markdown => markdown::read(&decode(bytes), options),
        Format::Text => chunk::split(&decode(bytes), options.chunk_characters)
            .into_iter()
            .map(Message::new)
            .collect(),
        Format::JsonLines => json_lines::read(name, &decode(bytes), options)?,
    };
    messages.retain(|message| message.text_chunks.iter().any(|text| !text.trim().is_empty()));
    if messages.len() > SOURCE_MESSAGES_MAX {
        let count = messages.len();
        return Err(MemoryError::invalid(
            name,
            format!(
                "it has {count} messages, and one source may have {SOURCE_MESSAGES_MAX}; cut it into several files"
            ),
        ));
    }
    Ok(messages)
}

/// Text from bytes: UTF-8 or, with its mark, UTF-16. What is neither becomes replacement characters.
pub fn decode(bytes: &[u8]) -> String {
    let utf_16 = |from: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes[2..]
            .chunks_exact(2)
            .map(|pair| from([pair[0], pair[1]]))
            .collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xff, 0xfe, ..] => utf_16(u16::from_le_bytes),
        [0xfe, 0xff, ..] => utf_16(u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}
