//! Readers of sources: they turn the bytes of a file into messages.
//!
//! A reader accepts any bytes and never panics. A message that it cannot read is an item of its own,
//! [`MemoryError::Unread`], with the place in the source; the reader goes on behind it. Any other error says that the
//! source as a whole cannot be read, and ends it. All readers pass through [`messages`], which applies the rules that
//! hold for each of them.

mod archive;
pub mod chat;
pub mod chunk;
pub mod content;
pub mod conversation;
mod format;
mod front_matter;
mod html;
mod icalendar;
pub mod json_lines;
mod json_list;
mod json_message;
pub mod mail;
pub mod markdown;
pub mod moment;
pub mod notes;
pub mod recording;
pub mod speech;
pub mod subtitles;
pub mod transcript;

use std::io::BufRead;

use gristmill_model::Timestamp;

use crate::error::MemoryError;
use crate::limits::{BINARY_BYTES_MAX, CHUNK_CHARACTERS_DEFAULT, SOURCE_MESSAGES_MAX};
use crate::message::Message;
use chat::{discord, irc, matrix, mattermost, slack, telegram, whatsapp, zulip};
pub use content::{Content, Folders};
use format::ZIP_MARK;
pub use format::{Format, SourceKind};
use json_lines::JsonLines;
use mail::Mbox;

/// Options of reading a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// Maximum characters of a chunk, which one model call reads.
    pub chunk_characters: usize,
    /// The offset from UTC, in minutes, of times without a zone; UTC if `None`.
    pub zone_minutes: Option<i16>,
    /// The beginning of a recording. The times of subtitles count from it, and so do the times of transcripts.
    pub recorded_at: Option<Timestamp>,
    /// How the names of recordings write their beginning, as in `%d.%m.%Y %H-%M`; ISO 8601 and the like if `None`.
    pub recorded_pattern: Option<String>,
    /// The duration of a transcript's recording, in milliseconds. Its messages are spread over it by their length.
    pub duration_ms: Option<i64>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            chunk_characters: CHUNK_CHARACTERS_DEFAULT,
            zone_minutes: None,
            recorded_at: None,
            recorded_pattern: None,
            duration_ms: None,
        }
    }
}

impl ReadOptions {
    /// Describes all options that decide how a source is cut. With another description, an unchanged file counts as changed.
    pub fn describe(&self) -> String {
        let pattern = self
            .recorded_pattern
            .as_ref()
            .map(|pattern| format!(" pattern={pattern:?}"));
        format!(
            "chunk={} zone={:?} recorded={:?}{} duration={:?}",
            self.chunk_characters,
            self.zone_minutes,
            self.recorded_at.map(|at| at.0),
            pattern.unwrap_or_default(),
            self.duration_ms
        )
    }
}

/// What a reader gives: a message, or the error of one that cannot be read.
pub type Item = Result<Message, MemoryError>;

/// The messages of a source, in reading order. Behind a [`MemoryError::Unread`], more may follow.
pub enum Messages {
    /// All messages, in memory.
    Whole(std::vec::IntoIter<Item>),
    /// Messages that are read one by one.
    OneByOne(Box<dyn Iterator<Item = Item> + Send>),
}

impl Iterator for Messages {
    type Item = Item;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Messages::Whole(messages) => messages.next(),
            Messages::OneByOne(messages) => messages.next(),
        }
    }
}

impl std::fmt::Debug for Messages {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Messages::Whole(_) => "Messages::Whole",
            Messages::OneByOne(_) => "Messages::OneByOne",
        })
    }
}

/// Reads the messages of a source, in reading order. Of an mbox and of JSON lines, one message at a time is in memory.
/// `name` is used in errors.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the source is not of its format, or has more than [`SOURCE_MESSAGES_MAX`] messages;
/// [`MemoryError::File`] if a file cannot be read. A message that cannot be read is an item.
pub fn messages(
    name: &str,
    format: Format,
    content: &Content,
    options: &ReadOptions,
) -> Result<Messages, MemoryError> {
    begun(name, format, content, options).map_err(|error| content.named(name, error))
}

fn begun(
    name: &str,
    format: Format,
    content: &Content,
    options: &ReadOptions,
) -> Result<Messages, MemoryError> {
    let options = &recording::options(name, format, options);
    let mut reader = content.open()?;
    let beginning = reader.fill_buf().map_err(|error| content.failed(error))?;
    let is_utf_16 = UTF_16_MARKS.iter().any(|mark| beginning.starts_with(mark));
    let is_mail = matches!(format, Format::Mail | Format::Mbox);
    let is_archive =
        beginning.starts_with(ZIP_MARK) && matches!(format, Format::Slack | Format::WhatsApp | Format::Docx);
    let is_pdf = format == Format::Pdf && beginning.starts_with(notes::pdf::MARK);
    if !is_utf_16 && !is_archive && !is_pdf && is_binary(beginning, is_mail) {
        return Err(MemoryError::invalid(
            name,
            "it is binary, not text; write its text to a file, and ingest that",
        ));
    }
    match format {
        Format::Mbox => Ok(one_by_one(name, Mbox::new(name, reader, options))),
        Format::JsonLines if !is_utf_16 => Ok(one_by_one(name, JsonLines::new(name, reader, options))),
        _ => {
            let messages = read_whole(name, format, content, options)?;
            let messages = gathered(checked(name.to_owned(), messages.into_iter()))?;
            Ok(Messages::Whole(messages.into_iter()))
        }
    }
}

/// Reads the messages of JSON lines in UTF-8, as they arrive. `name` is used in errors.
pub(crate) fn json_lines(
    name: &str,
    reader: impl BufRead + Send + 'static,
    options: &ReadOptions,
) -> impl Iterator<Item = Item> + Send + 'static {
    checked(name.to_owned(), JsonLines::new(name, reader, options))
}

/// Whether bytes are not text: they contain a NUL, or many control characters in the encoding that they show. Mails may have parts
/// of any kind.
fn is_binary(beginning: &[u8], is_mail: bool) -> bool {
    let beginning = &beginning[..beginning.len().min(BINARY_BYTES_MAX)];
    if beginning.contains(&0) {
        return true;
    }
    let text = mail::charset::decode(beginning, None);
    let foreign = text.chars().filter(|&letter| {
        letter == char::REPLACEMENT_CHARACTER
            || (letter.is_control() && !letter.is_whitespace() && letter != '\u{1b}')
    });
    // Bytes of any kind look like letters in the encodings of one byte, and like control characters as well.
    let percent_max = if std::str::from_utf8(beginning).is_ok() {
        FOREIGN_PERCENT_MAX
    } else {
        GUESSED_FOREIGN_PERCENT_MAX
    };
    !is_mail && foreign.count() * 100 > text.chars().count() * percent_max
}

/// Control characters of a text in UTF-8 at most, of 100.
const FOREIGN_PERCENT_MAX: usize = 30;

/// Control characters of a text in another encoding at most, of 100.
const GUESSED_FOREIGN_PERCENT_MAX: usize = 3;

fn one_by_one(name: &str, messages: impl Iterator<Item = Item> + Send + 'static) -> Messages {
    Messages::OneByOne(Box::new(checked(name.to_owned(), messages)))
}

/// The rules for the items of every reader.
///
/// A message without a text is kept without chunks, so that no model reads it, if it has a place among the messages of
/// its source; an empty piece of a document is none. An error stands in the place of a message beyond the limit, and
/// after an error of the whole source there is nothing more.
fn checked(name: String, messages: impl Iterator<Item = Item>) -> impl Iterator<Item = Item> {
    let messages = messages.filter_map(|item| match item {
        Ok(mut message) => {
            if message.text_chunks.iter().all(|text| text.trim().is_empty()) {
                message.text_chunks.clear();
            }
            (!message.is_empty() || message.place.is_some()).then_some(Ok(message))
        }
        Err(error) => Some(Err(error)),
    });
    let mut position = 0;
    let mut is_ended = false;
    messages.map_while(move |item| {
        if is_ended {
            return None;
        }
        position += usize::from(item.is_ok());
        let item = match item {
            Ok(_) if position > SOURCE_MESSAGES_MAX => Err(MemoryError::invalid(
                name.clone(),
                format!(
                    "it exceeds the limit of {SOURCE_MESSAGES_MAX} messages for a source; split it into several files"
                ),
            )),
            item => item,
        };
        is_ended = !is_item(&item);
        Some(item)
    })
}

/// Whether an item is a message or an unread one, and no error of the whole source.
fn is_item(item: &Item) -> bool {
    matches!(item, Ok(_) | Err(MemoryError::Unread { .. }))
}

/// Gathers the items of a source, or returns the error of the whole source.
fn gathered(items: impl Iterator<Item = Item>) -> Result<Vec<Item>, MemoryError> {
    let mut gathered = Vec::new();
    for item in items {
        if is_item(&item) {
            gathered.push(item);
        } else {
            item?;
        }
    }
    Ok(gathered)
}

fn read_whole(
    name: &str,
    format: Format,
    content: &Content,
    options: &ReadOptions,
) -> Result<Vec<Item>, MemoryError> {
    let bytes = content.read()?;
    let text = || decode(&bytes);
    let messages = match format {
        Format::Transcript => {
            let text = text();
            transcript::read(&text, &recording::options_of_transcript(&text, options))
        }
        Format::WebVtt => {
            let text = text();
            subtitles::read_web_vtt(name, &text, &recording::options_of_web_vtt(&text, options))?
        }
        Format::Srt => subtitles::read_srt(&text(), options),
        Format::Ttml => subtitles::read_ttml(name, &text(), options)?,
        Format::Ass => subtitles::read_ass(&text(), options),
        Format::Lrc => subtitles::read_lrc(&text(), options),
        Format::Speech => speech::read(name, &text(), options)?,
        Format::Mail => mail::read_mail(name, &bytes, options)?,
        Format::Markdown => markdown::read(&text(), options),
        Format::Text => chunk::split(&text(), options.chunk_characters)
            .into_iter()
            .map(Message::new)
            .collect(),
        Format::WhatsApp => whatsapp::read(&whatsapp_text(name, &bytes)?, options),
        Format::Irc => irc::read(name, &text(), options),
        Format::Org => notes::read_org(&text(), options),
        Format::Notebook => notes::read_notebook(name, &text(), options)?,
        Format::Html => notes::read_html(&text(), options),
        Format::Calendar => notes::calendar::read(&text(), options),
        Format::Docx => notes::read_docx(name, &bytes, options)?,
        Format::Pdf => notes::pdf::read(name, &bytes, options)?,
        Format::Mbox => return Ok(Mbox::new(name, bytes.as_slice(), options).collect()),
        Format::JsonLines => return Ok(JsonLines::new(name, text().as_bytes(), options).collect()),
        Format::Json => return json_list::read(name, &text(), options),
        Format::Telegram => return telegram::read(name, &text(), options),
        Format::Discord => return discord::read(name, &text(), options),
        Format::Matrix => return matrix::read(name, &text(), options),
        Format::Mattermost => return mattermost::read(name, &text(), options),
        Format::Zulip => {
            let realm = content.beside("realm.json").map(|text| zulip::Realm::of(&text));
            return zulip::read(name, &text(), &realm.unwrap_or_default(), options);
        }
        Format::Slack if bytes.starts_with(ZIP_MARK) => {
            let files = archive::texts(name, &bytes, |path| path.ends_with(".json"))?;
            return Ok(slack::read_archive(name, &files, options));
        }
        Format::Slack => {
            let people = content
                .beside("../users.json")
                .map(|text| slack::People::of(&text));
            let channel = content.folder_name();
            let channel = channel.as_deref().filter(|_| people.is_some());
            return slack::read_day(name, &text(), channel, &people.unwrap_or_default(), options);
        }
    };
    Ok(messages.into_iter().map(Ok).collect())
}

/// The text of a chat of WhatsApp: the source itself, or `_chat.txt` in its archive.
fn whatsapp_text(name: &str, bytes: &[u8]) -> Result<String, MemoryError> {
    if !bytes.starts_with(ZIP_MARK) {
        return Ok(decode(bytes));
    }
    let texts = archive::texts(name, bytes, |path| path.ends_with(".txt"))?;
    let chat = texts.into_values().find(|text| whatsapp::is_export(text));
    chat.ok_or_else(|| {
        MemoryError::invalid(
            name,
            "it is an archive without a chat of WhatsApp or an export of Slack; unpack it, and ingest its files",
        )
    })
}

/// Reads the items of bytes in memory. `name` is used in errors.
///
/// # Errors
///
/// The errors of [`messages`].
pub fn read(
    name: &str,
    format: Format,
    bytes: &[u8],
    options: &ReadOptions,
) -> Result<Vec<Item>, MemoryError> {
    gathered(messages(name, format, &Content::Bytes(bytes.into()), options)?)
}

/// The byte order mark of UTF-8.
const UTF_8_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// The byte order marks of UTF-16.
const UTF_16_MARKS: [&[u8]; 2] = [&[0xff, 0xfe], &[0xfe, 0xff]];

/// Decodes text: UTF-8, or UTF-16 after its byte order mark, or else the encoding that its bytes show.
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
        _ => mail::charset::decode(bytes, None),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A text that repeats endlessly.
    struct Endless {
        text: &'static [u8],
        at: usize,
    }

    impl Endless {
        fn reader(text: &'static [u8]) -> std::io::BufReader<Endless> {
            std::io::BufReader::with_capacity(1 << 10, Endless { text, at: 0 })
        }
    }

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            for byte in buffer.iter_mut() {
                *byte = self.text[self.at];
                self.at = (self.at + 1) % self.text.len();
            }
            Ok(buffer.len())
        }
    }

    #[test]
    fn a_reader_reads_no_more_than_requested() {
        let options = ReadOptions::default();
        let texts = |messages: &mut dyn Iterator<Item = Result<Message, MemoryError>>| -> Vec<String> {
            let three = messages.take(3);
            three.map(|message| message.expect("a message").text()).collect()
        };
        let mut lines = JsonLines::new("x", Endless::reader(b"{\"text\": \"Bees hum.\"}\n"), &options);
        assert_eq!(texts(&mut lines), ["Bees hum."; 3]);
        let mut mails = Mbox::new(
            "x",
            Endless::reader(b"From ada Mon May  1 09:30:00 2023\nSubject: x\n\nBees hum.\n"),
            &options,
        );
        assert_eq!(texts(&mut mails), ["Bees hum."; 3]);
    }

    #[test]
    fn texts_in_old_encodings_are_read() {
        let options = ReadOptions::default();
        let cues = "1\n00:00:01,000 --> 00:00:02,000\n";
        for (words, encoding) in [
            ("Les abeilles bourdonnent tout l’été.", encoding_rs::WINDOWS_1252),
            (
                "Пчёлы жужжат весь день, и никто не знает почему.",
                encoding_rs::WINDOWS_1251,
            ),
            ("蜜蜂整天嗡嗡作响，没有人知道为什么。", encoding_rs::GBK),
        ] {
            let text = format!("{cues}{words}\n");
            let (bytes, _, _) = encoding.encode(&text);
            let found = messages_of(read("x.srt", Format::Srt, &bytes, &options).expect("text"));
            assert_eq!(found[0].text(), words, "{}", encoding.name());
        }
        let damaged = [
            cues.as_bytes(),
            "Les abeilles bourdonnent l’été".as_bytes(),
            b"\xff.\n",
        ]
        .concat();
        let found = messages_of(read("x.srt", Format::Srt, &damaged, &options).expect("text"));
        assert_eq!(found[0].text(), "Les abeilles bourdonnent l’été\u{fffd}.");
    }

    #[test]
    fn binary_data_is_refused() {
        let options = ReadOptions::default();
        let noise: Vec<u8> = (0..2_000_u32).map(|at| (at * 7_919 % 251 + 1) as u8).collect();
        for bytes in [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &noise] {
            for format in [Format::Text, Format::Markdown, Format::JsonLines, Format::Srt] {
                let error = read("x.md", format, bytes, &options).expect_err("no text");
                assert!(error.to_string().starts_with("x.md: it is binary"), "{error}");
            }
        }
        let utf_16 = [0xff, 0xfe, b'B', 0, b'e', 0, b'e', 0];
        let read_text = |bytes| messages_of(read("x", Format::Text, bytes, &options).expect("text"));
        assert_eq!(read_text(&utf_16)[0].text(), "Bee");
        let latin = b"Z\xfcrich, caf\xe9 and a na\xefve bee";
        assert_eq!(read_text(latin).len(), 1);
    }

    fn messages_of(items: Vec<Item>) -> Vec<Message> {
        let messages = items.into_iter().map(|item| item.expect("a message"));
        messages.collect()
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut lines = JsonLines::new("x", Endless::reader(b"bees"), &ReadOptions::default());
        let error = lines.next().expect("an item").expect_err("no line").to_string();
        assert!(error.starts_with("x, line 1: it exceeds the limit"), "{error}");
    }

    #[test]
    fn a_message_without_a_text_is_kept_and_an_empty_piece_of_a_document_is_not() {
        let options = ReadOptions::default();
        let lines = b"{\"text\": \" \", \"speaker\": \"Ada\"}\n{\"text\": \"Bees.\"}\n";
        let messages = messages_of(read("x", Format::JsonLines, lines, &options).expect("reads"));
        let is_empty: Vec<bool> = messages.iter().map(Message::is_empty).collect();
        assert_eq!(is_empty, [true, false]);
        assert_eq!(messages[1].place.as_deref(), Some("line 2"));
        assert!(
            read("x", Format::Markdown, b"# Bees\n", &options)
                .expect("reads")
                .len()
                <= 1
        );
        assert_eq!(read("x", Format::Text, b" \n", &options).expect("reads").len(), 0);
    }

    #[test]
    fn a_reader_goes_on_behind_a_message_that_it_cannot_read() {
        let options = ReadOptions::default();
        let lines = b"{\"text\": \"a\"}\nno JSON\n{\"text\": \"b\"}\n";
        let items = read("x", Format::JsonLines, lines, &options).expect("reads");
        let told: Vec<String> = items
            .iter()
            .map(|item| item.as_ref().map_or_else(ToString::to_string, Message::text))
            .collect();
        assert_eq!((told[0].as_str(), told[2].as_str()), ("a", "b"));
        assert!(told[1].starts_with("x, line 2: "), "{}", told[1]);
    }
}
