//! Names the places of items in messages: the file, and the line or element.

use std::sync::{Arc, Mutex, PoisonError};

/// A file of an input with several files, or of an input that is not read line by line.
#[derive(Debug, Clone)]
struct File {
    name: Arc<str>,
    /// The number of the input's lines before the file.
    lines_before: u64,
    /// The number of the file's lines that are not in the input: a repeated header.
    lines_skipped: u64,
    /// The file is a JSON array. Its elements are counted instead of lines.
    is_array: bool,
}

/// The files of the lines of an input. The reader adds each file when it opens it.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Arc<Mutex<Vec<File>>>);

impl Places {
    /// Adds a file with which the input continues.
    pub fn add(&self, name: Arc<str>, lines_before: u64, lines_skipped: u64, is_array: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(File {
            name,
            lines_before,
            lines_skipped,
            is_array,
        });
    }

    /// The place of a line, counted from 1, of the input with this name.
    pub fn show(&self, input: &str, line: u64) -> String {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = files.iter().rfind(|file| file.lines_before < line) else {
            return format!("{input}:{line}");
        };
        let line = line - file.lines_before + file.lines_skipped;
        if file.is_array {
            format!("{}, element {line}", file.name)
        } else {
            format!("{}:{line}", file.name)
        }
    }
}
