//! Rows of a CSV stream, as objects keyed by the header.

use std::io;

use csv_core::ReadRecordResult;
use gristmill_model::limits::PAYLOAD_BYTES_MAX;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::dialect::{Dialect, Misquoted, Quote};
use super::lines::EXCERPT_BYTES_MAX;
use super::stream::Stream;

/// The maximum number of columns of a CSV input: bounds the cost of a file of commas.
const COLUMNS_MAX: usize = 100_000;

/// The next row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// A row that the reader holds and that is not accepted yet.
    Whole {
        /// The bytes to accept.
        row_bytes: usize,
    },
    /// A row that is too long. It is accepted already, and was never in memory as a whole.
    TooLong {
        /// Its length.
        bytes: u64,
        /// The line on which it begins, counted from the last accepted one.
        lines_before: u64,
        /// Its number of lines, including empty lines before it.
        lines: u64,
        /// Its beginning.
        excerpt: Vec<u8>,
    },
    /// A row with an unknown end, because its quotes do not match. No byte of it is accepted.
    Misquoted {
        /// The line of the opening quote, counted from the last accepted one.
        lines_before: u64,
        /// The problem.
        reason: String,
    },
    /// No more rows.
    End,
}

/// The longest first row in which the delimiter is searched. Bytes.
const FIRST_ROW_BYTES_MAX: usize = 1 << 20;

/// Reads rows. A row with a quoted field may span several lines.
pub(super) struct RowReader {
    dialect: Dialect,
    delimiter: u8,
    core: csv_core::Reader,
    header: Vec<String>,
    fields: Vec<u8>,
    field_ends: Vec<usize>,
    /// The bytes of the found row that waits to be accepted.
    found: Option<usize>,
    columns: usize,
    /// The found row has text after a quoted field.
    is_misquoted: bool,
}

impl RowReader {
    /// A reader without its header.
    pub fn new(dialect: Dialect) -> RowReader {
        let delimiter = dialect.delimiter_of(b"");
        RowReader {
            dialect,
            delimiter,
            core: parser(dialect.quote, delimiter),
            header: Vec::new(),
            fields: vec![0; 4 << 10],
            field_ends: vec![0; 64],
            found: None,
            columns: 0,
            is_misquoted: false,
        }
    }

    /// Chooses the delimiter by the first row, unless it is given.
    pub fn choose_delimiter(&mut self, stream: &mut Stream) -> io::Result<()> {
        if self.dialect.delimiter.is_some() {
            return Ok(());
        }
        let mut searched = 0;
        let row = loop {
            let pending = stream.pending();
            // Line breaks before the row do not belong to it.
            let blank = pending
                .iter()
                .take_while(|byte| matches!(byte, b'\r' | b'\n'))
                .count();
            if let Some(end) = memchr::memchr2(b'\r', b'\n', &pending[searched.max(blank)..]) {
                break &pending[..searched.max(blank) + end];
            }
            searched = pending.len();
            if searched > FIRST_ROW_BYTES_MAX || !stream.read_more()? {
                break stream.pending();
            }
        };
        self.set_delimiter(self.dialect.delimiter_of(row));
        Ok(())
    }

    fn set_delimiter(&mut self, delimiter: u8) {
        self.delimiter = delimiter;
        self.core = parser(self.dialect.quote, delimiter);
    }

    /// Uses the current row as the header, or returns the reason against it.
    pub fn take_header(&mut self) -> Result<(), String> {
        let mut header: Vec<String> = Vec::with_capacity(self.columns);
        for column in 0..self.columns {
            let name = std::str::from_utf8(self.field(column))
                .map_err(|_| format!("the name of column {} is not UTF-8", column + 1))?;
            if header.iter().any(|earlier| earlier == name) {
                return Err(format!("two columns are named `{name}`"));
            }
            header.push(name.to_owned());
        }
        self.header = header;
        Ok(())
    }

    /// Takes another reader's header and delimiter.
    pub fn copy_header_of(&mut self, other: RowReader) {
        self.set_delimiter(other.delimiter);
        self.header = other.header;
    }

    /// Finds the next row. Until the row is [accepted](RowReader::accept), further calls find the same one.
    pub fn next(&mut self, stream: &mut Stream) -> io::Result<Row> {
        if let Some(row_bytes) = self.found {
            return Ok(Row::Whole { row_bytes });
        }
        let (mut parsed, mut written, mut ends) = (0, 0, 0);
        loop {
            let at_end = stream.pending().len() == parsed
                && !match parsed {
                    0 => stream.read_more_of_batch()?,
                    // Within a row, the parser cannot start again.
                    _ => stream.read_more()?,
                };
            let (result, read, wrote, ended) = self.core.read_record(
                &stream.pending()[parsed..],
                &mut self.fields[written..],
                &mut self.field_ends[ends..],
            );
            parsed += read;
            written += wrote;
            ends += ended;
            match result {
                ReadRecordResult::Record => {
                    if let Some(row) = self.misquoted(&stream.pending()[..parsed]) {
                        return Ok(row);
                    }
                    self.found = Some(parsed);
                    self.columns = ends;
                    return Ok(Row::Whole { row_bytes: parsed });
                }
                ReadRecordResult::End => {
                    stream.accept(parsed);
                    return Ok(Row::End);
                }
                ReadRecordResult::InputEmpty if at_end => return Ok(Row::End),
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => grow(&mut self.fields),
                ReadRecordResult::OutputEndsFull => grow(&mut self.field_ends),
            }
            if parsed > PAYLOAD_BYTES_MAX || ends > COLUMNS_MAX {
                if let Some(row) = self.misquoted(&stream.pending()[..parsed]) {
                    return Ok(row);
                }
                return self.discard_row(stream, parsed);
            }
        }
    }

    /// Finds a misplaced quote in a row. If text follows a quoted field in the same line, the reader still finds the
    /// row's end.
    fn misquoted(&mut self, row: &[u8]) -> Option<Row> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let row = if self.header.is_empty() {
            row.strip_prefix(MARK).unwrap_or(row)
        } else {
            row
        };
        let found = Misquoted::find(row, self.dialect.quote, self.delimiter);
        self.is_misquoted = found.is_some();
        let (lines_before, reason) = match found? {
            Misquoted::TextBehind { opened, closed } if opened == closed => return None,
            Misquoted::TextBehind { opened, closed } => {
                let further = closed - opened;
                let lines = if further == 1 { "line" } else { "lines" };
                (
                    opened,
                    format!(
                        "a quote opens here, and text follows the one that closes it {further} {lines} below"
                    ),
                )
            }
            Misquoted::Open { line } => (line, "a quote opens here and is not closed".to_owned()),
        };
        self.core.reset();
        Some(Row::Misquoted { lines_before, reason })
    }

    /// Accepts the found row, so that the next one can come.
    pub fn accept(&mut self, stream: &mut Stream) {
        stream.accept(self.found.take().unwrap_or_default());
    }

    /// The found row as an object of strings.
    pub fn object(&self) -> Result<RowObject<'_>, String> {
        if self.is_misquoted {
            let reason = "text follows the closing quote of a field; double each quote within a quoted field, or give --quote none if \
                          quotes are plain text";
            return Err(reason.to_owned());
        }
        if self.columns != self.header.len() {
            return Err(format!(
                "the row has {} {}, and the header has {}",
                self.columns,
                if self.columns == 1 { "field" } else { "fields" },
                self.header.len()
            ));
        }
        let whole = &self.fields[..self
            .columns
            .checked_sub(1)
            .map_or(0, |last| self.field_ends[last])];
        let text = std::str::from_utf8(whole)
            .map_err(|_| "the row is not UTF-8; convert the file with `iconv -t utf-8`".to_owned())?;
        // A character that spans two fields would be valid as a whole, so the ends of each field are checked too.
        if !self.field_ends[..self.columns]
            .iter()
            .all(|end| text.is_char_boundary(*end))
        {
            return Err("the row is not UTF-8; convert the file with `iconv -t utf-8`".to_owned());
        }
        Ok(RowObject {
            header: &self.header,
            text,
            field_ends: &self.field_ends[..self.columns],
        })
    }

    fn field(&self, column: usize) -> &[u8] {
        let start = column.checked_sub(1).map_or(0, |before| self.field_ends[before]);
        &self.fields[start..self.field_ends[column]]
    }

    /// Skips a row that is too long, without keeping it in memory.
    fn discard_row(&mut self, stream: &mut Stream, parsed: usize) -> io::Result<Row> {
        let begun = &stream.pending()[..parsed];
        let lines_before = leading_line_feeds(begun);
        let excerpt = begun[..EXCERPT_BYTES_MAX.min(parsed)].to_vec();
        let mut lines = count_lines(begun);
        let mut bytes = parsed as u64;
        stream.accept(parsed);
        loop {
            let at_end = stream.pending().is_empty() && !stream.read_more()?;
            let pending = stream.pending();
            let (result, read, _, _) = self
                .core
                .read_record(pending, &mut self.fields, &mut self.field_ends);
            lines += count_lines(&pending[..read]);
            bytes += read as u64;
            stream.accept(read);
            if matches!(result, ReadRecordResult::Record | ReadRecordResult::End) || at_end {
                break;
            }
        }
        Ok(Row::TooLong {
            bytes,
            lines_before,
            lines,
            excerpt,
        })
    }
}

fn parser(quote: Quote, delimiter: u8) -> csv_core::Reader {
    let mut builder = csv_core::ReaderBuilder::new();
    builder.delimiter(delimiter);
    match quote {
        Quote::None => builder.quoting(false),
        Quote::Byte(quote) => builder.quote(quote),
    };
    builder.build()
}

fn grow<T: Clone + Default>(buffer: &mut Vec<T>) {
    buffer.resize(buffer.len() * 2, T::default());
}

/// The number of line feeds in `bytes`.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// The number of line feeds before the first other character. They are empty lines, or the second half of a CR LF whose
/// first half ended the row before.
pub(super) fn leading_line_feeds(bytes: &[u8]) -> u64 {
    let breaks = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    breaks.filter(|byte| **byte == b'\n').count() as u64
}

/// A row as an object. It is written as JSON without a copy of its fields.
#[derive(Debug)]
pub(super) struct RowObject<'a> {
    header: &'a [String],
    text: &'a str,
    field_ends: &'a [usize],
}

impl Serialize for RowObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.header.len()))?;
        let mut start = 0;
        for (name, end) in self.header.iter().zip(self.field_ends) {
            object.serialize_entry(name, &self.text[start..*end])?;
            start = *end;
        }
        object.end()
    }
}
