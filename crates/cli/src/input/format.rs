//! The form of the items in an input.

use std::path::Path;

/// The format of items in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON value a line; blank lines are skipped.
    Jsonl,
    /// One JSON array whose elements are the items. Without an array, like jsonl.
    Json,
    /// Comma-separated; the first row names the columns, and every other row is an object of strings.
    Csv,
    /// Like csv, separated by tabs.
    Tsv,
    /// Every line is a string.
    Lines,
}

impl Format {
    /// The format by a file's name, if the name tells it. The suffixes `.gz` and `.zst` are skipped.
    pub fn of_path(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "gz" | "zst" => Format::of_path(Path::new(path.file_stem()?)),
            "json" => Some(Format::Json),
            "jsonl" | "ndjson" => Some(Format::Jsonl),
            "csv" => Some(Format::Csv),
            "tsv" | "tab" => Some(Format::Tsv),
            "txt" | "text" | "log" | "lst" => Some(Format::Lines),
            _ => None,
        }
    }

    /// Reports whether the file's name promises one JSON document instead of a value in each line.
    pub fn promises_document(path: &Path) -> bool {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_ascii_lowercase();
        let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
        name.ends_with(".json")
    }

    /// The name, as in `--format csv`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Tsv => "tsv",
            Format::Lines => "lines",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_reveals_the_format_despite_compression() {
        for (name, format) in [
            ("a.jsonl", Some(Format::Jsonl)),
            ("a.NDJSON.gz", Some(Format::Jsonl)),
            ("dir.csv/a.tsv.zst", Some(Format::Tsv)),
            ("a.json", Some(Format::Json)),
            ("a.csv", Some(Format::Csv)),
            ("a.txt", Some(Format::Lines)),
            ("a.gz", None),
            ("a", None),
            ("dir.csv/a", None),
        ] {
            assert_eq!(Format::of_path(Path::new(name)), format, "{name}");
        }
    }
}
