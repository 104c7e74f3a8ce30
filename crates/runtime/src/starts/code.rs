//! The code that the processes of a script have loaded, and whether it has changed since.
//!
//! Compared are the contents of the script and of its own modules: those that a process says it has imported, at its start or later,
//! and in JavaScript those that the text [imports](super::imports). Where a process
//! that starts finds them changed, it begins a new generation, and the slots replace the processes of the older ones: old and
//! new code run side by side only while jobs that have begun end.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::limits::CODE_FILES_MAX;

/// What a file held, and by what it is seen without a reading that it still does.
#[derive(Debug, Clone, Copy)]
struct Contents {
    digest: u64,
    /// Device, inode, size, and the times of the last changes in nanoseconds.
    marks: [i128; 5],
}

impl Contents {
    /// What a file holds now. `None` where it cannot be read.
    fn read(path: &Path, before: Option<&Contents>) -> Option<Contents> {
        let marks = marks(&std::fs::metadata(path).ok()?);
        if let Some(before) = before.filter(|before| before.marks == marks) {
            return Some(*before);
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(&std::fs::read(path).ok()?);
        Some(Contents {
            digest: hasher.finish(),
            marks,
        })
    }
}

fn marks(metadata: &Metadata) -> [i128; 5] {
    let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    [
        metadata.dev().into(),
        metadata.ino().into(),
        metadata.size().into(),
        nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    ]
}

/// The contents of the files at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(BTreeMap<PathBuf, Option<Contents>>);

impl Seen {
    /// Whether the files, of which there are some, are the same and hold the same.
    pub fn is_as(&self, other: &Seen) -> bool {
        !self.0.is_empty() && self.0.keys().eq(other.0.keys()) && self.changed(other).is_empty()
    }

    /// The files whose contents differ in `other`, of those that both know.
    fn changed(&self, other: &Seen) -> Vec<PathBuf> {
        let digest = |contents: &Option<Contents>| contents.map(|contents| contents.digest);
        let differs = |(path, contents): &(&PathBuf, &Option<Contents>)| {
            let other = other.0.get(*path);
            other.is_some_and(|other| digest(other) != digest(contents))
        };
        self.0
            .iter()
            .filter(differs)
            .map(|(path, _)| path.clone())
            .collect()
    }
}

/// The code of one script.
#[derive(Debug)]
pub(crate) struct Code {
    /// The files as the newest process has loaded them.
    loaded: Seen,
    generation: u64,
}

impl Code {
    /// The code of a script that no process has loaded yet.
    pub fn new(script: &Path) -> Code {
        Code {
            loaded: Seen(BTreeMap::from([(script.to_owned(), None)])),
            generation: 0,
        }
    }

    /// The generation of the newest process.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The files as they are now.
    pub fn look(&self) -> Seen {
        let now = |(path, before): (&PathBuf, &Option<Contents>)| {
            (path.clone(), Contents::read(path, before.as_ref()))
        };
        Seen(self.loaded.0.iter().map(now).collect())
    }

    /// Those of the files that have changed since a process loaded them, if any has.
    pub fn changed(&self, now: &Seen) -> Vec<PathBuf> {
        match self.generation {
            0 => Vec::new(),
            _ => self.loaded.changed(now),
        }
    }

    /// A process has loaded the files, which were as in `before` when it started, and says that these are its own. Returns the
    /// files by whose change it begins a new generation.
    pub fn loaded(&mut self, before: &Seen, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let changed = self.changed(before);
        for file in files {
            if self.loaded.0.len() >= CODE_FILES_MAX {
                break;
            }
            self.loaded.0.entry(file).or_default();
        }
        // A file that a process writes while it imports is none that somebody else has changed.
        self.loaded = self.look();
        if self.generation == 0 || !changed.is_empty() {
            self.generation += 1;
        }
        changed
    }

    /// A process has imported these files, too, while it ran jobs. They count as loaded as they are now.
    pub fn imported(&mut self, files: Vec<PathBuf>) {
        for file in files {
            if self.loaded.0.len() >= CODE_FILES_MAX {
                return;
            }
            let now = |path: &PathBuf| Contents::read(path, None);
            self.loaded.0.entry(file).or_insert_with_key(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_finds_its_files_changed_begins_a_generation() {
        let folder = tempfile::tempdir().unwrap();
        let [script, module] = ["script.py", "module.py"].map(|name| folder.path().join(name));
        let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
        write(&script, "a");
        write(&module, "a");
        let mut code = Code::new(&script);
        let before = code.look();
        assert_eq!(
            code.loaded(&before, vec![module.clone()]),
            [""; 0].map(PathBuf::from)
        );
        assert_eq!((code.generation(), code.changed(&code.look())), (1, vec![]));
        // It is written again, with the same text.
        write(&module, "a");
        assert_eq!(code.changed(&code.look()), Vec::<PathBuf>::new());
        write(&module, "b");
        assert_eq!(code.changed(&code.look()), std::slice::from_ref(&module));
        let before = code.look();
        assert_eq!(code.loaded(&before, Vec::new()), std::slice::from_ref(&module));
        assert_eq!((code.generation(), code.changed(&code.look())), (2, vec![]));
        // A process writes a file of its own while it imports.
        let before = code.look();
        write(&module, "c");
        assert_eq!(code.loaded(&before, Vec::new()), Vec::<PathBuf>::new());
        assert_eq!(code.generation(), 2);
        // One that a job imports is loaded as it is then.
        let late = folder.path().join("late.py");
        write(&late, "a");
        code.imported(vec![late.clone(), module.clone()]);
        assert_eq!(code.changed(&code.look()), Vec::<PathBuf>::new());
        write(&late, "b");
        assert_eq!(code.changed(&code.look()), std::slice::from_ref(&late));
        // A script that is gone has changed.
        std::fs::remove_file(&script).unwrap();
        assert_eq!(code.changed(&code.look()), [late, script]);
    }
}
