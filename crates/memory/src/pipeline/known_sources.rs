//! The sources that the knowledge base has at the beginning of an ingestion: which files are unchanged, and which have moved.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::MemoryError;
use crate::pipeline::{Ingestion, plan};
use crate::source::{Content, Folders};
use crate::store::{Change, KnowledgeStore, NewSource, Source, SourceFailure, blocking};

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
    /// The sources that could not be read, with the paths from the root of those that are files.
    failed: HashMap<String, Option<String>>,
    /// Their names, by these paths.
    failed_at: HashMap<String, Vec<String>>,
    /// The earlier names and places of the sources that moved in this ingestion.
    moved: HashSet<String>,
    /// The settings of this ingestion.
    settings: String,
    /// Whether all files are to be read in any case.
    reads_all: bool,
    now: gristmill_model::Timestamp,
    /// Stamps of files that are not written yet.
    seen: Vec<Change>,
    folders: Folders,
}

impl KnownSources {
    /// Reads the sources of a knowledge base, which knows of these failures.
    pub(super) async fn of(
        store: &dyn KnowledgeStore,
        ingestion: &Ingestion,
        failures: &[SourceFailure],
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
        for failure in failures {
            known.failed.insert(failure.source.clone(), failure.place.clone());
            let Some(place) = &failure.place else { continue };
            let name = || failure.source.clone();
            known.by_place.entry(place.clone()).or_insert_with(name);
            known.failed_at.entry(place.clone()).or_default().push(name());
        }
        Ok(known)
    }

    /// The name of the source that an input is, or becomes, and its path from the root if it is a file. A file keeps the name that its
    /// source has. Another file gets the name as the user wrote it, unless that is the name of another file's source, or of another
    /// file that could not be read: then it is its path from the root, so that both are kept.
    pub(super) async fn name_of(
        &mut self,
        written: Option<String>,
        file: Option<&Content>,
    ) -> (Option<String>, Option<String>) {
        let Some(written) = written else {
            return (None, None);
        };
        let Some((file, place)) = file.and_then(|file| Some((file, self.place_of(&written, file)?))) else {
            return (Some(written), None);
        };
        let known = self.files.get(&written);
        let name = if known.and_then(Source::place) == Some(Path::new(&place)) {
            written
        } else if let Some(own) = self.by_place.get(&place) {
            own.clone()
        } else {
            match known {
                Some(known) if is_another_file(known, file).await => place.clone(),
                None if self.has_failed_elsewhere(&written, &place, file) => place.clone(),
                _ => written,
            }
        };
        (Some(name), Some(place))
    }

    /// The path of a file from the root. If its folder is gone, the file is known by the path that it had.
    fn place_of(&mut self, written: &str, file: &Content) -> Option<String> {
        let place = self.folders.place(file);
        place.or_else(|| self.by_place.contains_key(written).then(|| written.to_owned()))
    }

    /// Whether another file with this name could not be read, and may still be there. One that is gone from its folder may be this
    /// one; one whose folder is gone may be on a disk that is away.
    fn has_failed_elsewhere(&self, name: &str, place: &str, file: &Content) -> bool {
        let failed = self.failed.get(name).and_then(Option::as_deref);
        let Some(failed) = failed.filter(|failed| *failed != place).map(Path::new) else {
            return false;
        };
        is_same_file(failed, file).map_or_else(|| !is_gone_from_folder(failed), |is_same| !is_same)
    }

    /// The names of the failures that are over when this input is read: its own, and those of its file under other names. An input
    /// without a file is not the file that failed.
    pub(super) fn failures_of(&self, name: &str, place: Option<&str>) -> BTreeSet<String> {
        let own = self.failed.get(name);
        let is_own = own.is_some_and(|failed| failed.is_none() || place.is_some());
        let others = place.into_iter().flat_map(|place| {
            let named = self.failed_at.get(place).into_iter().flatten();
            named.map(String::as_str).chain([place])
        });
        let others = others.filter(|other| self.failed.contains_key(*other));
        let names = others.chain(is_own.then_some(name));
        names.map(str::to_owned).collect()
    }

    /// The path with which a failure is recorded. What failed before and was no file is retried as a file of its name, which need not
    /// be there.
    pub(super) fn failed_place(&self, name: &str, place: Option<String>) -> Option<String> {
        let was_file = self.failed.get(name).is_none_or(Option::is_some);
        place.filter(|place| was_file || Path::new(place).exists())
    }

    /// Whether the failure of a name is that of a file.
    pub(super) fn has_failed_file(&self, name: &str) -> bool {
        self.failed.get(name).is_some_and(Option::is_some)
    }

    /// Notes that a source cannot be read, and that these failures are over.
    pub(super) fn note_failure(&mut self, over: &BTreeSet<String>, failed: Option<(&str, Option<&str>)>) {
        over.iter().for_each(|name| {
            self.failed.remove(name);
        });
        let failed = failed.map(|(name, place)| (name.to_owned(), place.map(str::to_owned)));
        self.failed.extend(failed);
    }

    /// Whether a file is one of the sources, and unchanged by its stamp.
    pub(super) fn is_unchanged(&mut self, name: &str, file: &Content) -> bool {
        let known = self.files.get(name).filter(|_| !self.reads_all);
        known.is_some_and(|source| {
            let stamp = source.stamp.as_deref();
            source.complete
                && source.settings == self.settings
                && stamp.is_some_and(|stamp| !stamp.starts_with(Content::UNSETTLED))
                && stamp == file.stamp_in(self.now, &mut self.folders).as_deref()
        })
    }

    /// The name of the source that a new file is, because it has moved: that source's file had this content and format, and is gone.
    pub(super) fn moved_from(&mut self, new: &NewSource) -> Option<String> {
        let place = Content::place_of(new.stamp.as_deref()?)?;
        let names = self.by_digest.get_mut(&new.digest)?;
        let files = &self.files;
        let gone = |name: &String| {
            files
                .get(name)
                .is_some_and(|source| source.format == new.format && is_gone(source))
        };
        let at = names.iter().position(gone)?;
        let name = names.swap_remove(at);
        let source = self.files.remove(&name)?;
        if let Some(earlier) = source.place().and_then(Path::to_str) {
            self.by_place.remove(earlier);
            self.moved.insert(earlier.to_owned());
        }
        self.by_place.insert(place.to_owned(), new.name.clone());
        self.moved.insert(name.clone());
        Some(name)
    }

    /// Whether an input is the earlier name of a source that moved in this ingestion. A file that is there is never one.
    pub(super) fn has_moved(&self, name: &str, file: &Content) -> bool {
        let Content::File(path) = file else { return false };
        self.moved.contains(name) && matches!(path.try_exists(), Ok(false))
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
    let place = source.place();
    place.is_some_and(|place| matches!(place.try_exists(), Ok(false)))
}

/// Whether a file with the name of a source, but with another place, is another file than the source's. The source's file may be on a
/// disk that is away, so that only the same content shows that it has moved.
async fn is_another_file(source: &Source, file: &Content) -> bool {
    let (Some(place), Content::File(path)) = (source.place(), file) else {
        return false;
    };
    if let Some(is_same) = is_same_file(place, file) {
        return !is_same;
    }
    if !path.exists() {
        return true;
    }
    let content = file.clone();
    let digest = blocking(move || content.digest()).await;
    digest.map_or(true, |digest| digest != source.digest)
}

/// Whether a path and a file are one file; `None` if one of them is not there. One file may have two paths, such as behind a link or a
/// bind mount.
fn is_same_file(place: &Path, file: &Content) -> Option<bool> {
    let Content::File(path) = file else { return None };
    let known = std::fs::metadata(place).ok()?;
    let new = std::fs::metadata(path).ok()?;
    Some((known.dev(), known.ino()) == (new.dev(), new.ino()))
}

/// Whether a file is gone, and its folder is there.
fn is_gone_from_folder(place: &Path) -> bool {
    matches!(place.try_exists(), Ok(false)) && place.parent().is_some_and(Path::is_dir)
}
