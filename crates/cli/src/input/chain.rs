//! Several files of one format as one input.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use super::batch_reader::other_encoding;
use super::dialect::{Dialect, Quote};
use super::error::InputError;
use super::format::Format;
use super::opened::open_file;
use super::places::Places;

/// Bytes of one read.
const BUFFER_BYTES: usize = 256 << 10;

/// The longest header of a CSV file. Bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// Reads one file after the other. Adds a line feed to a file that ends without one. Leaves out the headers of later
/// CSV files, which must be equal.
pub(super) struct Chain {
    left: VecDeque<PathBuf>,
    format: Format,
    dialect: Dialect,
    given: Option<Format>,
    python: OsString,
    places: Places,
    current: Option<BufReader<Box<dyn Read + Send>>>,
    /// Counted bytes that the reader gets before the rest of the current file.
    ready: Vec<u8>,
    header: Option<Vec<u8>>,
    lines: u64,
    ends_in_line: bool,
}

impl Chain {
    pub fn new(
        files: &[PathBuf],
        (format, dialect): (Format, Dialect),
        given: Option<Format>,
        python: OsString,
        places: Places,
    ) -> Chain {
        Chain {
            left: files.iter().cloned().collect(),
            format,
            dialect,
            given,
            python,
            places,
            current: None,
            ready: Vec::new(),
            header: None,
            lines: 0,
            ends_in_line: false,
        }
    }

    /// Opens the next file. Returns `false` if there is none.
    fn open_next(&mut self) -> io::Result<bool> {
        let Some(path) = self.left.pop_front() else {
            return Ok(false);
        };
        let name = path.display().to_string();
        let fail = |error: io::Error| io::Error::new(error.kind(), format!("{name} cannot be read: {error}"));
        let opened = open_file(&path, self.given, &self.python).map_err(fail)?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, opened.reader);
        let first = reader.fill_buf().map_err(fail)?;
        if let Some(encoding) = other_encoding(first) {
            let error = InputError::Encoding { name, encoding };
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        if first.starts_with(b"\xef\xbb\xbf") {
            reader.consume(3);
        }
        if std::mem::take(&mut self.ends_in_line) {
            self.ready.push(b'\n');
            self.lines += 1;
        }
        let lines_before = self.lines;
        let mut lines_skipped = 0;
        if matches!(self.format, Format::Csv | Format::Tsv) {
            let header = read_header(&mut reader, self.dialect.quote).map_err(fail)?;
            match &self.header {
                None => {
                    self.count(&header);
                    self.ready.extend_from_slice(&header);
                    self.header = Some(header);
                }
                Some(first) if header.trim_ascii_end() == first.trim_ascii_end() => {
                    lines_skipped = memchr::memchr_iter(b'\n', &header).count() as u64;
                }
                Some(_) => {
                    let reason = format!(
                        "the header of {name} differs from the header of the first file: run it apart"
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                }
            }
        }
        self.places
            .add(name.as_str().into(), lines_before, lines_skipped, opened.is_array);
        self.current = Some(reader);
        Ok(true)
    }

    /// Counts the lines of the bytes that the reader gets.
    fn count(&mut self, bytes: &[u8]) {
        self.lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.ends_in_line = bytes.last().map_or(self.ends_in_line, |last| *last != b'\n');
    }
}

/// The first row, which may span several lines.
fn read_header(reader: &mut impl BufRead, quote: Quote) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    loop {
        let before = header.len();
        reader
            .by_ref()
            .take(HEADER_BYTES_MAX as u64)
            .read_until(b'\n', &mut header)?;
        let quotes = match quote {
            Quote::None => 0,
            Quote::Byte(quote) => memchr::memchr_iter(quote, &header).count(),
        };
        if quotes.is_multiple_of(2) || header.len() == before || header.len() >= HEADER_BYTES_MAX {
            return Ok(header);
        }
    }
}

impl Read for Chain {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.ready.is_empty() {
                let bytes = self.ready.len().min(target.len());
                target[..bytes].copy_from_slice(&self.ready[..bytes]);
                self.ready.drain(..bytes);
                return Ok(bytes);
            }
            let Some(reader) = &mut self.current else {
                if self.open_next()? {
                    continue;
                }
                return Ok(0);
            };
            let bytes = reader.read(target)?;
            if bytes > 0 {
                self.count(&target[..bytes]);
                return Ok(bytes);
            }
            self.current = None;
        }
    }
}
