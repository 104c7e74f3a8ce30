//! PDF files, whose text `pdftotext` of Poppler writes: a process of its own, so that no file takes this one with it.

use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::error::MemoryError;
use crate::limits::{PDF_MESSAGE_BYTES_MAX, PDF_PATIENCE_MS, SOURCE_BYTES_MAX};
use crate::message::Message;
use crate::source::{ReadOptions, chunk, moment};

/// The beginning of a PDF file.
pub const MARK: &[u8] = b"%PDF-";

/// Letters that stand for several ones.
const LIGATURES: [(char, &str); 7] = [
    ('\u{fb00}', "ff"),
    ('\u{fb01}', "fi"),
    ('\u{fb02}', "fl"),
    ('\u{fb03}', "ffi"),
    ('\u{fb04}', "ffl"),
    ('\u{fb05}', "st"),
    ('\u{fb06}', "st"),
];

/// Reads the messages of a PDF file: the text of a page each. The document's title, author and last change become subject, speaker
/// and time.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if `pdftotext` is not installed, cannot read the bytes, or finds no text in them.
pub fn read(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    if !bytes.starts_with(MARK) {
        return Err(MemoryError::invalid(
            name,
            "it is no PDF file: it does not begin with `%PDF-`; name its format with --format",
        ));
    }
    let patience = Duration::from_millis(PDF_PATIENCE_MS);
    let run = |program: &str, arguments: &[&str]| {
        run(program, arguments, bytes, patience).map_err(|reason| MemoryError::invalid(name, reason))
    };
    let text = run("pdftotext", &["-enc", "UTF-8", "-", "-"])?;
    // The text is worth more than its title.
    let properties = run("pdfinfo", &["-enc", "UTF-8", "-isodates", "-"]).unwrap_or_default();
    let property = |key: &str| {
        let lines = properties.lines().filter_map(|line| line.split_once(':'));
        let found = lines.filter(|(name, _)| *name == key);
        found
            .map(|(_, value)| value.trim())
            .find(|value| !value.is_empty())
    };
    let title = property("Title").map(str::to_owned);
    let author = property("Author").map(str::to_owned);
    let changed = property("ModDate").or_else(|| property("CreationDate"));
    let changed = changed.and_then(|text| moment::parse(text, options.zone_minutes));
    let mut messages = Vec::new();
    for (page, text) in (1..).zip(text.split('\u{c}')) {
        for piece in chunk::split(&plain(text), options.chunk_characters) {
            messages.push(Message {
                subject: title.clone(),
                speaker: author.clone(),
                moment: changed,
                place: Some(format!("page {page}")),
                ..Message::new(piece)
            });
        }
    }
    if messages.is_empty() {
        return Err(MemoryError::invalid(
            name,
            "it has no text; a scan needs a program that recognises characters, such as ocrmypdf",
        ));
    }
    Ok(messages)
}

/// The text of a page with its words whole: those that a line's end divides, and those with ligatures.
fn plain(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim_end();
        let is_divided = lines
            .peek()
            .is_some_and(|next| next.starts_with(char::is_lowercase));
        let word = line.strip_suffix(['-', '\u{ad}', '\u{2010}']);
        match word.filter(|word| is_divided && word.ends_with(char::is_alphabetic)) {
            Some(word) => text.push_str(word),
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    for (ligature, letters) in LIGATURES {
        if text.contains(ligature) {
            text = text.replace(ligature, letters);
        }
    }
    text
}

/// The output of a program that reads `bytes`. The error is its reason and the remedy.
fn run(program: &str, arguments: &[&str], bytes: &[u8], patience: Duration) -> Result<String, String> {
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = started.map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!(
            "PDF files are read by {program}, which is not installed; install Poppler's tools (package poppler-utils or \
             poppler), and retry with --retry-failed"
        ),
        _ => format!("{program} cannot be started: {error}"),
    })?;
    let running = Running(child);
    thread::scope(|scope| {
        // Its end ends the threads.
        let mut running = running;
        let pipes = (
            running.0.stdin.take(),
            running.0.stdout.take(),
            running.0.stderr.take(),
        );
        let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(format!("{program} has no pipes"));
        };
        // A program that ends before it has read everything says why by its status.
        scope.spawn(move || {
            let _ = stdin.write_all(bytes);
        });
        let read = |from: Box<dyn Read + Send>, bytes_max| {
            let (sender, output) = mpsc::channel();
            scope.spawn(move || {
                let _ = sender.send(head(from, bytes_max));
            });
            output
        };
        let (text, message) = (
            read(Box::new(stdout), SOURCE_BYTES_MAX),
            read(Box::new(stderr), PDF_MESSAGE_BYTES_MAX),
        );
        let wait = |output: mpsc::Receiver<Vec<u8>>| {
            output.recv_timeout(patience).map_err(|_| {
                format!(
                    "{program} took longer than {} s; write its text to a file, and ingest that",
                    patience.as_secs()
                )
            })
        };
        let (text, message) = (wait(text)?, wait(message)?);
        let status = running.0.wait().map_err(|error| format!("{program}: {error}"))?;
        let message = String::from_utf8_lossy(&message);
        let message = message.lines().next().unwrap_or_default().trim();
        if message.to_lowercase().contains("incorrect password") {
            return Err("it has a password; write it without one, as by `qpdf --decrypt`".to_owned());
        }
        if !status.success() {
            return Err(format!("{program} cannot read it: {status}: {message}"));
        }
        if text.len() as u64 == SOURCE_BYTES_MAX {
            return Err(format!(
                "its text exceeds the limit of {SOURCE_BYTES_MAX} bytes for a source; split it into several files"
            ));
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    })
}

/// The first bytes of an output. Reads the rest, for which the program waits otherwise.
fn head(mut from: impl Read, bytes_max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.by_ref().take(bytes_max).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut from, &mut std::io::sink());
    bytes
}

/// A program that does not outlive its reader.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of these pages, as small writers make them.
    fn pdf(pages: &[&str]) -> Vec<u8> {
        let mut objects = vec![
            "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
            format!(
                "<< /Type /Pages /Count {} /Kids [{}] >>",
                pages.len(),
                (0..pages.len())
                    .map(|page| format!("{} 0 R ", 5 + 2 * page))
                    .collect::<String>()
            ),
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
            "<< /Title (Hive diary) /Author (Ada King) /CreationDate (D:20240312140205Z) >>".to_owned(),
        ];
        for (page, lines) in pages.iter().enumerate() {
            let lines: String = lines.lines().map(|line| format!("({line}) Tj T* ")).collect();
            let content = format!("BT /F1 12 Tf 14 TL 72 700 Td {lines}ET");
            objects.push(format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {} 0 R /Resources << /Font << /F1 3 0 R >> >> >>",
                6 + 2 * page
            ));
            objects.push(format!(
                "<< /Length {} >>\nstream\n{content}\nendstream",
                content.len()
            ));
        }
        let mut file = "%PDF-1.4\n".to_owned();
        let mut places = String::new();
        for (number, object) in (1..).zip(&objects) {
            places.push_str(&format!("{:010} 00000 n \n", file.len()));
            file.push_str(&format!("{number} 0 obj\n{object}\nendobj\n"));
        }
        let (count, table) = (objects.len() + 1, file.len());
        file.push_str(&format!("xref\n0 {count}\n0000000000 65535 f \n{places}"));
        file.push_str(&format!(
            "trailer\n<< /Size {count} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{table}\n%%EOF\n"
        ));
        file.into_bytes()
    }

    #[test]
    fn a_page_is_a_message_with_title_author_and_time() {
        let options = ReadOptions::default();
        let file = pdf(&["Bees hum all morn-\ning long.", "", "Drums do not."]);
        let found = read("diary.pdf", &file, &options).expect("reads");
        let texts: Vec<String> = found.iter().map(Message::text).collect();
        assert_eq!(texts, ["Bees hum all morning long.", "Drums do not."]);
        let places: Vec<_> = found.iter().map(|message| message.place.as_deref()).collect();
        assert_eq!(places, [Some("page 1"), Some("page 3")]);
        assert_eq!(found[0].subject.as_deref(), Some("Hive diary"));
        assert_eq!(found[0].speaker.as_deref(), Some("Ada King"));
        assert_eq!(found[0].moment, moment::parse("2024-03-12T14:02:05Z", None));
    }

    #[test]
    fn a_scan_and_a_broken_file_are_named() {
        let options = ReadOptions::default();
        let scan = read("scan.pdf", &pdf(&[""]), &options).expect_err("no text");
        assert!(scan.to_string().contains("ocrmypdf"), "{scan}");
        let broken = read("broken.pdf", b"%PDF-1.4\nno objects", &options).expect_err("broken");
        assert!(
            broken.to_string().contains("pdftotext cannot read it"),
            "{broken}"
        );
    }

    #[test]
    fn a_missing_or_endless_program_is_an_error() {
        let missing = run("gristmill-no-such-program", &[], b"", Duration::ZERO).expect_err("missing");
        assert!(missing.contains("poppler-utils"), "{missing}");
        let endless = run("sleep", &["1000"], b"", Duration::from_millis(1)).expect_err("endless");
        assert!(endless.contains("took longer"), "{endless}");
    }

    #[test]
    fn divided_words_and_ligatures_are_whole() {
        let page = "an e\u{fb03}-\ncient o\u{fb03}ce\nX-\nRay and A-\n1";
        assert_eq!(plain(page), "an efficient office\nX-\nRay and A-\n1\n");
    }
}
