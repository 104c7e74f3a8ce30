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

/// The text, the sender and the thread of each message of a mailbox.
fn mails(name: &str) -> Vec<(String, String, Option<String>)> {
    let (format, found) = read(name);
    assert_eq!(format, Format::Mbox, "{name}");
    let told = found.into_iter().map(|message| {
        let (text, speaker) = (message.text(), message.speaker.unwrap_or_default());
        (text, speaker, message.thread)
    });
    told.collect()
}

/// Mutt writes `Content-Length` and does not quote `From `; it forwards mails within the text, and as an attached mail.
#[test]
fn a_mailbox_of_mutt_has_each_text_under_its_author() {
    const ADA: &str = "Ada King <ada@bees.example>";
    const BOB: &str = "Bob Stöne <bob@bees.example>";
    let found = mails("mutt-sent.mbox");
    let expected = [
        (
            "Do bees hum in winter?\n\nFrom the hive I hear nothing, and the snow is deep.",
            ADA,
        ),
        ("They do: a low hum keeps them warm. Grüße in die Küche!", BOB),
        ("Then the hive is alive, and I stop worrying.", ADA),
        ("Cleo, read what Bob says about the hum.", ADA),
        ("The whole mail is attached.", ADA),
        ("They do: a low hum keeps them warm. Grüße in die Küche!", BOB),
    ];
    let said: Vec<(&str, &str)> = found
        .iter()
        .map(|(text, speaker, _)| (text.as_str(), speaker.as_str()))
        .collect();
    assert_eq!(said, expected);
    let first = found[0].2.as_deref();
    assert!(
        first.is_some_and(|thread| thread.ends_with("@bees.example")),
        "{first:?}"
    );
    let threads: Vec<bool> = found
        .iter()
        .map(|(_, _, thread)| thread.as_deref() == first)
        .collect();
    assert_eq!(threads, [true, true, true, false, false, true]);
}

/// `formail -ds` quotes a line that looks like the beginning of a mail, and leaves `Content-Length` as it was.
#[test]
fn a_mailbox_of_formail_has_each_text_under_its_author() {
    let found = mails("formail.mbox");
    let expected = [
        (
            "The swarm sits on the roof.\n\nFrom now on, I count them each day.\n\
             From ada@bees.example Fri Nov 27 09:00:00 2026\nis a line of my log.",
            "Ada King <ada@bees.example>",
            Some("1@bees.example"),
        ),
        (
            "Leave it there; it flies by noon.",
            "Bob Stone <bob@bees.example>",
            Some("1@bees.example"),
        ),
        ("Who drums at night?", "cleo@bees.example", Some("3@bees.example")),
    ];
    let said: Vec<(&str, &str, Option<&str>)> = found
        .iter()
        .map(|(text, speaker, thread)| (text.as_str(), speaker.as_str(), thread.as_deref()))
        .collect();
    assert_eq!(said, expected);
}
