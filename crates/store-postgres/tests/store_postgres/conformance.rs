//! The PostgreSQL store passes the suite that every store passes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use gristmill_model::{ManualClock, Timestamp};
use gristmill_private_postgres::{Pooler, PoolerKind, shared};
use gristmill_store::Store;
use gristmill_store_conformance::Database;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

/// The databases that no check uses any more: the state machine needs ten thousand, and making one takes longer than
/// emptying one.
static USED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Names the pooler through which the store is tested: `session`, `transaction` or `pgpool`.
const POOLER_VARIABLE: &str = "GRISTMILL_TEST_POOLER";

fn pooler() -> Option<&'static Pooler> {
    static POOLER: OnceLock<Option<Pooler>> = OnceLock::new();
    let start = || {
        let name = std::env::var(POOLER_VARIABLE).ok()?;
        let kind = PoolerKind::of(&name).unwrap_or_else(|| panic!("{POOLER_VARIABLE}={name} is no pooler"));
        Some(shared().pooler(kind).unwrap_or_else(|error| panic!("{error}")))
    };
    POOLER.get_or_init(start).as_ref()
}

/// Empties a store, leaving what a new one has.
const EMPTY: &str = "
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
DO $$
BEGIN
    EXECUTE (
        SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ')
        FROM pg_class
        WHERE relnamespace = 'gristmill'::regnamespace AND relkind = 'r' AND relname <> 'layout'
    );
    PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence;
    INSERT INTO gristmill.control_version VALUES (1, 0);
END
$$";

struct TemporaryPostgres {
    url: String,
    clock: Arc<ManualClock>,
    /// Whether it logs every statement.
    logs: AtomicBool,
}

impl TemporaryPostgres {
    fn new() -> Self {
        let used = USED.lock().unwrap().pop();
        if let Some(url) = &used {
            shared().psql(name(url), EMPTY).unwrap();
        }
        TemporaryPostgres {
            url: used.unwrap_or_else(|| shared().create_database().unwrap()),
            clock: Arc::new(ManualClock::new(Timestamp(1_000_000))),
            logs: AtomicBool::new(false),
        }
    }
}

impl Drop for TemporaryPostgres {
    fn drop(&mut self) {
        // A pooler keeps other connections to a database that is emptied.
        let is_reusable = pooler().is_none() && !self.logs.load(Ordering::Relaxed);
        if is_reusable && !std::thread::panicking() {
            USED.lock().unwrap().push(self.url.clone());
        }
    }
}

#[async_trait]
impl Database for TemporaryPostgres {
    async fn open(&self) -> Arc<dyn Store> {
        let options = PostgresOptions::new(self.clock.clone(), 7);
        let url = match pooler() {
            Some(pooler) => pooler.url(name(&self.url)),
            None => self.url.clone(),
        };
        Arc::new(PostgresStore::open(&url, options).await.unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn count_statements(&self) {
        self.logs.store(true, Ordering::Relaxed);
        let sql = format!("ALTER DATABASE {} SET log_statement = 'all'", name(&self.url));
        shared().psql("postgres", &sql).unwrap();
    }

    fn statements(&self) -> u64 {
        // A statement is logged before it begins, after the name of the database.
        let log = std::fs::read_to_string(shared().directory().join("log")).unwrap();
        let (executed, command) = (
            format!(" {} LOG:  execute ", name(&self.url)),
            format!(" {} LOG:  statement: ", name(&self.url)),
        );
        let is_statement = |line: &&str| line.contains(&executed) || line.contains(&command);
        log.lines().filter(is_statement).count() as u64
    }
}

/// The name of the database at this URL.
fn name(url: &str) -> &str {
    let path = url.trim_start_matches("postgresql:///");
    path.split('?').next().unwrap()
}

gristmill_store_conformance::store_conformance!(TemporaryPostgres::new(), sequences: 25);
