//! Sizes and names: lines of a file, lines of a function, files of a folder, characters of a line, names that say nothing.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::tree::{Fault, SourceFile};

/// The most lines of a source file.
pub const FILE_LINES_MAX: usize = 700;
/// The most lines of a Rust function, its signature included.
pub const FUNCTION_LINES_MAX: usize = 90;
/// The most files of one folder; folders in it do not count.
pub const FOLDER_FILES_MAX: usize = 20;
/// The most characters of a source line.
pub const LINE_CHARACTERS_MAX: usize = 140;
/// The most words of `ARCHITECTURE.md`, its diagrams and tables included: a newcomer reads it in ten minutes.
pub const ARCHITECTURE_WORDS_MAX: usize = 1_500;

const SOURCE: [&str; 9] = ["rs", "c", "h", "py", "js", "mjs", "ts", "sql", "sh"];
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "helpers", "common", "misc"];

/// The page that `make web` builds from `web/`.
const BUILT_PAGE: &str = "crates/server/dashboard";

fn is_source(file: &SourceFile) -> bool {
    SOURCE.contains(&file.extension()) && file.folder() != BUILT_PAGE
}

/// Source files with more than [`FILE_LINES_MAX`] lines.
pub fn long_files(files: &[SourceFile]) -> Vec<Fault> {
    let lines = |file: &SourceFile| file.text.lines().count();
    files
        .iter()
        .filter(|file| is_source(file) && lines(file) > FILE_LINES_MAX)
        .map(|file| {
            let message = format!(
                "{} lines, at most {FILE_LINES_MAX}; split it by noun",
                lines(file)
            );
            Fault::new(&file.path, 0, message)
        })
        .collect()
}

/// Folders with a reason: `extension/t/tpch` has one file for each query of TPC-H.
const FOLDERS_BY_NUMBER: [&str; 1] = ["extension/t/tpch"];
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

/// Rust functions with more than [`FUNCTION_LINES_MAX`] lines.
pub fn long_functions(files: &[SourceFile]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.extension() == "rs") {
        match syn::parse_file(&file.text) {
            Ok(parsed) => Functions {
                path: &file.path,
                faults: &mut faults,
            }
            .visit_file(&parsed),
            Err(error) => faults.push(Fault::new(
                &file.path,
                error.span().start().line,
                error.to_string(),
            )),
        }
    }
    faults
}

struct Functions<'a> {
    path: &'a str,
    faults: &'a mut Vec<Fault>,
}

impl Functions<'_> {
    fn check(&mut self, name: &syn::Ident, start: Span, block: &syn::Block) {
        let first = start.start().line;
        let lines = block.span().end().line + 1 - first;
        if lines > FUNCTION_LINES_MAX {
            let message =
                format!("function `{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}; split it");
            self.faults.push(Fault::new(self.path, first, message));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check(&item.sig.ident, item.sig.span(), &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.sig.ident, item.sig.span(), &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.check(&item.sig.ident, item.sig.span(), block);
        }
        visit::visit_trait_item_fn(self, item);
    }
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
        assert_eq!(long_files(&file("a.rs", &"\n".repeat(701))).len(), 1);
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

    #[test]
    fn a_method_of_91_lines_is_long() {
        let method = |lines: usize| format!("impl A {{\n/// doc\nfn a() {{{}}}\n}}", "\n".repeat(lines - 1));
        assert_eq!(long_functions(&file("a.rs", &method(90))), []);
        let faults = long_functions(&file("a.rs", &method(91)));
        assert_eq!(
            faults[0].to_string(),
            "a.rs:3: function `a` has 91 lines, at most 90; split it"
        );
    }
}
