//! Standard input as a source: bytes that end soon, or JSON lines of a program that keeps writing.

use std::io::{self, BufReader, Cursor, IsTerminal, Read};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use gristmill_memory::limits::SOURCE_BYTES_MAX;
use gristmill_memory::pipeline::{Followed, Input, NewInput};
use gristmill_memory::source::Format;
use tokio::sync::mpsc;

/// A pipe of JSON lines that stays open longer than this is followed. A pipe that ends before is a source like a file.
const FOLLOWED_AFTER: Duration = Duration::from_secs(2);

/// The name of a followed pipe without a given name.
const NAME: &str = "stdin";

/// Bytes of one read.
const PIECE_BYTES: usize = 1 << 16;

/// The longest line. Bytes.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The largest number of pieces that were read and not taken yet.
const PIECES_MAX: usize = 16;

const CANNOT: &str = "standard input cannot be read";

/// Standard input. A thread of its own reads it, so that a caller can stop waiting for it.
struct Pipe {
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// The unread rest of the last piece.
    rest: Cursor<Vec<u8>>,
}

impl Pipe {
    fn start(mut input: impl Read + Send + 'static) -> io::Result<Pipe> {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let read = move || {
            loop {
                let mut piece = vec![0; PIECE_BYTES];
                let read = input.read(&mut piece);
                match &read {
                    Ok(0) => return,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    _ => {}
                }
                let is_last = read.is_err();
                let piece = read.map(|length| {
                    piece.truncate(length);
                    piece
                });
                if sender.blocking_send(piece).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("gristmill-stdin".to_owned())
            .spawn(read)?;
        Ok(Pipe {
            pieces,
            rest: Cursor::default(),
        })
    }
}

/// Standard input line by line.
pub struct Lines {
    pipe: Pipe,
    bytes: Vec<u8>,
    is_ended: bool,
}

impl Lines {
    /// Starts to read standard input.
    pub fn of_standard_input() -> anyhow::Result<Lines> {
        Lines::of(io::stdin())
    }

    fn of(input: impl Read + Send + 'static) -> anyhow::Result<Lines> {
        Ok(Lines {
            pipe: Pipe::start(input).context(CANNOT)?,
            bytes: Vec::new(),
            is_ended: false,
        })
    }

    /// The next line without its end, even if the last line has no line feed. `None` at the end. A caller may stop
    /// waiting and call again.
    ///
    /// # Errors
    ///
    /// The system's error, and a line of more than [`LINE_BYTES_MAX`].
    pub async fn next(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            let end = self.bytes.iter().position(|byte| *byte == b'\n');
            if end.is_none() && self.is_ended && self.bytes.is_empty() {
                return Ok(None);
            }
            if end.is_some() || self.is_ended {
                let rest = self.bytes.split_off(end.map_or(self.bytes.len(), |end| end + 1));
                let line = std::mem::replace(&mut self.bytes, rest);
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            if self.bytes.len() > LINE_BYTES_MAX {
                bail!("a line exceeds the limit of {LINE_BYTES_MAX} bytes");
            }
            match self.pipe.pieces.recv().await.transpose().context(CANNOT)? {
                Some(piece) => self.bytes.extend(piece),
                None => self.is_ended = true,
            }
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.rest.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.pieces.blocking_recv() {
                Some(piece) => self.rest = Cursor::new(piece?),
                None => return Ok(0),
            }
        }
    }
}

/// Standard input as a source.
pub async fn standard_input(name: Option<&str>, format: Option<Format>) -> anyhow::Result<Input> {
    if name.is_none() && io::stdin().is_terminal() {
        return needs_name();
    }
    let mut pipe = Pipe::start(io::stdin()).context(CANNOT)?;
    let mut bytes = Vec::new();
    let mut is_open_for_long = false;
    let too_long = tokio::time::sleep(FOLLOWED_AFTER);
    tokio::pin!(too_long);
    loop {
        if is_open_for_long && is_json_lines(name, format, &bytes) {
            return Ok(Input::Followed(Followed {
                name: name.unwrap_or(NAME).to_owned(),
                reader: Box::new(Cursor::new(bytes).chain(BufReader::new(pipe))),
            }));
        }
        if is_open_for_long && name.is_none() && bytes.contains(&b'\n') {
            return needs_name();
        }
        tokio::select! {
            piece = pipe.pieces.recv() => match piece.transpose().context(CANNOT)? {
                Some(piece) => bytes.extend(piece),
                None => break,
            },
            () = &mut too_long, if !is_open_for_long => is_open_for_long = true,
        }
        check_size(&bytes)?;
    }
    let Some(name) = name else { return needs_name() };
    let format = format.or_else(|| is_json_lines(Some(name), None, &bytes).then_some(Format::JsonLines));
    Ok(Input::Whole(whole(name.to_owned(), bytes, format)))
}

/// The bytes of a pipe as a source.
pub fn whole(name: String, bytes: Vec<u8>, format: Option<Format>) -> NewInput {
    let input = NewInput::from_bytes(name, bytes);
    NewInput {
        format: format.unwrap_or(input.format),
        ..input
    }
}

/// Refuses more bytes than a source in memory may have.
pub fn check_size(bytes: &[u8]) -> anyhow::Result<()> {
    if bytes.len() as u64 > SOURCE_BYTES_MAX {
        bail!("the input exceeds the limit of {SOURCE_BYTES_MAX} bytes for a pipe; write it to a file");
    }
    Ok(())
}

fn needs_name() -> anyhow::Result<Input> {
    bail!("standard input needs --name: the source's name in the knowledge base")
}

/// Reports whether the pipe has JSON lines: by its format or name, or else by its first line.
fn is_json_lines(name: Option<&str>, format: Option<Format>, bytes: &[u8]) -> bool {
    if let Some(format) = format {
        return format == Format::JsonLines;
    }
    match Format::of(Path::new(name.unwrap_or_default()), bytes) {
        Format::JsonLines => true,
        Format::Text | Format::Transcript => {
            let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            matches!(serde_json::from_slice(first), Ok(serde_json::Value::Object(_)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_are_recognised_by_name_or_first_line() {
        for (name, format, bytes, expected) in [
            (Some("chat.jsonl"), None, "", true),
            (Some("chat"), None, "{\"text\": \"Hi\"}\n{", true),
            (None, None, "{\"text\": \"Hi\"}", true),
            (None, None, "{\"text\": ", false),
            (None, None, "", false),
            (Some("chat"), None, "Ada: Hi\n{}", false),
            (Some("notes.md"), None, "{}\n", false),
            (Some("notes.md"), Some(Format::JsonLines), "", true),
            (Some("chat.jsonl"), Some(Format::Text), "{}", false),
        ] {
            assert_eq!(
                is_json_lines(name, format, bytes.as_bytes()),
                expected,
                "{name:?} {bytes}"
            );
        }
    }

    #[tokio::test]
    async fn a_pipe_is_read_line_by_line() {
        let mut lines = Lines::of(Cursor::new("Who?\r\n\nWh\u{e9}n?".as_bytes())).expect("a thread");
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.expect("reads") {
            read.push(line);
        }
        assert_eq!(read, ["Who?", "", "Wh\u{e9}n?"]);
        let long = vec![b'x'; LINE_BYTES_MAX * 2];
        let error = Lines::of(Cursor::new(long)).expect("a thread").next().await;
        assert!(error.expect_err("too long").to_string().contains("1048576 bytes"));
    }

    #[test]
    fn a_pipe_gives_all_its_bytes() {
        let text = "Bees hum.\n".repeat(20_000);
        let mut pipe = Pipe::start(Cursor::new(text.clone().into_bytes())).expect("a thread");
        let mut read = String::new();
        pipe.read_to_string(&mut read).expect("reads");
        assert_eq!(read, text);
    }
}
