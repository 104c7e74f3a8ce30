//! The sources that the knowledge base has at the beginning of an ingestion: which files are unchanged, and which have moved.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::error::MemoryError;
use crate::pipeline::{Ingestion, plan};
use crate::source::Content;
use crate::store::{Change, KnowledgeStore, NewSource, Source};

/// Stamps that are written in one transaction.
const STAMPS_AT_ONCE: usize = 1_000;

/// The complete sources at the beginning of an ingestion.
#[derive(Debug, Default)]
pub(super) struct KnownSources {
    /// Those that are files, by their names.
    files: HashMap<String, Source>,
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
        for source in sources.filter(|source| source.complete && source.stamp.is_some()) {
            let names = known.by_digest.entry(source.digest.clone()).or_default();
            names.push(source.name.clone());
            known.files.insert(source.name.clone(), source);
        }
        Ok(known)
    }

    /// Whether a file is one of the sources, and unchanged by its stamp.
    pub(super) fn is_unchanged(&self, name: &str, file: &Content) -> bool {
        let known = self.files.get(name).filter(|_| !self.reads_all);
        known.is_some_and(|source| {
            let stamp = source.stamp.as_deref();
            source.settings == self.settings
                && stamp != Some(Content::UNSETTLED)
                && stamp == file.stamp(self.now).as_deref()
        })
    }

    /// The name of the source with the content and format of a new file, if its own file is gone: it has moved.
    pub(super) fn moved_from(&mut self, new: &NewSource) -> Option<String> {
        new.stamp.as_ref()?;
        let names = self.by_digest.get_mut(&new.digest)?;
        let files = &self.files;
        let gone = |name: &String| {
            files.get(name).is_some_and(|source| source.format == new.format)
                && matches!(Path::new(name).try_exists(), Ok(false))
        };
        let at = names.iter().position(gone)?;
        let name = names.swap_remove(at);
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
