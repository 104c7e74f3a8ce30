//! The sources that the knowledge base has at the beginning of an ingestion: which files are unchanged, and which have moved.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::error::MemoryError;
use crate::pipeline::{Ingestion, plan};
use crate::source::Content;
use crate::store::{Change, KnowledgeStore, NewSource, Source};

/// Stamps that are written in one transaction.
const STAMPS_AT_ONCE: usize = 1_000;

/// The sources at the beginning of an ingestion that are files.
#[derive(Debug, Default)]
pub(super) struct KnownSources {
    /// The sources, by their names.
    files: HashMap<String, Source>,
    /// Their names, by the paths of their files from the root.
    by_place: HashMap<String, String>,
    /// Their names, by the digests of their contents.
    by_digest: HashMap<String, Vec<String>>,
    /// The earlier names of the sources that moved in this ingestion.
    moved: HashSet<String>,
    /// The settings of this ingestion.
    settings: String,
    /// Whether all files are to be read in any case.
    reads_all: bool,
    now: gristmill_model::Timestamp,
    /// Stamps of files that are not written yet.
    seen: Vec<Change>,
}

impl KnownSources {
    /// Reads the sources of a knowledge base.
    pub(super) async fn of(
        store: &dyn KnowledgeStore,
        ingestion: &Ingestion,
    ) -> Result<KnownSources, MemoryError> {
        let options = &ingestion.options;
        let mut known = KnownSources {
            settings: plan::settings(options, &*ingestion.extractor),
            reads_all: options.replace || options.retry_failed,
            now: ingestion.engine.clock().now(),
            ..KnownSources::default()
        };
        let sources = store.sources().await?.into_iter();
        for source in sources.filter(|source| source.stamp.is_some()) {
            if source.complete {
                let names = known.by_digest.entry(source.digest.clone()).or_default();
                names.push(source.name.clone());
            }
            if let Some(place) = source.place() {
                known
                    .by_place
                    .insert(place.display().to_string(), source.name.clone());
            }
            known.files.insert(source.name.clone(), source);
        }
        Ok(known)
    }

    /// The name of the source that a file is, or becomes: the path as the user wrote it, unless that names another file, which was
    /// named from another folder and is still there. Then it is the path from the root, or the name that the file has.
    pub(super) fn name_of(&self, written: String, file: Option<&Content>) -> String {
        let Some(known) = self.files.get(&written) else {
            return written;
        };
        let Some(place) = file.and_then(Content::place) else {
            return written;
        };
        match self.by_place.get(&place) {
            Some(own) => own.clone(),
            None if is_another_file(known, &place) => place,
            None => written,
        }
    }

    /// Whether a file is one of the sources, and unchanged by its stamp.
    pub(super) fn is_unchanged(&self, name: &str, file: &Content) -> bool {
        let known = self.files.get(name).filter(|_| !self.reads_all);
        known.is_some_and(|source| {
            let stamp = source.stamp.as_deref();
            source.complete
                && source.settings == self.settings
                && stamp.is_some_and(|stamp| !stamp.starts_with(Content::UNSETTLED))
                && stamp == file.stamp(self.now).as_deref()
        })
    }

    /// The name of the source that a new file is: the same file was named from another folder, or a file with this content and
    /// format is gone, so that it has moved.
    pub(super) fn moved_from(&mut self, new: &NewSource) -> Option<String> {
        let place = Content::place_of(new.stamp.as_deref()?)?;
        let name = match self.by_place.remove(place) {
            Some(name) => name,
            None => {
                let names = self.by_digest.get_mut(&new.digest)?;
                let files = &self.files;
                let gone = |name: &String| {
                    files
                        .get(name)
                        .is_some_and(|source| source.format == new.format && is_gone(source))
                };
                let at = names.iter().position(gone)?;
                names.swap_remove(at)
            }
        };
        self.files.remove(&name);
        self.moved.insert(name.clone());
        Some(name)
    }

    /// Whether this was the name of a source that moved in this ingestion.
    pub(super) fn has_moved(&self, name: &str) -> bool {
        self.moved.contains(name)
    }

    /// Notes the stamp of a file that was read and is unchanged.
    pub(super) async fn seen(
        &mut self,
        store: &dyn KnowledgeStore,
        seen: Option<Change>,
    ) -> Result<(), MemoryError> {
        self.seen.extend(seen);
        if self.seen.len() >= STAMPS_AT_ONCE {
            self.note_seen(store).await?;
        }
        Ok(())
    }

    /// Writes the stamps that are not written yet.
    pub(super) async fn note_seen(&mut self, store: &dyn KnowledgeStore) -> Result<(), MemoryError> {
        if !self.seen.is_empty() {
            store.apply(std::mem::take(&mut self.seen)).await?;
        }
        Ok(())
    }
}

/// Whether the file of a source is gone.
fn is_gone(source: &Source) -> bool {
    let place = source.place().unwrap_or(Path::new(&source.name));
    matches!(place.try_exists(), Ok(false))
}

/// Whether the file of a source is there, and is not the one with this path from the root.
fn is_another_file(source: &Source, place: &str) -> bool {
    let Some(Ok(known)) = source.place().map(Path::canonicalize) else {
        return false;
    };
    Path::new(place).canonicalize().is_ok_and(|place| place != known)
}
