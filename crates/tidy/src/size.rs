//! Sizes and names: lines of a file, files of a folder, characters of a line, names that say nothing.

use std::collections::BTreeMap;

use crate::tree::{Fault, SourceFile};

/// The most lines of a source file.
pub const FILE_LINES_MAX: usize = 700;
/// The most files of one folder; folders in it do not count.
pub const FOLDER_FILES_MAX: usize = 20;
/// The most characters of a source line.
pub const LINE_CHARACTERS_MAX: usize = 140;
/// The most words of `ARCHITECTURE.md`, its diagrams and tables included: a newcomer reads it in ten minutes.
pub const ARCHITECTURE_WORDS_MAX: usize = 1_500;

const SOURCE: [&str; 11] = ["rs", "c", "h", "py", "js", "mjs", "ts", "tsx", "css", "sql", "sh"];
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "helpers", "common", "misc"];

/// The page that `make web` builds from `web/`.
pub(crate) const BUILT_PAGE: &str = "crates/server/dashboard";

fn is_source(file: &SourceFile) -> bool {
    SOURCE.contains(&file.extension()) && file.folder() != BUILT_PAGE
}

/// Files that are longer, each with a limit of its own, which may only fall.
const LONG_FILES: [(&str, usize); 1] = [("web/src/styles/parts.css", 1_248)];

/// Source files with more than [`FILE_LINES_MAX`] lines.
pub fn long_files(files: &[SourceFile]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| is_source(file)) {
        let own = LONG_FILES.iter().find(|(path, _)| *path == file.path);
        let (lines, lines_max) = (
            file.text.lines().count(),
            own.map_or(FILE_LINES_MAX, |(_, max)| *max),
        );
        if lines > lines_max {
            let message = format!("{lines} lines, at most {lines_max}; split it by noun");
            faults.push(Fault::new(&file.path, 0, message));
        }
        if own.is_some() && lines <= FILE_LINES_MAX {
            faults.push(Fault::new(
                &file.path,
                0,
                "it is short enough; delete its own limit",
            ));
        }
    }
    faults
}

/// Folders with a reason: `extension/t/tpch` has one file for each query of TPC-H, `pg_regress` takes
/// all its files from two folders, and each finding is a script of one folder.
const FOLDERS_BY_NUMBER: [&str; 4] = [
    "extension/t/tpch",
    "extension/sql",
    "extension/expected",
    "findings",
];
/// `pg_regress` prints these statements into its expected output, a line as it stands.
const RECORDED_STATEMENTS: &str = "extension/sql";

/// Source lines with more than [`LINE_CHARACTERS_MAX`] characters.
pub fn wide_lines(files: &[SourceFile]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files
        .iter()
        .filter(|file| is_source(file) && file.folder() != RECORDED_STATEMENTS)
    {
        for (at, line) in file.text.lines().enumerate() {
            let width = line.chars().count();
            if width > LINE_CHARACTERS_MAX {
                let message = format!("{width} characters, at most {LINE_CHARACTERS_MAX}; break the line");
                faults.push(Fault::new(&file.path, at + 1, message));
            }
        }
    }
    faults
}

/// Folders with more than [`FOLDER_FILES_MAX`] files.
pub fn full_folders(files: &[SourceFile]) -> Vec<Fault> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for file in files {
        *counts.entry(file.folder()).or_default() += 1;
    }
    counts
        .into_iter()
        .filter(|(folder, count)| *count > FOLDER_FILES_MAX && !FOLDERS_BY_NUMBER.contains(folder))
        .map(|(folder, count)| {
            Fault::new(
                folder,
                0,
                format!("{count} files, at most {FOLDER_FILES_MAX}; group them in folders"),
            )
        })
        .collect()
}

/// `ARCHITECTURE.md` with more than [`ARCHITECTURE_WORDS_MAX`] words. Lines of diagrams and tables are no words.
pub fn long_architecture(files: &[SourceFile]) -> Vec<Fault> {
    let is_word = |word: &&str| word.contains(char::is_alphanumeric);
    let words = |file: &SourceFile| file.text.split_whitespace().filter(is_word).count();
    files
        .iter()
        .filter(|file| file.path == "ARCHITECTURE.md" && words(file) > ARCHITECTURE_WORDS_MAX)
        .map(|file| {
            let message = format!(
                "{} words, at most {ARCHITECTURE_WORDS_MAX}; move details to the head of the module",
                words(file)
            );
            Fault::new(&file.path, 0, message)
        })
        .collect()
}

/// Files and folders whose name names no subject.
pub fn empty_names(files: &[SourceFile]) -> Vec<Fault> {
    let says_nothing = |part: &str| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part));
    files
        .iter()
        .filter(|file| is_source(file) && file.path.split('/').any(says_nothing))
        .map(|file| {
            Fault::new(
                &file.path,
                0,
                "the name names no subject; call it by the noun that it holds",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Vec<SourceFile> {
        vec![SourceFile::new(path, text)]
    }

    #[test]
    fn a_file_of_701_lines_is_long() {
        assert_eq!(long_files(&file("a.rs", &"\n".repeat(700))), []);
        assert_eq!(long_files(&file("a.tsx", &"\n".repeat(701))).len(), 1);
    }

    #[test]
    fn a_limit_of_its_own_goes_when_a_file_is_short_enough() {
        let (path, lines_max) = LONG_FILES[0];
        assert_eq!(long_files(&file(path, &"\n".repeat(lines_max))), []);
        assert_eq!(long_files(&file(path, &"\n".repeat(lines_max + 1))).len(), 1);
        assert_eq!(long_files(&file(path, &"\n".repeat(FILE_LINES_MAX))).len(), 1);
    }

    #[test]
    fn a_line_is_measured_in_characters() {
        assert_eq!(wide_lines(&file("a.sql", &"ä".repeat(140))), []);
        assert_eq!(
            wide_lines(&file("a.sql", &format!("\n{}", "ä".repeat(141))))[0].line,
            2
        );
    }

    #[test]
    fn an_architecture_of_1501_words_is_long() {
        let architecture = |words| file("ARCHITECTURE.md", &"| a -> ".repeat(words));
        assert_eq!(long_architecture(&architecture(1_500)), []);
        assert_eq!(long_architecture(&architecture(1_501)).len(), 1);
    }

    #[test]
    fn a_folder_of_21_files_is_full() {
        let files = |count| {
            (0..count)
                .map(|k| SourceFile::new(format!("a/b/{k}.rs"), ""))
                .collect::<Vec<_>>()
        };
        assert_eq!(full_folders(&files(20)), []);
        assert_eq!(full_folders(&files(21))[0].path, "a/b");
    }

    #[test]
    fn a_folder_of_helpers_names_no_subject() {
        assert_eq!(empty_names(&file("a/helpers/time.rs", "")).len(), 1);
        assert_eq!(empty_names(&file("a/utils.py", "")).len(), 1);
        assert_eq!(empty_names(&file("a/commonplace.rs", "")), []);
    }
}
