//! Finds the sources of an ingestion from the command line.

use std::collections::BTreeSet;
use std::fs::{File, FileType};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use gristmill_memory::limits::SOURCE_BYTES_MAX;
use gristmill_memory::pipeline::{Input, IntoInput, NewInput};
use gristmill_memory::source::{Content, Folders, Format};
use gristmill_memory::{Change, Memory, MemoryError};

use super::pipe;
use crate::span::show_number_of;

/// The largest number of files in one ingestion.
const FILES_MAX: usize = 100_000;

/// The largest depth of folders.
const FOLDER_DEPTH_MAX: usize = 32;

/// Bytes from which a mail without an extension is recognised.
const MAIL_BYTES: u64 = 8 << 10;

/// The extensions of sources in a folder.
const ENDINGS: [&str; 27] = [
    "ass",
    "dfxp",
    "docx",
    "eml",
    "htm",
    "html",
    "ics",
    "ipynb",
    "json",
    "jsonl",
    "log",
    "lrc",
    "markdown",
    "mbox",
    "md",
    "ndjson",
    "org",
    "pdf",
    "sbv",
    "srt",
    "ssa",
    "ttml",
    "txt",
    "vtt",
    "weechatlog",
    "xml",
    "zip",
];

/// The extensions of files that are sources only if their first bytes show it.
const AMBIGUOUS_ENDINGS: [&str; 4] = ["json", "log", "xml", "zip"];

/// A source on the command line.
#[derive(Debug)]
pub enum Source {
    /// A file. It is read when its turn comes.
    File(PathBuf, Option<Format>),
    /// A pipe, which can be read only once.
    Piped(Input),
}

impl IntoInput for Source {
    fn name(&self) -> Option<String> {
        match self {
            Source::File(path, _) => Some(path.display().to_string()),
            Source::Piped(Input::Whole(input)) => Some(input.name.clone()),
            Source::Piped(Input::Followed(followed)) => Some(followed.name.clone()),
        }
    }

    fn file(&self) -> Option<Content> {
        match self {
            Source::File(path, _) => Some(Content::File(path.clone())),
            Source::Piped(_) => None,
        }
    }

    fn into_input(self) -> Result<Input, MemoryError> {
        match self {
            Source::File(path, None) => NewInput::from_file(path).map(Input::from),
            Source::File(path, Some(format)) => Ok(Input::Whole(NewInput {
                name: path.display().to_string(),
                format,
                content: Content::File(path),
            })),
            Source::Piped(input) => Ok(input),
        }
    }
}

/// The sources that the command line names.
#[derive(Debug, Default)]
pub struct Found {
    /// The sources.
    pub sources: Vec<Source>,
    /// The files of folders that are no sources, with the reasons.
    pub passed_over: Vec<PassedOver>,
}

/// A file of a folder that is no source.
#[derive(Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The file.
    pub path: PathBuf,
    /// The reason, and the remedy.
    pub reason: &'static str,
}

/// Finds all sources. Each file counts once, however often it is named.
pub async fn find(paths: &[PathBuf], format: Option<Format>, name: Option<&str>) -> anyhow::Result<Found> {
    let mut sources = Vec::new();
    let mut seen = BTreeSet::new();
    let mut folders = Folders::default();
    let mut has_stdin = false;
    if name.is_some() && !paths.iter().any(|path| path == Path::new("-")) {
        bail!("--name is for standard input; a file's name is its path");
    }
    let mut found = Files::default();
    found.add(paths)?;
    for (path, own_format) in found.files {
        let format = format.or(own_format);
        if path == Path::new("-") {
            if !std::mem::replace(&mut has_stdin, true) {
                sources.push(Source::Piped(pipe::standard_input(name, format).await?));
            }
            continue;
        }
        let known_as = path.display().to_string();
        let place = folders.place(&Content::File(path.clone()));
        if !seen.insert(place.unwrap_or_else(|| known_as.clone())) {
            continue;
        }
        sources.push({
            let cannot = || format!("{} cannot be read", path.display());
            if std::fs::metadata(&path).with_context(cannot)?.is_file() {
                // An unreadable file fails when its turn comes. One bad file does not stop the others.
                Source::File(path, format)
            } else {
                let opened = File::open(&path).with_context(cannot)?;
                let bytes = read_pipe(opened).with_context(cannot)?;
                Source::Piped(pipe::whole(known_as, bytes, format).into())
            }
        });
    }
    Ok(Found {
        sources,
        passed_over: found.passed_over,
    })
}

/// Adds the files that earlier ingestions could not read, or not completely, unless they are among the sources.
pub async fn add_failed(
    memory: &Memory,
    sources: &mut Vec<Source>,
    format: Option<Format>,
) -> Result<(), MemoryError> {
    let store = memory.knowledge();
    let failures = store.source_failures().await?;
    let unread = store.unread(None).await?;
    let failed = failures
        .into_iter()
        .map(|failure| (failure.source, failure.place));
    let mut folders = Folders::default();
    let mut known = BTreeSet::new();
    for source in &*sources {
        let place = source.file().and_then(|file| folders.place(&file));
        known.extend(place.or_else(|| source.name()));
    }
    for (name, failed_at) in failed.chain(unread.into_iter().map(|one| (one.source, None))) {
        // The name may be a path from another folder than this one.
        let stored = store.source(&name).await?;
        let stored = stored.as_ref().and_then(|stored| stored.place()?.to_str());
        let stored = failed_at.as_deref().or(stored);
        let here = folders.place(&Content::File(PathBuf::from(&name)));
        let path = match stored {
            Some(place) if here.as_deref() != Some(place) => place.to_owned(),
            _ => name.clone(),
        };
        let place = stored.map(str::to_owned).or(here);
        // A pipe is known by its name.
        if !known.contains(&name) && known.insert(place.unwrap_or(name)) {
            sources.push(Source::File(PathBuf::from(path), format));
        }
    }
    Ok(())
}

/// Deletes the sources of folders whose files are gone, and returns their number.
pub async fn prune_missing(memory: &Memory, paths: &[PathBuf]) -> Result<u64, MemoryError> {
    let folders = paths.iter().map(|path| plain(path)).filter(|path| path.is_dir());
    let folders: Vec<PathBuf> = folders.filter_map(|folder| folder.canonicalize().ok()).collect();
    let store = memory.knowledge();
    let sources = store.sources().await?.into_iter().filter(|source| {
        // A source that came through a pipe has no place, because it has no file that could be gone.
        source.place().is_some_and(|place| {
            matches!(place.try_exists(), Ok(false)) && folders.iter().any(|folder| place.starts_with(folder))
        })
    });
    let gone: Vec<Change> = sources
        .map(|source| Change::Delete { source: source.name })
        .collect();
    let count = gone.len() as u64;
    if count > 0 {
        store.apply(gone).await?;
    }
    Ok(count)
}

/// A path without `./`; `.` for the folder itself.
pub fn plain(path: &Path) -> PathBuf {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    let plain: PathBuf = parts.collect();
    match plain.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => plain,
    }
}

/// The files, with each folder replaced by its files.
#[derive(Debug, Default)]
struct Files {
    /// The files, with the formats of those that are recognised by their folder.
    files: Vec<(PathBuf, Option<Format>)>,
    passed_over: Vec<PassedOver>,
}

impl Files {
    fn add(&mut self, paths: &[PathBuf]) -> anyhow::Result<()> {
        for path in paths {
            let path = plain(path);
            if path == Path::new("-") {
                self.files.push((path, None));
                continue;
            }
            let metadata =
                std::fs::metadata(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            if !metadata.is_dir() {
                self.files.push((path, None));
                continue;
            }
            let before = self.files.len();
            let root = path
                .canonicalize()
                .with_context(|| format!("{} cannot be read", path.display()))?;
            self.add_folder(&root, &path, 0)?;
            if self.files.len() == before {
                let others = match self.passed_over.len() {
                    0 => String::new(),
                    others => format!(" (it has {})", show_number_of(others as u64, "other file")),
                };
                bail!(
                    "{} has no file with the extension of a source: {}{others}; name a file itself to read it, with --format",
                    path.display(),
                    ENDINGS.join(", ")
                );
            }
        }
        if self.files.len() > FILES_MAX {
            bail!(
                "{} files exceed the limit of {FILES_MAX} in one ingestion; name fewer",
                self.files.len()
            );
        }
        Ok(())
    }

    /// Adds the sources of a folder and those below, by name. Hidden ones are passed over, and links that lead out of
    /// `root`, the named folder's own path.
    fn add_folder(&mut self, root: &Path, folder: &Path, depth: usize) -> anyhow::Result<()> {
        let cannot = || format!("{} cannot be read", folder.display());
        if depth > FOLDER_DEPTH_MAX {
            bail!(
                "{} is more than {FOLDER_DEPTH_MAX} folders deep",
                folder.display()
            );
        }
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            if !entry.file_name().to_string_lossy().starts_with('.') {
                entries.push((plain(&entry.path()), entry.file_type().with_context(cannot)?));
            }
        }
        entries.sort_by(|left, right| left.0.cmp(&right.0));
        // The lists of an export of Slack stand beside the folders of its channels.
        let has_file = |name: &str| entries.iter().any(|(path, _)| path.ends_with(name));
        let is_slack = has_file("users.json") && has_file("channels.json");
        let has_folder = |name: &str| {
            entries
                .iter()
                .any(|(path, kind)| kind.is_dir() && path.ends_with(name))
        };
        let is_maildir = has_folder("cur") && has_folder("new");
        let is_in_maildir = ["cur", "new"].iter().any(|name| folder.ends_with(name)) && {
            let beside = |name| folder.parent().is_some_and(|parent| parent.join(name).is_dir());
            beside("cur") && beside("new")
        };
        for (path, kind) in entries {
            if kind.is_dir() {
                // Mails that are still being delivered.
                if !(is_maildir && path.ends_with("tmp")) {
                    self.add_folder(root, &path, depth + 1)?;
                }
                continue;
            }
            if is_slack && path.extension().is_some_and(|ending| ending == "json") {
                continue;
            }
            match reason_against(root, &path, kind, is_in_maildir) {
                Some(reason) => self.passed_over.push(PassedOver { path, reason }),
                None => self.files.push((path, is_in_maildir.then_some(Format::Mail))),
            }
        }
        Ok(())
    }
}

/// Why an entry of a folder is no source; `None` if it is one.
fn reason_against(root: &Path, path: &Path, kind: FileType, is_in_maildir: bool) -> Option<&'static str> {
    if !is_file_within(root, path, kind) {
        return Some("it is a link out of the folder, or no file");
    }
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    if is_in_maildir {
        // The flag T of a Maildir.
        let flags = name.rsplit_once(":2,").map_or("", |(_, flags)| flags);
        return flags
            .contains('t')
            .then_some("it was deleted in its mail program");
    }
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let ending = Path::new(name)
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    match ending.as_str() {
        // A folder may have files of programs with these extensions, which are no sources.
        ending if AMBIGUOUS_ENDINGS.contains(&ending) && !is_recognised(path) => {
            Some("nothing in it is of a known format; if it is a source, name the file itself, with --format")
        }
        ending if ENDINGS.contains(&ending) => None,
        // The mailboxes of Thunderbird and readpst.
        "" if is_mailbox(path) => None,
        "pst" | "ost" => Some(
            "it is an archive of Outlook; convert it with `readpst -o FOLDER FILE`, and ingest that folder",
        ),
        "msf" | "msg" | "dbx" => Some("it is a file of a mail program; export its mails as .eml or .mbox"),
        _ => Some("its extension is none of a source; if it is one, name the file itself, with --format"),
    }
}

/// Whether a file without an extension begins as a mailbox or a mail.
fn is_mailbox(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAIL_BYTES).read_to_end(&mut beginning));
    read.is_ok() && Format::is_mail(&beginning)
}

/// Whether the first bytes of a file show a format. A file that cannot be read is a source whose failure is recorded.
fn is_recognised(path: &Path) -> bool {
    let beginning = Content::File(path.to_path_buf()).beginning();
    beginning.map_or(true, |bytes| Format::is_recognised(path, &bytes))
}

/// Reports whether an entry is a file of the folder, or a link to one. Opening a pipe would wait for a writer.
fn is_file_within(root: &Path, path: &Path, kind: FileType) -> bool {
    if kind.is_symlink() {
        path.canonicalize()
            .is_ok_and(|target| target.starts_with(root) && target.is_file())
    } else {
        kind.is_file()
    }
}

fn read_pipe(pipe: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.take(SOURCE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    pipe::check_size(&bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[PathBuf]) -> anyhow::Result<Files> {
        let mut found = Files::default();
        found.add(paths)?;
        Ok(found)
    }

    fn paths_of(found: &Files) -> Vec<PathBuf> {
        found.files.iter().map(|(path, _)| path.clone()).collect()
    }

    #[test]
    fn a_path_has_one_spelling() {
        for (path, expected) in [
            (".", "."),
            ("./", "."),
            ("./a/./b", "a/b"),
            ("a//b/", "a/b"),
            ("../a", "../a"),
        ] {
            assert_eq!(plain(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn mail_folders_are_recognised() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["box/cur", "box/new", "box/tmp"] {
            std::fs::create_dir_all(path(name)).expect("folders");
        }
        let mail = "Received: x\nFrom: a@b\nSubject: x\n\nHum.\n";
        for name in [
            "box/cur/1.M1.hive:2,S",
            "box/cur/2.M1.hive:2,ST",
            "box/new/3.M1.hive",
            "box/tmp/4.M1.hive",
        ] {
            std::fs::write(path(name), mail).expect("writes");
        }
        std::fs::write(path("Inbox"), format!("From - Mon May 01 09:30:00 2023\n{mail}")).expect("writes");
        std::fs::write(path("LICENSE"), "Bees are free.").expect("writes");
        std::fs::write(path("old.mbox.gz"), b"\x1f\x8b").expect("writes");
        let found = files(&[folder.path().to_owned()]).expect("files");
        let expected = [
            (path("Inbox"), None),
            (path("box/cur/1.M1.hive:2,S"), Some(Format::Mail)),
            (path("box/new/3.M1.hive"), Some(Format::Mail)),
            (path("old.mbox.gz"), None),
        ];
        assert_eq!(found.files, expected);
        let passed: Vec<PathBuf> = found.passed_over.into_iter().map(|one| one.path).collect();
        assert_eq!(passed, [path("LICENSE"), path("box/cur/2.M1.hive:2,ST")]);
    }

    #[tokio::test]
    async fn a_folder_stands_for_its_sources() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("a/deep")).expect("folders");
        for name in [
            "a/z.md",
            "a/deep/b.VTT",
            "a/.hidden.md",
            "a/picture.png",
            "a/server.log",
            "plain",
        ] {
            std::fs::write(path(name), "Bees.").expect("writes");
        }
        std::fs::write(path("a/hives.log"), "14:02 <ada> Do they hum?\n").expect("writes");
        let found = files(&[path("plain"), path("a")]).expect("files");
        assert_eq!(
            paths_of(&found),
            ["plain", "a/deep/b.VTT", "a/hives.log", "a/z.md"].map(path)
        );
        let passed: Vec<PathBuf> = found.passed_over.into_iter().map(|one| one.path).collect();
        assert!(passed.contains(&path("a/picture.png")), "{passed:?}");
        assert!(!passed.contains(&path("a/.hidden.md")), "hidden files are none");
        let found = find(&[path("plain"), path("plain")], None, None)
            .await
            .expect("sources");
        assert_eq!(found.sources.len(), 1);
        std::fs::create_dir(path("empty")).expect("a folder");
        let error = files(&[path("empty")]).expect_err("no sources").to_string();
        assert!(
            error.contains("no file with the extension of a source"),
            "{error}"
        );
    }

    #[test]
    fn links_and_pipes_do_not_lead_out_of_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("named/below")).expect("folders");
        std::fs::create_dir(path("outside")).expect("a folder");
        for name in ["named/own.md", "outside/secret.md"] {
            std::fs::write(path(name), "Bees.").expect("writes");
        }
        for (target, link) in [
            ("outside/secret.md", "named/secret.md"),
            ("outside", "named/folder.md"),
            ("named/nowhere", "named/dangling.md"),
            ("named/own.md", "named/below/own.md"),
        ] {
            std::os::unix::fs::symlink(path(target), path(link)).expect("a link");
        }
        let made = std::process::Command::new("mkfifo")
            .arg(path("named/pipe.md"))
            .status()
            .expect("mkfifo runs");
        assert!(made.success());
        // The named folder itself may be a link.
        std::os::unix::fs::symlink(path("named"), path("link")).expect("a link");
        for named in ["named", "link"] {
            let found = files(&[path(named)]).expect("files");
            let expected = ["below/own.md", "own.md"].map(|name| path(named).join(name));
            assert_eq!(paths_of(&found), expected);
            assert_eq!(found.passed_over.len(), 4);
        }
    }
}
