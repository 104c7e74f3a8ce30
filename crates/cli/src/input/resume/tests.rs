//! Tests of readers over whole inputs.

use std::io::Write;
use std::path::PathBuf;

use gristmill_model::limits::PAYLOAD_BYTES_MAX;
use gristmill_model::{Rng, SplitMix64};
use proptest::prelude::*;

use super::*;
use crate::input::batch_reader::other_encoding;

/// A folder for the inputs of one test.
struct Inputs(tempfile::TempDir);

impl Inputs {
    fn new() -> Inputs {
        Inputs(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Input {
        std::fs::write(self.path(name), bytes).unwrap();
        Input::new(&self.path(name), None).unwrap()
    }
}

/// All results of a reader: payloads, rejected jobs as `index: message`, and the last place.
fn drain(mut reader: BatchReader) -> (Vec<String>, Vec<String>, RunProgress) {
    let (mut payloads, mut rejected) = (Vec::new(), Vec::new());
    while let Some(batch) = reader.next_batch().unwrap() {
        for refused in &batch.rejected {
            let index = payloads.len() + refused.position as usize;
            assert!(refused.error.permanent);
            rejected.push(format!("{index}: {}", refused.error.message));
        }
        payloads.extend(batch.payloads.items().map(str::to_owned));
    }
    (payloads, rejected, reader.progress())
}

fn limits(jobs_max: u32) -> BatchLimits {
    BatchLimits {
        jobs_max,
        ..BatchLimits::default()
    }
}

fn read(input: &Input) -> (Vec<String>, Vec<String>, RunProgress) {
    drain(input.open(limits(2)).unwrap())
}

/// The messages without the folder, so that they do not depend on the place of the test.
fn without_folder(messages: &[String], inputs: &Inputs) -> Vec<String> {
    let folder = format!("{}/", inputs.0.path().display());
    messages
        .iter()
        .map(|message| message.replace(&folder, ""))
        .collect()
}

#[test]
fn bad_lines_become_rejected_jobs_and_blank_lines_are_skipped() {
    let inputs = Inputs::new();
    let input = inputs.write(
        "items.jsonl",
        b"\xef\xbb\xbf{\"a\": 1}\r\n\n  \nnope\n\"\xff\"\n [2] \n\"\\ud800\"\n3",
    );
    let (payloads, rejected, progress) = read(&input);
    assert_eq!(payloads[0], r#"{"a": 1}"#);
    assert_eq!(payloads[3], "[2]");
    assert_eq!(payloads[5], "3");
    let rejected = without_folder(&rejected, &inputs);
    assert_eq!(
        rejected[0],
        "1: items.jsonl:4: not JSON: expected ident at column 2"
    );
    assert!(
        rejected[1].starts_with("2: items.jsonl:5: not UTF-8 at byte 2 of the line"),
        "{}",
        rejected[1]
    );
    assert!(
        rejected[2].starts_with("4: items.jsonl:7: not JSON: "),
        "{}",
        rejected[2]
    );
    assert_eq!(rejected.len(), 3);
    assert_eq!((progress.jobs, progress.lines), (6, 8));
}

#[test]
fn plain_lines_are_strings_and_empty_ones_are_kept() {
    let inputs = Inputs::new();
    let (payloads, rejected, progress) = read(&inputs.write("items.txt", "one\n\n\"two\"\r\n\tthree"));
    assert_eq!(payloads, [r#""one""#, r#""""#, r#""\"two\"""#, r#""\tthree""#]);
    assert!(rejected.is_empty());
    assert_eq!((progress.jobs, progress.lines), (4, 4));
}

#[test]
fn rows_are_objects_and_a_ragged_one_names_its_line() {
    let inputs = Inputs::new();
    let text = "id,text\r\n1,\"two\r\nlines, \"\"quoted\"\"\"\r\n\r\n2\r\n3,x,y\r\n4,\u{e4}";
    let (payloads, rejected, _) = read(&inputs.write("items.csv", text));
    assert_eq!(payloads[0], r#"{"id":"1","text":"two\r\nlines, \"quoted\""}"#);
    assert_eq!(payloads[3], r#"{"id":"4","text":"ä"}"#);
    assert_eq!(
        without_folder(&rejected, &inputs),
        [
            "1: items.csv:5: the row has 1 field, and the header has 2",
            "2: items.csv:6: the row has 3 fields, and the header has 2",
        ]
    );
    let (payloads, ..) = read(&inputs.write("items.tsv", "a\tb\n1,2\t3\n"));
    assert_eq!(payloads, [r#"{"a":"1,2","b":"3"}"#]);
    let twice = inputs
        .write("twice.csv", "a,a\n1,2\n")
        .open(limits(1))
        .err()
        .unwrap()
        .to_string();
    assert!(
        twice.contains("twice.csv:1: two columns are named `a`"),
        "{twice}"
    );
}

#[test]
fn a_line_or_row_over_the_limit_is_rejected_and_not_kept_in_memory() {
    let inputs = Inputs::new();
    let long = "x".repeat(50 << 20);
    for (name, text, expected) in [
        (
            "items.jsonl",
            format!("1\n\"{long}\"\n2\n"),
            "1: items.jsonl:2: the line is 52428802 bytes long",
        ),
        (
            "items.csv",
            format!("a\n1\n{long}\n2\n"),
            "1: items.csv:3: the row is 52428801 bytes long",
        ),
    ] {
        let input = inputs.write(name, text);
        let mut reader = input.open(BatchLimits::default()).unwrap();
        let batch = reader.next_batch().unwrap().unwrap();
        assert_eq!(batch.payloads.count(), 3);
        assert!(batch.payloads.as_str().len() < 10_000);
        let message = without_folder(&[format!("1: {}", batch.rejected[0].error.message)], &inputs);
        assert!(message[0].starts_with(expected), "{}", message[0]);
        assert!(reader.stream_mut().held_bytes() <= 2 * PAYLOAD_BYTES_MAX + (64 << 10));
    }
}

#[test]
fn batches_end_at_their_jobs_at_their_bytes_and_at_the_limit() {
    let inputs = Inputs::new();
    let input = inputs.write("items.jsonl", format!("\"{}\"\n", "y".repeat(98)).repeat(100));
    let mut reader = input
        .open(BatchLimits {
            jobs_max: 30,
            bytes_max: 1_000,
        })
        .unwrap()
        .with_jobs_limit(Some(25));
    let mut counts = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        assert!(batch.payloads.as_str().len() <= 1_030, "separators come on top");
        counts.push(batch.payloads.count());
    }
    assert_eq!(counts, [9, 9, 7]);
    assert_eq!(reader.progress().bytes, 25 * 101);
}

#[test]
fn compressed_inputs_are_read_as_they_are() {
    let inputs = Inputs::new();
    let text = (0..50_000)
        .map(|number| format!("{number}\n"))
        .collect::<String>();
    let mut members = Vec::new();
    for half in [&text[..100_001], &text[100_001..]] {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(half.as_bytes()).unwrap();
        members.extend(encoder.finish().unwrap());
    }
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for (name, bytes) in [("items.jsonl.gz", members), ("items.jsonl.zst", zstd)] {
        let input = inputs.write(name, &bytes);
        let (payloads, rejected, progress) = drain(input.open(BatchLimits::default()).unwrap());
        assert_eq!((payloads.len(), rejected.len()), (50_000, 0));
        assert_eq!(
            progress.crc32,
            crc32fast::hash(text.as_bytes()),
            "of the decompressed bytes"
        );
        let cut = inputs.write(name, &bytes[..bytes.len() / 2]);
        let mut reader = cut.open(BatchLimits::default()).unwrap();
        let error = loop {
            match reader.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a cut {name} was read to its end"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("cannot be read any further"), "{error}");
    }
    let error = inputs
        .write("plain.jsonl.gz", "1\n")
        .open(limits(1))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("is not gzip-compressed"), "{error}");
}

#[test]
fn unusable_inputs_are_refused_with_a_remedy() {
    let inputs = Inputs::new();
    let missing = Input::new(&inputs.path("none.jsonl"), None)
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("none.jsonl cannot be opened: No such file"),
        "{missing}"
    );
    let folder = Input::new(inputs.0.path(), None).unwrap_err().to_string();
    assert!(folder.contains("is a folder"), "{folder}");
    std::fs::write(inputs.path("items"), "1\n").unwrap();
    let unknown = Input::new(&inputs.path("items"), None).unwrap_err().to_string();
    assert!(unknown.contains("--format jsonl"), "{unknown}");
    let document = inputs
        .write("items.json", "{\n \"a\": 1\n}\n")
        .open(limits(1))
        .err()
        .unwrap()
        .to_string();
    assert!(document.contains("jq -c '.[]'"), "{document}");
    assert_eq!(read(&inputs.write("array.json", "[\n 1,\n 2\n]\n")).0, ["1", "2"]);
    assert_eq!(read(&inputs.write("lines.json", "[1]\n{}\n")).0, ["[1]", "{}"]);
}

fn unchanged(reopened: Reopened) -> BatchReader {
    match reopened {
        Reopened::Unchanged(reader) => *reader,
        Reopened::Changed { what } => panic!("changed: {what}"),
    }
}

fn changed_how(reopened: Reopened) -> String {
    match reopened {
        Reopened::Unchanged(_) => panic!("unchanged"),
        Reopened::Changed { what } => what,
    }
}

#[test]
fn reading_resumes_after_every_batch_with_a_touched_and_an_untouched_file() {
    let inputs = Inputs::new();
    let csv = "a,b\r\n1,\"x\r\ny\"\r\n2\r\n\r\n3,z\r\n4,\r\n";
    let gz = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"1\n\n2\nx\n3").unwrap();
        encoder.finish().unwrap()
    };
    for (name, bytes) in [
        ("items.csv", csv.as_bytes().to_vec()),
        ("items.jsonl", b"\xef\xbb\xbf1\nx\n\n2\n3\n\n".to_vec()),
        ("items.jsonl.gz", gz),
    ] {
        let input = inputs.write(name, &bytes);
        let remembered = input.fingerprint().unwrap();
        let touched = Fingerprint {
            modified_ns: Some(1),
            ..remembered.clone()
        };
        let whole = drain(input.open(limits(1)).unwrap());
        for seen in [&remembered, &touched] {
            let mut reader = input.open(limits(1)).unwrap();
            let mut before: Vec<String> = Vec::new();
            loop {
                let again = unchanged(input.reopen(limits(1), reader.progress(), seen).unwrap());
                let (mut payloads, _, progress) = drain(again);
                payloads.splice(0..0, before.iter().cloned());
                assert_eq!(
                    (&payloads, progress),
                    (&whole.0, whole.2),
                    "{name} after {}",
                    before.len()
                );
                match reader.next_batch().unwrap() {
                    Some(batch) => before.extend(batch.payloads.items().map(str::to_owned)),
                    None => break,
                }
            }
        }
    }
}

#[test]
fn a_changed_input_is_reported() {
    let inputs = Inputs::new();
    let input = inputs.write("items.jsonl", "1\n2\n3\n");
    let remembered = input.fingerprint().unwrap();
    let mut reader = input.open(limits(2)).unwrap();
    reader.next_batch().unwrap();
    let place = reader.progress();

    let grown = inputs.write("items.jsonl", "1\n2\n3\n4\n");
    let rest = drain(unchanged(grown.reopen(limits(2), place, &remembered).unwrap()));
    assert_eq!(rest.0, ["3", "4"], "what comes behind the place may change");
    let other = inputs.write("items.jsonl", "1\n7\n3\n4\n");
    let what = changed_how(other.reopen(limits(2), place, &remembered).unwrap());
    assert_eq!(what, "at least one of its first 2 lines has changed");
    let rest = drain(other.reopen_after_lines(limits(2), place).unwrap());
    assert_eq!(
        (rest.0, rest.2.jobs, rest.2.lines),
        (vec!["3".to_owned(), "4".to_owned()], 4, 4)
    );
    let short = inputs.write("items.jsonl", "1\n");
    let what = changed_how(short.reopen(limits(2), place, &remembered).unwrap());
    assert_eq!(
        what,
        "it is shorter than before: a run has read 4 bytes, and it now has 2"
    );
    assert!(
        drain(short.reopen_after_lines(limits(2), place).unwrap())
            .0
            .is_empty()
    );
    let as_lines = Input::new(&inputs.path("items.jsonl"), Some(Format::Lines)).unwrap();
    let what = changed_how(as_lines.reopen(limits(2), place, &remembered).unwrap());
    assert_eq!(what, "its format was jsonl, and is now lines");
}

/// Bytes with many more line ends, quotes and other special characters than chance would give.
fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b",".to_vec()),
        Just(b"{\"a\":1}\n".to_vec()),
        Just(b" \t".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..6),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn random_bytes_never_panic_and_every_line_is_one_job(bytes in some_bytes(), jobs_max in 1u32..4) {
        let inputs = Inputs::new();
        let lines = {
            let body = bytes.strip_prefix(b"\xef\xbb\xbf".as_slice()).unwrap_or(&bytes);
            let mut lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
            if lines.last().is_some_and(|last| last.is_empty()) {
                lines.pop();
            }
            lines
        };
        let blank = lines.iter().filter(|line| line.trim_ascii().is_empty()).count();
        // The names promise no compression. Another test has content that begins like a compressed file.
        prop_assume!(!bytes.starts_with(&[0x1f, 0x8b]) && !bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
        prop_assume!(other_encoding(&bytes).is_none());
        if let Ok(mut rows) = inputs.write("a.csv", &bytes).open(limits(jobs_max)) {
            // An unclosed quote stops the reader.
            while let Ok(Some(_)) = rows.next_batch() {}
        }
        for (name, jobs) in [("a.jsonl", Some(lines.len() - blank)), ("a.txt", Some(lines.len())), ("a.tsv", None)] {
            let Ok(reader) = inputs.write(name, &bytes).open(limits(jobs_max)) else {
                prop_assert_eq!(name, "a.tsv", "only a header can be refused");
                continue;
            };
            let (payloads, rejected, progress) = drain(reader);
            prop_assert_eq!(progress.jobs, payloads.len() as u64);
            prop_assert_eq!(progress.crc32, crc32fast::hash(&bytes[..progress.bytes as usize]));
            prop_assert!(rejected.len() <= payloads.len());
            if let Some(jobs) = jobs {
                prop_assert_eq!(payloads.len(), jobs, "{}", name);
                prop_assert_eq!(progress.bytes, bytes.len() as u64);
                prop_assert_eq!(progress.lines, lines.len() as u64);
            }
        }
    }
}

#[test]
fn a_long_random_file_gives_the_same_items_in_any_batch_size() {
    let mut rng = SplitMix64::new(11);
    let mut text = String::new();
    for _ in 0..20_000 {
        let length = rng.below(200) as usize;
        text.push_str(&format!("\"{}\"\n", "z".repeat(length)));
    }
    let inputs = Inputs::new();
    let input = inputs.write("items.jsonl", &text);
    let expected: Vec<String> = text.lines().map(str::to_owned).collect();
    for jobs_max in [1, 7, 1_000, 10_000] {
        let (payloads, rejected, _) = drain(input.open(limits(jobs_max)).unwrap());
        assert!(
            rejected.is_empty() && payloads == expected,
            "{jobs_max} jobs a batch"
        );
    }
}
