//! `gristmill backup`: copies a store in a file while programs use it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rusqlite::{Connection, OpenFlags};
use serde_json::json;

use crate::arguments::BackupArguments;
use crate::exit::Exit;
use crate::output::print_line;
use crate::span::show_bytes;
use crate::store::location::StoreLocation;

/// The time to wait for a process that creates or migrates the store.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The files that can be copied: stores and knowledge bases.
const APPLICATION_IDS: &[i64] = &[
    gristmill_store_sqlite::APPLICATION_ID,
    #[cfg(feature = "full")]
    gristmill_memory::store::sqlite::APPLICATION_ID,
];

/// Runs the command.
pub async fn backup(arguments: BackupArguments) -> anyhow::Result<Exit> {
    let store = match &arguments.store {
        StoreLocation::File(path) => path.clone(),
        StoreLocation::Postgres(url) => {
            bail!("{url} is a PostgreSQL database: copy it with `pg_dump --schema=gristmill`")
        }
    };
    let file = arguments.file.clone();
    let bytes = tokio::task::spawn_blocking(move || copy(&store, &file)).await??;
    print_line(&if arguments.json {
        json!({"file": arguments.file, "bytes": bytes}).to_string()
    } else {
        format!(
            "{} copied to {}: {}",
            arguments.store,
            arguments.file.display(),
            show_bytes(bytes)
        )
    })?;
    Ok(Exit::Done)
}

/// Copies a snapshot of the store to `file`, which appears when it is complete and on disk. Returns its size in bytes.
fn copy(store: &Path, file: &Path) -> anyhow::Result<u64> {
    if !store.is_file() {
        bail!(
            "the store {} does not exist; name the file to copy first",
            store.display()
        );
    }
    if file.symlink_metadata().is_ok() {
        bail!("{} exists; name another file, or remove it first", file.display());
    }
    let cannot_read = || format!("{} cannot be read", store.display());
    let connection = open(store).with_context(cannot_read)?;
    let application_id: i64 = connection
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .with_context(cannot_read)?;
    if !APPLICATION_IDS.contains(&application_id) {
        bail!(
            "{} is not a store or knowledge base of Gristmill",
            store.display()
        );
    }
    let unfinished = Unfinished::beside(file);
    let path = unfinished
        .0
        .to_str()
        .context("the path of the copy is not UTF-8")?;
    let cannot_write = || format!("{} cannot be written", file.display());
    gristmill_store_sqlite::create_private(&unfinished.0);
    connection
        .execute("VACUUM INTO ?1", [path])
        .with_context(cannot_write)?;
    let written = File::open(&unfinished.0).with_context(cannot_write)?;
    written.sync_all().with_context(cannot_write)?;
    // A link fails if the file has appeared meanwhile. A rename would replace it.
    std::fs::hard_link(&unfinished.0, file).with_context(cannot_write)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))
        .and_then(|folder| folder.sync_all())
        .with_context(cannot_write)?;
    Ok(written.metadata().with_context(cannot_write)?.len())
}

fn open(store: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(store, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// A copy under another name. It is removed when it is dropped.
struct Unfinished(PathBuf);

impl Unfinished {
    fn beside(file: &Path) -> Unfinished {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".unfinished-{}", std::process::id()));
        Unfinished(PathBuf::from(name))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // The file may not exist.
        let _ = std::fs::remove_file(&self.0);
    }
}
