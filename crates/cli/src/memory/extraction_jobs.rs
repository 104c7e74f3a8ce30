//! The jobs of a knowledge base's ingestions: their store, and the lock that guards them.

use anyhow::Context;
use gristmill_memory::pipeline::outcomes::RUN;

use crate::run::RunLock;
use crate::store::location::StoreLocation;

/// The place of the extraction jobs.
pub struct ExtractionJobs {
    /// The store of the jobs.
    pub location: StoreLocation,
    /// The name of this knowledge base, if others may keep their jobs in the same store.
    pub name: Option<String>,
}

impl ExtractionJobs {
    /// The jobs of a knowledge base, in its own store of jobs or in another one.
    pub fn of(knowledge: &StoreLocation, store: Option<&StoreLocation>) -> anyhow::Result<ExtractionJobs> {
        let own = StoreLocation::from(knowledge.place().jobs());
        let location = store.unwrap_or(&own).clone();
        let name = match knowledge {
            _ if location == own => None,
            StoreLocation::File(path) => {
                let path = std::path::absolute(path)
                    .with_context(|| format!("{} cannot be read", path.display()))?;
                Some(path.display().to_string())
            }
            database @ StoreLocation::Postgres(_) => Some(database.place().to_string()),
        };
        Ok(ExtractionJobs { location, name })
    }

    /// Locks the jobs for this process. Returns `None` if another process works on them.
    pub async fn try_lock(&self) -> anyhow::Result<Option<RunLock>> {
        RunLock::try_take(&self.location, self.name.as_deref().unwrap_or(RUN)).await
    }
}
