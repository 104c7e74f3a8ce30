//! No reader panics on random bytes, or on random changes of valid texts.

use std::io::{Cursor, Write as _};

use gristmill_memory::source::{Format, ReadOptions, decode, read};
use gristmill_model::{Rng, SplitMix64};
use zip::write::SimpleFileOptions;

/// Inputs that are tried. `READER_ROUNDS` sets another number, and `READER_SEED` makes others.
const ROUNDS: u64 = 3_000;

/// The files of archives, with the place of their text in it. The text is changed, and then packed.
const ARCHIVES: [(&str, &str); 3] = [
    (
        "word/document.xml",
        "<w:document><w:body><w:p><w:pPr><w:pStyle w:val=\"Heading1\"/></w:pPr><w:r><w:t>Bees</w:t></w:r></w:p><w:p><w:r><w:t>Ines\
         </w:t></w:r><w:r><w:tab/><w:t>0:03</w:t><w:br/><w:t>They &amp; hum</w:t></w:r></w:p></w:body></w:document>",
    ),
    (
        "export/hives/2024-03-12.json",
        "[{\"type\": \"message\", \"user\": \"U1\", \"text\": \"hum\", \"ts\": \"1682926200.000200\"}]",
    ),
    (
        "_chat.txt",
        "[12.03.24, 14:05:33] Ana: Bees\n[12.03.24, 14:06:33] Bob: hum\n",
    ),
];

/// An archive of one file.
fn packed(name: &str, text: &[u8]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    archive
        .start_file(name, SimpleFileOptions::default())
        .expect("a file");
    archive.write_all(text).expect("writes");
    archive.finish().expect("an archive").into_inner()
}

/// The number in a variable of the environment.
fn number(name: &str) -> Option<u64> {
    let told = std::env::var(name).ok()?;
    Some(told.parse().expect("a number"))
}

const SAMPLES: [&str; 27] = [
    "The Bee Show\n\nADA KING: Hello. I like bees.\n\nBOB: Why: because?\nADA KING: See https://bees.example\n",
    "WEBVTT\n\nNOTE x\n\n00:01.000 --> 00:02.500 align:start\n<v Ada>Bees <i>hum</i> &amp; dance</v>\n\n99:59:59.999 --> 00:00\nx < y\n",
    "1\r\n00:00:01,000 --> 00:00:02,000\r\nBees hum.\r\n\r\n2\r\n00:00:40,000 --> 00:00:41,000\r\n- Later.\r\n",
    "From: Ada <ada@bees.example>\r\nTo: b@bees.example\r\nSubject: =?utf-8?Q?B=C3=A9es?=\r\nDate: Mon, 1 May 2023 09:30:00 +0200\r\n\
     Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/html\r\n\r\n<p>Hum</p>\r\n--x--\r\n",
    "From ada Mon May  1 2023\nFrom: a@b\n\nHum.\n>From x\n\nFrom bob Mon May  1 2023\nSubject: y\n\nDrum.\n",
    "---\ntitle: x\n---\nIntro.\n\n# Bees\n\n## Work\nThey hum.\n```\n# code\n```\n* a\n* b\n\n| t | u |\n|---|---|\n| 1 | 2 |\n",
    "Bees hum. They dance.\n\nDrums, too! Why? \u{1f41d}\u{200d}\n",
    "{\"text\":\"Hi\",\"from\":\"Ada\",\"to\":[\"Bob\"],\"timestamp\":\"2023-05-01T07:00:00Z\",\"tags\":[\"x\"]}\n\
     {\"body\":\"Bye\",\"time\":1e9}\n",
    "<tt xmlns=\"http://www.w3.org/ns/ttml\"><body><div><p begin=\"00:00:01.000\" end=\"2s\">Bees<br/>hum &amp; \
        &#x41;</p></div></body></tt>",
    "[Events]\nFormat: Start, End, Name, Text\nDialogue: 0:00:01.00,0:00:02.00,Ada,{\\an8}Bees\\Nhum\n",
    "[ti:Bees]\n[00:01.00][00:02.00]Bees <00:01.50>hum\n",
    "{\"segments\": [{\"start\": 0.0, \"end\": 2.5, \"text\": \" Bees\", \"speaker\": \"A\"}, {\"start\": 3, \"end\": 70, \"text\": \
        \"hum\"}]}",
    "12/03/2024, 14:05 - Ana: Bees\nhum\n13/03/2024, 2:05\u{202f}PM - Bob added Cleo\n[2024-03-13, 2:05:33 PM] ~ Ada: x\n",
    "{\"name\": \"x\", \"messages\": [{\"type\": \"message\", \"date\": \"2023-05-01T09:30:00\", \"date_unixtime\": \"1682926200\", \
        \"from\": \"Ada\", \"from_id\": \"user1\", \"text\": [\"a\", {\"text\": \"b\"}]}]}",
    "[{\"type\": \"message\", \"user\": \"U1\", \"text\": \"<@U1> hum &amp; <https://x|y>\", \"ts\": \"1682926200.000200\", \
        \"thread_ts\": \"1682926200.000200\"}]",
    "{\"guild\": {}, \"channel\": {\"name\": \"x\"}, \"messages\": [{\"type\": \"Default\", \"timestamp\": \
        \"2023-05-01T09:30:00+02:00\", \"content\": \"hum\", \"author\": {\"name\": \"ada\"}}]}",
    "{\"room_name\": \"x\", \"messages\": [{\"type\": \"m.room.message\", \"sender\": \"@a:b\", \"origin_server_ts\": 1682926200000, \
        \"content\": {\"msgtype\": \"m.text\", \"body\": \"> a\\n\\nhum\", \"m.relates_to\": {\"m.in_reply_to\": {}}}}]}",
    "{\"type\":\"version\",\"version\":1}\n\
        {\"type\":\"post\",\"post\":{\"channel\":\"x\",\"user\":\"ada\",\"message\":\"hum\",\"create_at\":1682926200000,\
     \"replies\":[{\"user\":\"bob\",\"message\":\"y\"}]}}\n",
    "{\"zerver_message\": [{\"sender\": 7, \"recipient\": 4, \"subject\": \"x\", \"content\": \"hum\", \"date_sent\": 1682926200.0}]}",
    "--- Log opened Tue Mar 12 14:01:00 2024\n14:02 <@ada> Do they hum?\n14:03 -!- ada is now known as b\n14:04  * b hums\n\
     [00:01:00] <b> x\n2024-03-12 14:02:05\t@ada\ty\n",
    "[{\"text\": \"hum\", \"author\": {\"name\": \"Ada\"}, \"ts\": 1682926200000}, {\"mapping\": {\"a\": {\"message\": null}}}]",
    "#+TITLE: x\n#+FILETAGS: :a:b:\n* Bees\n:PROPERTIES:\n:ID: 7\n:END:\nThey [[x][hum]].\n#+BEGIN_SRC\n* y\n#+END_SRC\n",
    "{\"cells\": [{\"cell_type\": \"markdown\", \"source\": [\"# Bees\\n\", \"hum\"]}, {\"cell_type\": \"code\", \"source\": \"x\"}]}",
    "<html><head><title>Bees</title></head><body><p>They <b>hum</b> &amp; drum</p></body></html>",
    "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;TZID=Europe/Berlin:20230501T093000\r\nSUMMARY:Hives\\, all\r\nORGANIZER;CN=\
     \"Ada\":mailto:a@b\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
    "From a@b Mon May  1 09:30:00 2023\nContent-Length: 30\n\n>From x\n\n----- Forwarded message from Bob <b@c> -----\n\nDate: x\n\
     From: Bob <b@c>\nTo: d\nSubject: e\n\nHum.\n\n----- End forwarded message -----\nDrum.\n",
    "Weekly sync (2024-03-12 at 06:02 GMT-8)\n\n[00:03] Ines: Hum.\n[00:09] Bob: March 12, 2024, 2:02PM\n[00:12] Ines: x\n",
];

/// Reads with every reader, and checks properties of all messages.
fn read_all(bytes: &[u8], options: &ReadOptions) -> (usize, usize) {
    let (mut read_well, mut refused) = (0, 0);
    for format in Format::ALL {
        match read("fuzz", format, bytes, options) {
            Ok(messages) => {
                read_well += 1;
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
            Err(error) => {
                refused += 1;
                assert!(error.to_string().starts_with("fuzz"), "{error}");
            }
        }
    }
    Format::of(std::path::Path::new("fuzz"), bytes);
    (read_well, refused)
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut SplitMix64) {
    for _ in 0..1 + rng.below(6) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(5) {
            0 => bytes.insert(at, rng.next_u64() as u8),
            1 if at < bytes.len() => bytes[at] = rng.next_u64() as u8,
            2 if at < bytes.len() => {
                bytes.remove(at);
            }
            3 => bytes.truncate(at),
            _ => {
                let piece: Vec<u8> = bytes[at..].iter().copied().take(rng.below(30) as usize).collect();
                let to = rng.below(bytes.len() as u64 + 1) as usize;
                bytes.splice(to..to, piece);
            }
        }
    }
}

#[test]
fn no_reader_panics() {
    let mut rng = SplitMix64::new(number("READER_SEED").unwrap_or(2_026));
    let (mut inputs, mut read_well, mut refused) = (0, 0, 0);
    for round in 0..number("READER_ROUNDS").unwrap_or(ROUNDS) {
        let mut archive = None;
        let mut bytes = match round % 8 {
            0 | 4 => (0..rng.below(300)).map(|_| rng.next_u64() as u8).collect(),
            1 => {
                let (name, text) = ARCHIVES[rng.below(ARCHIVES.len() as u64) as usize];
                archive = Some(name);
                text.as_bytes().to_vec()
            }
            _ => SAMPLES[rng.below(SAMPLES.len() as u64) as usize]
                .as_bytes()
                .to_vec(),
        };
        mutate(&mut bytes, &mut rng);
        if let Some(name) = archive {
            bytes = packed(name, &bytes);
        }
        let options = ReadOptions {
            chunk_characters: 1 + rng.below(80) as usize,
            // Without one, the text may tell it.
            recorded_at: (rng.below(2) == 0).then_some(gristmill_model::Timestamp(i64::MAX - 5)),
            recorded_pattern: None,
            duration_ms: Some(3_600_000),
            zone_minutes: Some(-420),
        };
        let (well, not) = read_all(&bytes, &options);
        inputs += 1;
        read_well += well;
        refused += not;
    }
    println!(
        "{inputs} inputs to {} readers: {read_well} read, {refused} refused, 0 panics",
        Format::ALL.len()
    );
    assert!(
        read_well * 3 > refused,
        "each input is close to a good one of one format, and other formats may refuse it"
    );
}

#[test]
fn the_samples_are_read() {
    let texts = Format::ALL.into_iter().zip(SAMPLES).take(25);
    let texts = texts.map(|(format, text)| (format, text.as_bytes().to_vec()));
    let archives = [Format::Docx, Format::Slack, Format::WhatsApp]
        .into_iter()
        .zip(ARCHIVES);
    let archives = archives.map(|(format, (name, text))| (format, packed(name, text.as_bytes())));
    let mut left = Format::ALL.to_vec();
    for (format, bytes) in texts.chain(archives) {
        let messages = read("sample", format, &bytes, &ReadOptions::default()).expect("reads");
        assert!(!messages.is_empty(), "{format:?}");
        left.retain(|other| *other != format);
    }
    // Another program reads PDF files.
    assert_eq!(left, [Format::Pdf], "each reader has a sample");
}

#[test]
fn decodes_utf_16() {
    let bytes: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("Béé".encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    assert_eq!(decode(&bytes), "Béé");
}
