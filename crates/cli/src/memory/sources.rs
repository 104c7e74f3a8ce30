//! Finds the sources of an ingestion from the command line.

use std::collections::BTreeSet;
use std::fs::{File, FileType};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gristmill_memory::limits::SOURCE_BYTES_MAX;
use gristmill_memory::pipeline::{Input, IntoInput, NewInput};
use gristmill_memory::source::{Content, Format};
use gristmill_memory::{Change, Memory, MemoryError};

use super::pipe;

/// The largest number of files in one ingestion.
const FILES_MAX: usize = 100_000;

/// The largest depth of folders.
const FOLDER_DEPTH_MAX: usize = 32;

/// The extensions of sources in a folder.
const ENDINGS: [&str; 26] = [
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

/// Finds all sources. Each file counts once, however often it is named.
pub async fn find(
    paths: &[PathBuf],
    format: Option<Format>,
    name: Option<&str>,
) -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut seen = BTreeSet::new();
    let mut has_stdin = false;
    if name.is_some() && !paths.iter().any(|path| path == Path::new("-")) {
        bail!("--name is for standard input; a file's name is its path");
    }
    for path in files(paths)? {
        if path == Path::new("-") {
            if !std::mem::replace(&mut has_stdin, true) {
                sources.push(Source::Piped(pipe::standard_input(name, format).await?));
            }
            continue;
        }
        let known_as = path.display().to_string();
        if !seen.insert(known_as.clone()) {
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
    Ok(sources)
}

/// Adds the files that earlier ingestions could not read, or not completely, unless they are among the sources.
pub fn add_failed(sources: &mut Vec<Source>, failed: impl Iterator<Item = String>, format: Option<Format>) {
    let mut known: BTreeSet<String> = sources.iter().filter_map(Source::name).collect();
    for name in failed {
        if known.insert(name.clone()) {
            sources.push(Source::File(name.into(), format));
        }
    }
}

/// Deletes the sources of folders whose files are gone, and returns their number.
pub async fn prune_missing(memory: &Memory, paths: &[PathBuf]) -> Result<u64, MemoryError> {
    let folders: Vec<&Path> = paths
        .iter()
        .map(|path| path.strip_prefix("./").unwrap_or(path))
        .filter(|path| path.is_dir())
        .collect();
    let store = memory.knowledge();
    let sources = store.sources().await?.into_iter().filter(|source| {
        let path = Path::new(&source.name);
        let is_gone = matches!(path.try_exists(), Ok(false));
        is_gone && folders.iter().any(|folder| path.starts_with(folder))
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

/// The files, with each folder replaced by its files.
fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let path = path.strip_prefix("./").unwrap_or(path);
        if path == Path::new("-") {
            files.push(path.to_path_buf());
            continue;
        }
        let metadata =
            std::fs::metadata(path).with_context(|| format!("{} cannot be read", path.display()))?;
        if !metadata.is_dir() {
            files.push(path.to_path_buf());
            continue;
        }
        let before = files.len();
        let root = path
            .canonicalize()
            .with_context(|| format!("{} cannot be read", path.display()))?;
        add_folder(&root, path, 0, &mut files)?;
        if files.len() == before {
            bail!(
                "{} has no file with the extension of a source: {}",
                path.display(),
                ENDINGS.join(", ")
            );
        }
    }
    if files.len() > FILES_MAX {
        bail!(
            "{} files exceed the limit of {FILES_MAX} in one ingestion; name fewer",
            files.len()
        );
    }
    Ok(files)
}

/// Adds the sources of a folder and of the folders below, by name. Skips hidden ones, and links that lead out of
/// `root`, which is the path of the named folder.
fn add_folder(root: &Path, folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
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
            entries.push((entry.path(), entry.file_type().with_context(cannot)?));
        }
    }
    entries.sort_by(|left, right| left.0.cmp(&right.0));
    // The lists of an export of Slack stand beside the folders of its channels.
    let has = |name: &str| entries.iter().any(|(path, _)| path.ends_with(name));
    let is_slack = has("users.json") && has("channels.json");
    for (path, kind) in entries {
        let ending = path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        if kind.is_dir() {
            add_folder(root, &path, depth + 1, files)?;
        } else if is_slack && ending == "json" {
            continue;
        } else if ENDINGS.contains(&ending.as_str()) && is_file_within(root, &path, kind) {
            // A folder may have files of programs with these extensions, which are no sources.
            if !AMBIGUOUS_ENDINGS.contains(&ending.as_str()) || is_recognised(&path) {
                files.push(path);
            }
        }
    }
    Ok(())
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
            found,
            ["plain", "a/deep/b.VTT", "a/hives.log", "a/z.md"].map(path)
        );
        let found = find(&[path("plain"), path("plain")], None, None)
            .await
            .expect("sources");
        assert_eq!(found.len(), 1);
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
            assert_eq!(found, expected);
        }
    }
}
