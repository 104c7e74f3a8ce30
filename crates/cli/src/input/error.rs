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
    /// Reading failed half-way.
    #[error("{name}:{line}: cannot be read any further: {reason}")]
    Read {
        /// The file as it was named.
        name: String,
        /// The line after the last one that was read.
        line: u64,
        /// The error of the system or the decompressor.
        reason: io::Error,
    },
    /// The name promises a compression that the content does not have.
    #[error("{name} is not {expected}-compressed, although its name says so; rename it, or compress it")]
    NotCompressed {
        /// The file as it was named.
        name: String,
        /// `gzip` or `zstd`.
        expected: &'static str,
    },
    /// A document over many lines, where one value a line is expected.
    #[error(
        "{0}:1: looks like one JSON document over many lines; the format is one JSON value in each line: convert it with `jq -c '.[]'`"
    )]
    WholeDocument(String),
    /// The first row of a CSV file is no header.
    #[error("{name}:1: {reason}; the first row names the columns")]
    Header {
        /// The file as it was named.
        name: String,
        /// The problem.
        reason: String,
    },
}
