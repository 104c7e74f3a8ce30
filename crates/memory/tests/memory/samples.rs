//! Files that other programs wrote.

use std::path::Path;

use gristmill_memory::pipeline::NewInput;
use gristmill_memory::source::{Format, ReadOptions, messages};
use gristmill_memory::{MemoryError, Message};

/// Reads a file of the folder `samples` in the format that its name and its first bytes tell.
fn read(name: &str) -> (Format, Vec<Message>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/memory/samples")
        .join(name);
    let input = NewInput::from_file(path).expect("a file");
    let items = messages(name, input.format, &input.content, &ReadOptions::default()).expect("reads");
    let messages: Result<Vec<Message>, MemoryError> = items.collect();
    (input.format, messages.expect("all messages"))
}

#[test]
fn subtitles_of_every_program_have_the_same_words() {
    for (name, expected) in [
        ("talk.srt", Format::Srt),
        ("talk-webvtt-py.srt", Format::Srt),
        ("talk-webvtt-py.vtt", Format::WebVtt),
        ("talk-ffmpeg.vtt", Format::WebVtt),
        ("talk-ffmpeg.ass", Format::Ass),
        ("talk-pysubs2.ass", Format::Ass),
        ("talk-ffmpeg.ttml", Format::Ttml),
        ("talk-ttconv.ttml", Format::Ttml),
        ("talk-ffmpeg.lrc", Format::Lrc),
    ] {
        let (format, found) = read(name);
        let texts: Vec<String> = found.iter().map(Message::text).collect();
        assert_eq!(format, expected, "{name}");
        assert_eq!(texts, ["Do bees hum? They do, & they drum.", "Later."], "{name}");
    }
}

/// The same words, as three programs logged them.
#[test]
fn logs_of_irc_have_the_same_words() {
    for (name, begins) in [
        ("hives.weechatlog", "2026-11-27T11:10:32"),
        ("hives-irssi.log", "2026-11-27T11:10:00"),
        ("znc-2026-11-27.log", "2026-11-27T11:"),
    ] {
        let (format, mut found) = read(name);
        assert_eq!(format, Format::Irc, "{name}");
        let first = found[0].moment.expect("a time").at.to_string();
        assert!(first.starts_with(begins), "{name}: {first}");
        // The server does not keep the order of two people.
        found[2..].sort_by_key(|message| message.speaker.clone());
        let said: Vec<(Option<&str>, String)> = found
            .iter()
            .map(|message| (message.speaker.as_deref(), message.text()))
            .collect();
        assert_eq!(
            said,
            [
                (Some("ada"), "Do they hum?".to_owned()),
                (Some("bob"), "All day: <b>loud</b>.".to_owned()),
                (Some("ada"), "ada_away leaves the hive".to_owned()),
                (Some("bob"), "ada_away: come back".to_owned()),
            ],
            "{name}"
        );
    }
}
