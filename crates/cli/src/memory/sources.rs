//! From the command line to the sources that are ingested.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gristmill_memory::limits::SOURCE_BYTES_MAX;
use gristmill_memory::pipeline::NewInput;
use gristmill_memory::source::{Format, read_file};

/// Files of one ingestion at most.
const FILES_MAX: usize = 100_000;

/// Folders in folders at most.
const FOLDER_DEPTH_MAX: usize = 32;

/// What files in a folder must end as to be sources.
const ENDINGS: [&str; 9] = [
    "eml", "jsonl", "markdown", "mbox", "md", "ndjson", "srt", "txt", "vtt",
];

/// Reads all sources. Each file once, however often it is named.
pub fn read(paths: &[PathBuf], format: Option<Format>, name: Option<&str>) -> anyhow::Result<Vec<NewInput>> {
    let mut inputs = Vec::new();
    let mut seen = BTreeSet::new();
    if name.is_some() && !paths.iter().any(|path| path == Path::new("-")) {
        bail!("--name is for standard input; files are known by their paths");
    }
    for path in files(paths)? {
        let (name, bytes) = if path == Path::new("-") {
            let Some(name) = name else {
                bail!("standard input needs --name, by which the source is known in the knowledge base");
            };
            (name.to_owned(), read_stdin()?)
        } else {
            (path.display().to_string(), read_file(&path)?)
        };
        if seen.insert(name.clone()) {
            inputs.push(match format {
                Some(format) => NewInput { name, format, bytes },
                None => NewInput::from_bytes(name, bytes),
            });
        }
    }
    Ok(inputs)
}

/// The files, with those of folders in the place of these.
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
        add_folder(path, 0, &mut files)?;
        if files.len() == before {
            bail!(
                "{} has no file that ends as a source: {}",
                path.display(),
                ENDINGS.join(", ")
            );
        }
    }
    if files.len() > FILES_MAX {
        bail!(
            "these are {} files, and at most {FILES_MAX} are ingested at once; name fewer",
            files.len()
        );
    }
    Ok(files)
}

/// Adds the sources of a folder and those below, by name. Hidden ones are passed over.
fn add_folder(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
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
    for (path, kind) in entries {
        let ending = path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        if kind.is_dir() {
            add_folder(&path, depth + 1, files)?;
        } else if ENDINGS.contains(&ending.as_str()) {
            files.push(path);
        }
    }
    Ok(())
}

fn read_stdin() -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut stdin = std::io::stdin().lock().take(SOURCE_BYTES_MAX + 1);
    stdin
        .read_to_end(&mut bytes)
        .context("standard input cannot be read")?;
    if bytes.len() as u64 > SOURCE_BYTES_MAX {
        bail!("standard input has more than the {SOURCE_BYTES_MAX} bytes that one source may have");
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_stand_for_their_sources() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("a/deep")).expect("folders");
        for name in ["a/z.md", "a/deep/b.VTT", "a/.hidden.md", "a/picture.png", "plain"] {
            std::fs::write(path(name), "Bees.").expect("writes");
        }
        let found = files(&[path("plain"), path("a")]).expect("files");
        assert_eq!(found, [path("plain"), path("a/deep/b.VTT"), path("a/z.md")]);
        let read = read(&[path("plain"), path("plain")], None, None).expect("reads");
        assert_eq!(read.len(), 1);
        std::fs::create_dir(path("empty")).expect("a folder");
        let error = files(&[path("empty")]).expect_err("no sources").to_string();
        assert!(error.contains("no file that ends as a source"), "{error}");
    }
}
