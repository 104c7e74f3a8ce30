//! Lets only one process at a time work on a run.

use anyhow::bail;
use gristmill_store_sqlite::RunFileLock;

use crate::store::location::StoreLocation;
use crate::store::postgres::NameLock;

/// Holds a run until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct RunLock {
    /// A lock between processes on this machine, for a store in a file.
    _file: Option<RunFileLock>,
    /// A lock between all processes on a database.
    name: Option<NameLock>,
}

impl RunLock {
    /// Takes the run with this name in this store. Fails if another process has it.
    pub async fn take(store: &StoreLocation, name: &str) -> anyhow::Result<RunLock> {
        let Some(lock) = RunLock::try_take(store, name).await? else {
            bail!("run `{name}` is running in another process; wait for it, or give this run another --name");
        };
        Ok(lock)
    }

    /// Takes the run with this name in this store. Returns `None` if another process has it.
    pub async fn try_take(store: &StoreLocation, name: &str) -> anyhow::Result<Option<RunLock>> {
        match store {
            StoreLocation::File(path) => Ok(RunFileLock::try_take(path, name)?.map(|lock| RunLock {
                _file: Some(lock),
                name: None,
            })),
            StoreLocation::Postgres(url) => {
                let lock = NameLock::try_take(url.secret(), &format!("run {name}")).await?;
                Ok(lock.map(|lock| RunLock {
                    _file: None,
                    name: Some(lock),
                }))
            }
        }
    }

    /// Resolves when another process has taken the run, which can happen after an outage of the database.
    pub async fn lost(&self) {
        match &self.name {
            None => std::future::pending().await,
            Some(lock) => lock.lost().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_process_holds_a_run_until_it_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreLocation::File(folder.path().join("a.db"));
        let lock = RunLock::take(&store, "x").await.unwrap();
        let refused = RunLock::take(&store, "x").await.unwrap_err().to_string();
        assert!(
            refused.contains("run `x` is running in another process"),
            "{refused}"
        );
        RunLock::take(&store, "y").await.unwrap();
        drop(lock);
        RunLock::take(&store, "x").await.unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
