//! The formats of sources, and their recognition.

use std::path::Path;

use crate::limits::FORMAT_BYTES_MAX;
use crate::source::chat::{discord, irc, matrix, mattermost, slack, telegram, whatsapp, zulip};
use crate::source::notes::pdf;
use crate::source::{decode, json_list, mail, speech, subtitles, transcript};

/// The format of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `SPEAKER: what was said`, with an introduction before the first speaker.
    Transcript,
    /// WebVTT subtitles, with their voices.
    WebVtt,
    /// SubRip subtitles, or SBV.
    Srt,
    /// One mail.
    Mail,
    /// Many mails in one file.
    Mbox,
    /// Markdown: a message for each section.
    Markdown,
    /// Plain text.
    Text,
    /// One JSON object on each line.
    JsonLines,
    /// TTML subtitles.
    Ttml,
    /// Subtitles of Advanced SubStation Alpha.
    Ass,
    /// Lyrics with times.
    Lrc,
    /// Recognised speech in JSON.
    Speech,
    /// An exported chat of WhatsApp: a text, or the archive with it.
    WhatsApp,
    /// `result.json` of Telegram.
    Telegram,
    /// An export of Slack: an archive, or the JSON of a day.
    Slack,
    /// The JSON of DiscordChatExporter.
    Discord,
    /// A Matrix room, exported by Element.
    Matrix,
    /// A bulk export of Mattermost.
    Mattermost,
    /// Messages of Zulip.
    Zulip,
    /// A log of IRC.
    Irc,
    /// A JSON document with a list of messages.
    Json,
    /// A text of Org mode.
    Org,
    /// A notebook of Jupyter.
    Notebook,
    /// An HTML page.
    Html,
    /// A calendar.
    Calendar,
    /// A document of Word.
    Docx,
    /// A PDF file with text.
    Pdf,
}

/// What the messages of a source are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SourceKind {
    /// Turns of a conversation: each stands beside the one that it answers.
    #[default]
    Dialogue,
    /// Messages of a channel of many people, whose conversations mix.
    Channel,
    /// Mails: each belongs to its thread, and not to those that arrived beside it.
    Mail,
    /// Pieces of a document.
    Document,
}

impl SourceKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [SourceKind; 4] = [
        SourceKind::Dialogue,
        SourceKind::Channel,
        SourceKind::Mail,
        SourceKind::Document,
    ];
}

/// The beginning of a ZIP archive.
pub(super) const ZIP_MARK: &[u8] = b"PK\x03\x04";

impl Format {
    /// All formats.
    pub const ALL: [Format; 27] = [
        Format::Transcript,
        Format::WebVtt,
        Format::Srt,
        Format::Mail,
        Format::Mbox,
        Format::Markdown,
        Format::Text,
        Format::JsonLines,
        Format::Ttml,
        Format::Ass,
        Format::Lrc,
        Format::Speech,
        Format::WhatsApp,
        Format::Telegram,
        Format::Slack,
        Format::Discord,
        Format::Matrix,
        Format::Mattermost,
        Format::Zulip,
        Format::Irc,
        Format::Json,
        Format::Org,
        Format::Notebook,
        Format::Html,
        Format::Calendar,
        Format::Docx,
        Format::Pdf,
    ];

    /// The name, as `--format` takes it.
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
            Format::Ttml => "ttml",
            Format::Ass => "ass",
            Format::Lrc => "lrc",
            Format::Speech => "speech",
            Format::WhatsApp => "whatsapp",
            Format::Telegram => "telegram",
            Format::Slack => "slack",
            Format::Discord => "discord",
            Format::Matrix => "matrix",
            Format::Mattermost => "mattermost",
            Format::Zulip => "zulip",
            Format::Irc => "irc",
            Format::Json => "json",
            Format::Org => "org",
            Format::Notebook => "ipynb",
            Format::Html => "html",
            Format::Calendar => "ics",
            Format::Docx => "docx",
            Format::Pdf => "pdf",
        }
    }

    /// The format with this name.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What the messages of such a source are to each other.
    pub const fn kind(self) -> SourceKind {
        match self {
            Format::Slack
            | Format::Discord
            | Format::Matrix
            | Format::Mattermost
            | Format::Zulip
            | Format::Irc => SourceKind::Channel,
            Format::Mail | Format::Mbox => SourceKind::Mail,
            Format::Markdown
            | Format::Text
            | Format::Org
            | Format::Notebook
            | Format::Html
            | Format::Calendar
            | Format::Docx
            | Format::Pdf => SourceKind::Document,
            _ => SourceKind::Dialogue,
        }
    }

    /// Whether the first bytes of a file with the ending of many programs, such as `.json` or `.log`, show one of the formats.
    pub fn is_recognised(path: &Path, bytes: &[u8]) -> bool {
        match Format::of(path, bytes) {
            Format::Text => false,
            Format::Json => json_list::may_be_list(&decode(bytes)),
            Format::WhatsApp if bytes.starts_with(ZIP_MARK) => {
                let has = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
                has(b"_chat.txt") || has(b"WhatsApp")
            }
            _ => true,
        }
    }

    /// Whether bytes begin a mailbox or a mail.
    pub fn is_mail(beginning: &[u8]) -> bool {
        mail::is_mailbox(beginning) || mail::is_mail(beginning)
    }

    /// Recognises the format of a file by its ending. For `.txt`, `.json`, `.log` and unknown endings, the first bytes
    /// decide.
    pub fn of(path: &Path, bytes: &[u8]) -> Format {
        let bytes = &bytes[..bytes.len().min(FORMAT_BYTES_MAX as usize)];
        let ending = path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        match ending.as_str() {
            "vtt" => Format::WebVtt,
            "srt" | "sbv" => Format::Srt,
            "ttml" | "dfxp" => Format::Ttml,
            "ass" | "ssa" => Format::Ass,
            "lrc" => Format::Lrc,
            "eml" => Format::Mail,
            "mbox" => Format::Mbox,
            "md" | "markdown" => Format::Markdown,
            "jsonl" | "ndjson" if mattermost::is_export(&decode(bytes)) => Format::Mattermost,
            "jsonl" | "ndjson" => Format::JsonLines,
            "weechatlog" => Format::Irc,
            "org" => Format::Org,
            "ipynb" => Format::Notebook,
            "html" | "htm" => Format::Html,
            "ics" => Format::Calendar,
            "docx" => Format::Docx,
            "pdf" => Format::Pdf,
            _ if bytes.starts_with(ZIP_MARK) => of_archive(bytes),
            _ if bytes.starts_with(pdf::MARK) => Format::Pdf,
            _ if bytes.starts_with(b"WEBVTT") => Format::WebVtt,
            // procmail writes mailboxes of mails alone, and a mailbox may have one mail.
            _ if Format::is_mail(bytes) => Format::Mbox,
            _ => of_text(&decode(bytes), ending == "json"),
        }
    }
}

/// The format of an archive, by the names of its files, which stand readable in it.
fn of_archive(bytes: &[u8]) -> Format {
    let has = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    match () {
        () if has(b"word/document.xml") => Format::Docx,
        () if has(b"users.json") || has(b"channels.json") => Format::Slack,
        () => Format::WhatsApp,
    }
}

fn of_text(text: &str, is_json: bool) -> Format {
    if is_json || text.trim_start().starts_with(['{', '[']) {
        let known = [
            (telegram::is_export(text), Format::Telegram),
            (matrix::is_export(text), Format::Matrix),
            (zulip::is_export(text), Format::Zulip),
            (discord::is_export(text), Format::Discord),
            (mattermost::is_export(text), Format::Mattermost),
            (slack::is_day(text), Format::Slack),
            (speech::is_speech(text), Format::Speech),
        ];
        if let Some((_, format)) = known.into_iter().find(|(is_it, _)| *is_it) {
            return format;
        }
        if is_json {
            return Format::Json;
        }
    }
    match () {
        () if text.trim_start().starts_with("BEGIN:VCALENDAR") => Format::Calendar,
        () if whatsapp::is_export(text) => Format::WhatsApp,
        () if irc::is_log(text) => Format::Irc,
        () if subtitles::is_ttml(text) => Format::Ttml,
        () if subtitles::is_sbv(text) => Format::Srt,
        () if subtitles::is_lrc(text) => Format::Lrc,
        () if transcript::is_transcript(text) => Format::Transcript,
        () => Format::Text,
    }
}
