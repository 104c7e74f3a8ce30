//! Files that results must not overwrite: inputs, scripts and stores.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use gristmill_store_sqlite::resolve_link;

use super::OutputError;

/// The first bytes of every SQLite file.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// The suffixes of the files that SQLite keeps beside a file.
const SQLITE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Refuses an output that is one of these files, under any name, or a SQLite database. Opens no file for writing.
pub fn refuse_taken<'a>(
    output: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
    script: Option<&Path>,
    store: Option<&Path>,
) -> anyhow::Result<()> {
    let inputs = inputs.into_iter().map(|path| ("input", path));
    let others = script.map(|path| ("script", path)).into_iter();
    for (what, path) in inputs.chain(others).chain(store.map(|path| ("store", path))) {
        if is_same_file(path, output) {
            bail!("--output {} is the {what}; name another file", output.display());
        }
    }
    if is_standard_input(output) {
        bail!("--output {} is the input; name another file", output.display());
    }
    // SQLite keeps these files beside the file itself, not beside a link to it.
    let store = store.and_then(|store| resolve_link(store).ok());
    let beside = |suffix: &str| {
        let mut path = OsString::from(store.as_ref()?);
        path.push(suffix);
        Some(path)
    };
    for path in SQLITE_SUFFIXES.into_iter().filter_map(beside) {
        if is_same_file(Path::new(&path), output) {
            bail!(
                "--output {} belongs to the store; name another file",
                output.display()
            );
        }
    }
    Ok(refuse_database(output)?)
}

/// Refuses to write over a SQLite database.
pub fn refuse_database(path: &Path) -> Result<(), OutputError> {
    if !path.is_file() {
        return Ok(());
    }
    let mut first = [0; SQLITE_MAGIC.len()];
    // A file that cannot be read is not a store that a command has used.
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    if read.is_ok() && first == SQLITE_MAGIC {
        Err(OutputError::Database {
            name: path.display().to_string(),
        })
    } else {
        Ok(())
    }
}

/// Reports whether two paths name the same regular file, perhaps through links, or the same file that does not exist yet.
fn is_same_file(left: &Path, right: &Path) -> bool {
    match (left.metadata(), right.metadata()) {
        (Ok(left), Ok(right)) => is_same(&left, &right),
        (Err(_), Err(_)) => {
            let place = place(left);
            place.is_some() && place == self::place(right)
        }
        _ => false,
    }
}

fn is_same(left: &Metadata, right: &Metadata) -> bool {
    left.is_file() && (left.dev(), left.ino()) == (right.dev(), right.ino())
}

fn is_standard_input(path: &Path) -> bool {
    let input = std::io::stdin().as_fd().try_clone_to_owned().map(File::from);
    match (input.and_then(|input| input.metadata()), path.metadata()) {
        (Ok(input), Ok(output)) => is_same(&input, &output),
        _ => false,
    }
}

/// The place at which a missing file would be created.
fn place(path: &Path) -> Option<PathBuf> {
    let path = resolve_link(path).ok()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_recognised_by_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("items"), "1").unwrap();
        std::fs::write(path("other"), "1").unwrap();
        std::fs::hard_link(path("items"), path("hard")).unwrap();
        symlink("items", path("soft")).unwrap();
        symlink("new", path("dangling")).unwrap();
        symlink(folder.path(), path("folder")).unwrap();
        for (left, right, is_same) in [
            ("items", "items", true),
            ("items", "hard", true),
            ("items", "soft", true),
            ("items", "folder/hard", true),
            ("items", "other", false),
            ("items", "new", false),
            ("new", "new", true),
            ("new", "dangling", true),
            ("new", "folder/new", true),
            ("new", "newer", false),
            ("absent/new", "absent/new", false),
        ] {
            assert_eq!(is_same_file(&path(left), &path(right)), is_same, "{left} {right}");
            assert_eq!(is_same_file(&path(right), &path(left)), is_same, "{right} {left}");
        }
        let null = Path::new("/dev/null");
        assert!(!is_same_file(null, null), "it can be input and output at once");
    }

    #[test]
    fn a_database_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (store, output) = (folder.path().join("q.db"), folder.path().join("out"));
        let refusal = |output: &Path| {
            refuse_taken(output, [], None, Some(&store))
                .unwrap_err()
                .to_string()
        };
        assert!(refusal(&store).contains("is the store"));
        assert!(refusal(&folder.path().join("q.db-wal")).contains("belongs to the store"));
        // If the store is named by a link, its files are at the link's target.
        let (data, link) = (folder.path().join("data"), folder.path().join("link.db"));
        std::fs::create_dir(&data).unwrap();
        symlink("data/linked.db", &link).unwrap();
        let by_link = |output: &Path| refuse_taken(output, [], None, Some(&link));
        for suffix in SQLITE_SUFFIXES {
            let refusal = by_link(&data.join(format!("linked.db{suffix}"))).unwrap_err();
            assert!(refusal.to_string().contains("belongs to the store"), "{refusal}");
        }
        assert!(by_link(&folder.path().join("link.db-wal")).is_ok());
        std::fs::write(&output, [SQLITE_MAGIC, b"rest"].concat()).unwrap();
        assert!(refusal(&output).contains("SQLite database"));
        std::fs::write(&output, "earlier results").unwrap();
        assert!(refuse_taken(&output, [], None, Some(&store)).is_ok());
    }
}
