//! How fast the readers read: MB/s on one thread, beside Python's `mailbox` on the same mails.
//!
//! `cargo bench -p gristmill-memory --bench readers [-- MEGABYTES]`. The texts are made up by a seed. Each reader reads its text three
//! times, and the least processor time counts. Python parses each mail, and decodes its text.

#[path = "support/made_up.rs"]
mod made_up;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use gristmill_memory::source::{Content, Format, ReadOptions, messages};
use gristmill_model::{Rng, SplitMix64};
use made_up::Vocabulary;
use rustix::time::{ClockId, clock_gettime};

const MEGABYTES_DEFAULT: usize = 20;
const READINGS: usize = 3;
const PEOPLE: [&str; 6] = [
    "Ada King",
    "Bob Stone",
    "Cleo Reed",
    "Dan Hill",
    "Eve Wood",
    "Finn Lake",
];

/// The target of each reader. MB/s.
const GOALS: [(Format, &str, f64); 5] = [
    (Format::Mbox, "mbox", 150.0),
    (Format::WebVtt, "vtt", 100.0),
    (Format::Srt, "srt", 100.0),
    (Format::WhatsApp, "txt", 100.0),
    (Format::Slack, "json", 200.0),
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let megabytes = arguments
        .next()
        .map_or(MEGABYTES_DEFAULT, |text| text.parse().expect("a number"));
    let mut rng = SplitMix64::new(5);
    let vocabulary = Vocabulary::new(20_000, &mut rng);
    let folder = tempfile::tempdir().expect("a folder");
    println!("| format | messages | MB/s | to reach | Python's mailbox |");
    println!("| --- | --- | --- | --- | --- |");
    for (format, extension, goal) in GOALS {
        let text = made_up_text(format, &vocabulary, megabytes << 20, &mut rng);
        let path = folder.path().join(format!("made-up.{extension}"));
        std::fs::write(&path, &text).expect("writes");
        let (count, rate) = rate(format, &path, text.len());
        let beside = if format == Format::Mbox {
            python(&path, text.len())
        } else {
            "".to_owned()
        };
        println!("| {} | {count} | {rate:.0} | {goal} | {beside} |", format.name());
    }
}

/// The number of messages, and MB/s.
fn rate(format: Format, path: &Path, bytes: usize) -> (usize, f64) {
    let (mut count, mut least_s) = (0, f64::INFINITY);
    for _ in 0..READINGS {
        let begun_s = processor_time_s();
        let content = Content::File(path.to_owned());
        let read = messages("made-up", format, &content, &ReadOptions::default()).expect("reads");
        count = read
            .inspect(|message| assert!(message.is_ok(), "a message"))
            .count();
        least_s = least_s.min(processor_time_s() - begun_s);
    }
    (count, bytes as f64 / 1e6 / least_s)
}

/// The processor time of this thread. Seconds.
fn processor_time_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn python(path: &Path, bytes: usize) -> String {
    const PROGRAM: &str = "import mailbox, sys, time, email.policy, email\n\
        begun = time.process_time()\n\
        box = mailbox.mbox(sys.argv[1], factory=lambda file: email.message_from_binary_file(file, policy=email.policy.default))\n\
        count = sum(len(mail.get_body(('plain',)).get_content()) > 0 for mail in box)\n\
        print(time.process_time() - begun)";
    let output = Command::new("python3").arg("-c").arg(PROGRAM).arg(path).output();
    match output {
        Ok(output) if output.status.success() => {
            let seconds: f64 = String::from_utf8_lossy(&output.stdout)
                .trim()
                .parse()
                .expect("seconds");
            format!("{:.1}", bytes as f64 / 1e6 / seconds)
        }
        _ => "did not run".to_owned(),
    }
}

fn made_up_text(format: Format, vocabulary: &Vocabulary, bytes: usize, rng: &mut SplitMix64) -> String {
    let mut text = String::from(match format {
        Format::WebVtt => "WEBVTT\n\n",
        Format::Slack => "[",
        _ => "",
    });
    for number in 0_usize.. {
        if text.len() >= bytes {
            break;
        }
        let person = PEOPLE[rng.below(PEOPLE.len() as u64) as usize];
        let words = 5 + rng.below(20) as usize;
        let sentence = vocabulary.sentence(words, rng);
        let (hours, minutes, seconds) = (number / 3_600 % 100, number / 60 % 60, number % 60);
        let written = match format {
            Format::Mbox => mail(&mut text, number, person, vocabulary, rng),
            Format::WebVtt => write!(
                text,
                "{hours:02}:{minutes:02}:{seconds:02}.000 --> {hours:02}:{minutes:02}:{seconds:02}.900\n<v {person}>{sentence}.</v>\n\n"
            ),
            Format::Srt => write!(
                text,
                "{}\n{hours:02}:{minutes:02}:{seconds:02},000 --> {hours:02}:{minutes:02}:{seconds:02},900\n{sentence}.\n\n",
                number + 1
            ),
            Format::WhatsApp => writeln!(
                text,
                "{:02}/{:02}/2024, {:02}:{minutes:02} - {person}: {sentence}",
                1 + number / 100_000 % 28,
                1 + number / 9_000 % 12,
                number / 400 % 24
            ),
            _ => write!(
                text,
                "{}{{\"type\": \"message\", \"user\": \"U0{}\", \"user_profile\": {{\"real_name\": \"{person}\"}}, \
                 \"text\": \"{sentence}\", \"ts\": \"{}.000200\", \"team\": \"T024BE7LD\", \
                 \"blocks\": [{{\"type\": \"rich_text\", \"block_id\": \"x{number}\", \
                 \"elements\": [{{\"type\": \"rich_text_section\", \"elements\": [{{\"type\": \"text\", \
                 \"text\": \"{sentence}\"}}]}}]}}]}}",
                if number > 0 { ",\n" } else { "" },
                person.len(),
                1_682_926_200 + number
            ),
        };
        written.expect("a string takes all");
    }
    if format == Format::Slack {
        text.push(']');
    }
    text
}

fn mail(
    text: &mut String,
    number: usize,
    person: &str,
    vocabulary: &Vocabulary,
    rng: &mut SplitMix64,
) -> std::fmt::Result {
    let address = person.to_lowercase().replace(' ', ".");
    let (hours, minutes) = (number / 60 % 24, number % 60);
    write!(
        text,
        "From {address}@bees.example Mon May  1 {hours:02}:{minutes:02}:00 2023\n\
         Return-Path: <{address}@bees.example>\n\
         Received: from mail.bees.example (mail.bees.example [192.0.2.7]) by list.example with ESMTP id {number:x};\n\
         \tMon, 1 May 2023 {hours:02}:{minutes:02}:00 +0200\n\
         Message-ID: <{number}@bees.example>\n\
         Date: Mon, 1 May 2023 {hours:02}:{minutes:02}:00 +0200\n\
         From: {person} <{address}@bees.example>\n\
         To: hives@list.example\n\
         Subject: {}\n\
         MIME-Version: 1.0\n\
         Content-Type: text/plain; charset=\"utf-8\"\n\
         X-Mailer: Hive 1.0\n\n",
        vocabulary.sentence(5, rng)
    )?;
    for _ in 0..8 + rng.below(30) {
        writeln!(text, "{}.", vocabulary.sentence(9, rng))?;
    }
    writeln!(text, "\n-- \n{person}\n")
}
