//! Random mailboxes, built by Python's email package and quoted in five styles: each sentence is found once, under its author.

use std::path::Path;
use std::process::Command;

use gristmill_memory::Message;
use gristmill_memory::source::{Format, ReadOptions, read};

/// Mailboxes that are made. `MAIL_SEEDS` sets another number.
const SEEDS: u64 = 12;

/// Writes a mailbox, and returns its path and its sentences: address, name and sentence.
fn written(folder: &Path, seed: u64) -> (Vec<u8>, Vec<[String; 3]>) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/memory/mail_archive.py");
    let (mailbox, sentences) = (
        folder.join(format!("{seed}.mbox")),
        folder.join(format!("{seed}.tsv")),
    );
    let ended = Command::new("python3")
        .arg(script)
        .args([&mailbox, &sentences])
        .arg(seed.to_string())
        .output()
        .expect("python3 runs");
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let sentences = std::fs::read_to_string(sentences).expect("reads");
    let sentences = sentences.lines().map(|line| {
        let mut parts = line.splitn(3, '\t').map(str::to_owned);
        std::array::from_fn(|_| parts.next().expect("three parts"))
    });
    (std::fs::read(mailbox).expect("reads"), sentences.collect())
}

#[test]
fn every_sentence_is_found_under_its_author() {
    let seeds = std::env::var("MAIL_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let (mut count, mut wrong) = (0, Vec::new());
    for seed in 0..seeds {
        let (mailbox, sentences) = written(folder.path(), seed);
        let items = read("random.mbox", Format::Mbox, &mailbox, &ReadOptions::default()).expect("reads");
        let messages: Vec<Message> = items.into_iter().map(|item| item.expect("a message")).collect();
        let texts: Vec<String> = messages
            .iter()
            .map(|message| message.text().split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for [address, name, sentence] in sentences {
            count += 1;
            let found: Vec<Option<&str>> = messages
                .iter()
                .zip(&texts)
                .filter(|(_, text)| text.contains(&sentence))
                .map(|(message, _)| message.speaker.as_deref())
                .collect();
            let is_author = |speaker: &str| speaker.contains(&address) || speaker == name;
            if !matches!(found[..], [Some(speaker)] if is_author(speaker)) {
                wrong.push(format!(
                    "seed {seed}: {address} wrote `{sentence}`, found under {found:?}"
                ));
            }
        }
    }
    assert!(count > 100 * seeds as usize, "only {count} sentences");
    assert!(
        wrong.is_empty(),
        "{} of {count} sentences are wrong, such as:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
}
