//! The code that the processes of a script have loaded, and its changes since then.
//!
//! The contents of the script and of its own modules are compared: modules that a process reports as imported, at its
//! start or later, and in JavaScript those that the text [imports](super::imports). If a starting process finds them
//! changed, it begins a new generation, and the slots replace the processes of older ones. Old and new code run side by
//! side only until running jobs have ended.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::limits::CODE_FILES_MAX;

/// The contents of a file, and marks that show without a reading that it still has them.
#[derive(Debug, Clone, Copy)]
struct Contents {
    digest: u64,
    /// Device, inode, size, and the times of the last changes in nanoseconds.
    marks: [i128; 5],
}

impl Contents {
    /// The current contents of a file. `None` if it cannot be read.
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

/// The contents of the files at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(BTreeMap<PathBuf, Option<Contents>>);

impl Seen {
    /// Reports whether the files are the same with the same contents, and there is at least one.
    pub fn is_as(&self, other: &Seen) -> bool {
        !self.0.is_empty() && self.0.keys().eq(other.0.keys()) && self.changed(other).is_empty()
    }

    /// The files that both know and whose contents differ in `other`.
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

    /// The current files.
    pub fn look(&self) -> Seen {
        let now = |(path, before): (&PathBuf, &Option<Contents>)| {
            (path.clone(), Contents::read(path, before.as_ref()))
        };
        Seen(self.loaded.0.iter().map(now).collect())
    }

    /// The files that have changed since a process loaded them.
    pub fn changed(&self, now: &Seen) -> Vec<PathBuf> {
        match self.generation {
            0 => Vec::new(),
            _ => self.loaded.changed(now),
        }
    }

    /// Notes that a process has loaded its files, which were as in `before` at its start. Returns the changed files
    /// that begin a new generation.
    pub fn loaded(&mut self, before: &Seen, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let changed = self.changed(before);
        for file in files {
            if self.loaded.0.len() >= CODE_FILES_MAX {
                break;
            }
            self.loaded.0.entry(file).or_default();
        }
        // A file that a process writes during its import does not count as changed by somebody else.
        self.loaded = self.look();
        if self.generation == 0 || !changed.is_empty() {
            self.generation += 1;
        }
        changed
    }

    /// Notes that a process has also imported these files while it ran jobs. Their current contents count as loaded.
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
        // The file is written again with the same text.
        write(&module, "a");
        assert_eq!(code.changed(&code.look()), Vec::<PathBuf>::new());
        write(&module, "b");
        assert_eq!(code.changed(&code.look()), std::slice::from_ref(&module));
        let before = code.look();
        assert_eq!(code.loaded(&before, Vec::new()), std::slice::from_ref(&module));
        assert_eq!((code.generation(), code.changed(&code.look())), (2, vec![]));
        // A process writes a file of its own during its import.
        let before = code.look();
        write(&module, "c");
        assert_eq!(code.loaded(&before, Vec::new()), Vec::<PathBuf>::new());
        assert_eq!(code.generation(), 2);
        // A file that a job imports is loaded with its contents at that time.
        let late = folder.path().join("late.py");
        write(&late, "a");
        code.imported(vec![late.clone(), module.clone()]);
        assert_eq!(code.changed(&code.look()), Vec::<PathBuf>::new());
        write(&late, "b");
        assert_eq!(code.changed(&code.look()), std::slice::from_ref(&late));
        // A missing script has changed.
        std::fs::remove_file(&script).unwrap();
        assert_eq!(code.changed(&code.look()), [late, script]);
    }
}
