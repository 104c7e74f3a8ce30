//! Where PostgreSQL's programs are.

use std::path::{Path, PathBuf};

use crate::PostgresError;

/// Names a folder with PostgreSQL's programs, where another than the newest of Debian's is wanted.
const VARIABLE: &str = "POSTGRES_BIN";
/// Debian keeps each major version below this folder; the programs of a server are not on the PATH.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The folder with `initdb`, `pg_ctl`, `psql`.
#[derive(Debug)]
pub(crate) struct Installation {
    folder: PathBuf,
}

impl Installation {
    /// The folder that `POSTGRES_BIN` names; else Debian's newest version.
    pub fn find() -> Result<Self, PostgresError> {
        let folder = match std::env::var_os(VARIABLE) {
            Some(folder) => Some(PathBuf::from(folder)),
            None => newest(Path::new(DEBIAN)),
        };
        folder
            .filter(|folder| folder.join("initdb").exists())
            .map(|folder| Installation { folder })
            .ok_or_else(|| {
                PostgresError::Missing(format!(
                    "there is no PostgreSQL server to test with: apt-get install postgresql, or name \
                     the folder of its programs in {VARIABLE}"
                ))
            })
    }

    /// The path of one program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn newest(versions: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(versions).ok()?;
    let numbered = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        Some((name.to_str()?.parse::<u32>().ok()?, name))
    });
    let (_, name) = numbered.max()?;
    Some(versions.join(name).join("bin"))
}
