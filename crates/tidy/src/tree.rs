//! The tree: every file that Git does not ignore.

use std::fmt;
use std::io;
use std::path::Path;

/// One file of the tree.
pub struct SourceFile {
    /// The path from the repository's root, with `/` between folders.
    pub path: String,
    /// The whole text; nothing of a file that is not UTF-8.
    pub text: String,
}

impl SourceFile {
    /// A file with this path and text.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    /// The part of the name behind its last dot, or nothing.
    pub fn extension(&self) -> &str {
        self.name()
            .rsplit_once('.')
            .map_or("", |(_, extension)| extension)
    }

    /// The name without its folder.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The folder's path, or nothing for a file at the root.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

/// All files of a repository.
pub struct Tree {
    /// The files, by path.
    pub files: Vec<SourceFile>,
}

impl Tree {
    /// Reads the repository at `root`. Files that Git ignores are left out.
    pub fn read(root: &Path) -> io::Result<Self> {
        let walk = ignore::WalkBuilder::new(root)
            .hidden(false)
            .require_git(false)
            .filter_entry(|entry| entry.file_name() != ".git")
            .build();
        let mut files = Vec::new();
        for entry in walk {
            let entry = entry.map_err(io::Error::other)?;
            if !entry.file_type().is_some_and(|kind| kind.is_file()) {
                continue;
            }
            let text = String::from_utf8(std::fs::read(entry.path())?).unwrap_or_default();
            let path = entry.path().strip_prefix(root).map_err(io::Error::other)?;
            files.push(SourceFile::new(path.to_string_lossy().replace('\\', "/"), text));
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }
}

/// A place that breaks a rule, with the remedy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The file or folder.
    pub path: String,
    /// The line, counted from 1; 0 stands for the whole file or folder.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Fault {
    /// A fault in a line of a file, or in all of it (line 0).
    pub fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}
