//! Errors of an input as a whole.

use std::io;

/// An unreadable input. A single bad item is not such an error: it becomes a rejected job.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be opened.
    #[error("{name} cannot be opened: {reason}")]
    Open {
        /// The file as it was named.
        name: String,
        /// The system's error.
        reason: io::Error,
    },
    /// It is a folder.
    #[error("{0} is a folder; name a file, or - for standard input")]
    Folder(String),
    /// The name says nothing about the format.
    #[error(
        "the name of {0} does not reveal its format: give --format jsonl, --format csv, --format tsv or --format lines"
    )]
    UnknownFormat(String),
    /// Reading failed in the middle.
    #[error("{place}: cannot be read any further: {reason}")]
    Read {
        /// The file, and the line after the last read one.
        place: String,
        /// The error of the system or the decompressor.
        reason: io::Error,
    },
    /// Standard input can be read only alone.
    #[error("- is standard input, and cannot be read together with files; run it apart")]
    StdinAmongFiles,
    /// Files of one input have one format.
    #[error("{first} and {other} have different formats; give --format, or run them apart")]
    MixedFormats {
        /// A file.
        first: String,
        /// The first one with another format.
        other: String,
    },
    /// A pattern without files.
    #[error("the pattern {pattern} names no input: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The problem.
        reason: String,
    },
    /// More files than an input may have.
    #[error("the input has {files} files, and at most {files_max} are possible: concatenate some")]
    TooManyFiles {
        /// How many there are.
        files: usize,
        /// The limit.
        files_max: usize,
    },
    /// The file has one document over many lines, but the format has one value in each line.
    #[error(
        "{0}:1: looks like one JSON document over many lines; the format is one JSON value in each line: convert it with `jq -c '.[]'`"
    )]
    WholeDocument(String),
    /// Options for rows that do not match.
    #[error("{0}")]
    Dialect(String),
    /// A row with an unknown end, because its quotes do not match.
    #[error(
        "{place}: {reason}; close the quote, double each quote within a quoted field, or give --quote none if quotes are plain text"
    )]
    Quotes {
        /// The file and the line where the quote opens.
        place: String,
        /// The problem.
        reason: String,
    },
    /// Text in another encoding.
    #[error("{name} is {encoding}, not UTF-8: convert it with `iconv -f {encoding} -t utf-8`")]
    Encoding {
        /// The file as it was named.
        name: String,
        /// The encoding, as `iconv` calls it.
        encoding: &'static str,
    },
    /// The first row of a CSV file is not a header.
    #[error("{name}:1: {reason}; the first row names the columns")]
    Header {
        /// The file as it was named.
        name: String,
        /// The problem.
        reason: String,
    },
}
