//! The time of every reader grows with its text, and no faster.

use gristmill_memory::source::{Format, ReadOptions, read};
use rustix::time::{ClockId, clock_gettime};

/// How much longer the longer text is.
const GROWTH: usize = 8;

/// How much longer reading it may take. A reader that looks at all that is left for each chunk takes 64 times as long.
const TIME_GROWTH_MAX: f64 = 24.0;

const TEXT_BYTES: usize = 6_000;

const READINGS: usize = 2;

/// The processor time of this thread. Seconds.
fn processor_time_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The least time of several readings. Seconds.
fn reading_time_s(format: Format, text: &str) -> f64 {
    let options = ReadOptions {
        chunk_characters: 200,
        ..ReadOptions::default()
    };
    let times = (0..READINGS).map(|_| {
        let begun = processor_time_s();
        let messages = read("bees", format, text.as_bytes(), &options).expect("reads");
        assert!(!messages.is_empty());
        processor_time_s() - begun
    });
    times.fold(f64::INFINITY, f64::min)
}

/// A text of so many bytes at least: a beginning, and a part that is repeated.
fn text(beginning: &str, part: &str, bytes: usize) -> String {
    let repeats = bytes.div_ceil(part.len());
    format!("{beginning}{}", part.repeat(repeats))
}

#[test]
fn reading_is_linear() {
    const MAIL: &str = "From: ada@bees.example\nSubject: Bees\n\n";
    const HTML_MAIL: &str = "From: ada@bees.example\nContent-Type: text/html\n\n";
    let unbroken = "beeshumanddrum";
    for (format, beginning, part) in [
        (Format::Text, "", unbroken),
        (Format::Text, "", "Bees hum. They drum\n"),
        (Format::Text, "", "東京都に蜂がいる"),
        (Format::Markdown, "", unbroken),
        (Format::Markdown, "", "* Bees *hum*\n"),
        (Format::Transcript, "ADA: ", unbroken),
        (Format::JsonLines, "", "{\"text\": \"Bees hum.\"}\n"),
        (Format::Mail, MAIL, unbroken),
        (Format::Mail, MAIL, "> Bees hum.\nThey drum.\n"),
        (Format::Mail, MAIL, "On Monday Ada wrote:\n> Hum.\n"),
        (Format::Mail, MAIL, "-- \nAda\n>"),
        (Format::Mail, HTML_MAIL, "<blockquote>Hum.<br>"),
        (
            Format::Mbox,
            "From ada Mon May  1 09:30:00 2023\nFrom: ada@bees.example\n\n",
            unbroken,
        ),
        (Format::Srt, "00:01 --> 00:02\n", unbroken),
        (Format::Srt, "00:01 --> 00:02\n", "<"),
        (Format::Srt, "00:01 --> 00:02\n", "&{\\"),
        (Format::WhatsApp, "", "12/03/2024, 14:05 - Ana: Bees\nhum\n"),
        (Format::Irc, "", "2024-03-12 14:02:05\tada\tBees hum.\n"),
        (Format::Transcript, "", "[00:00:03] Ada: Bees hum.\nThey: drum\n"),
        (Format::Markdown, "", "[[ [[a]] Bees\n---\nhum\n"),
        (Format::Lrc, "", "[00:01.00]Bees <i>hum\n"),
        (
            Format::WebVtt,
            "WEBVTT\n\n",
            "00:01.000 --> 00:02.000\nBees hum.\n\n",
        ),
    ] {
        let time_s = |bytes| reading_time_s(format, &text(beginning, part, bytes));
        let (shorter_s, longer_s) = (time_s(TEXT_BYTES), time_s(TEXT_BYTES * GROWTH));
        println!("{format:?} of {part:?}: {shorter_s:.4} s, {longer_s:.4} s");
        assert!(
            longer_s < shorter_s * TIME_GROWTH_MAX,
            "{format:?} of {part:?}: {shorter_s} s for {TEXT_BYTES} bytes, {longer_s} s for {GROWTH} times as many"
        );
    }
}
