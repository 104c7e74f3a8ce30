//! Bare rows: one row per job in SQLite, written and claimed by hand-written SQL in batches, on one connection and
//! without any engine. This is what a careful program could do without Gristmill.

use std::error::Error;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior, params};
use serde_json::Value;

use crate::order::{Order, Payload, latencies, payloads, rate};

const SCHEMA: &str = "
CREATE TABLE job (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL DEFAULT 'default', payload TEXT NOT NULL,
    state INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0, run_at INTEGER NOT NULL DEFAULT 0,
    claimed_at INTEGER, claimed_by TEXT
);
CREATE INDEX job_claimable ON job (queue, run_at, id) WHERE state = 0;
CREATE TABLE done (
    id INTEGER PRIMARY KEY, queue TEXT, payload TEXT, attempt INTEGER, run_at INTEGER, finished_at INTEGER
);";

const INSERT: &str = "INSERT INTO job (payload) VALUES (?1)";

const CLAIM: &str = "
UPDATE job SET state = 1, attempt = attempt + 1, claimed_at = 1, claimed_by = 'bench'
WHERE id IN (
    SELECT id FROM job WHERE state = 0 AND queue = 'default' AND run_at <= 1 ORDER BY run_at, id LIMIT ?1
)
RETURNING id, payload";

const FINISH: &str = "
INSERT INTO done SELECT id, queue, payload, attempt, run_at, 1 FROM job WHERE id IN (SELECT value FROM json_each(?1))";

const FORGET: &str = "DELETE FROM job WHERE id IN (SELECT value FROM json_each(?1))";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Carries out the order. One connection has one caller. Nothing starts handlers: the latency is the time of one row's
/// commit, the lower bound for an engine that starts a job only once it is on disk.
pub fn measure(order: &Order) -> Result<Value> {
    let mut connection = Connection::open(&order.store)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", &order.synchronous)?;
    connection.execute_batch(SCHEMA)?;
    let (warm_up, jobs) = (
        payloads(0, order.warm_up_jobs),
        payloads(order.warm_up_jobs, order.jobs),
    );
    match order.work.as_str() {
        "submit_batches" => {
            submit(&mut connection, &warm_up, order.batch_jobs)?;
            let began = Instant::now();
            submit(&mut connection, &jobs, order.batch_jobs)?;
            Ok(rate(order.jobs, began))
        }
        "submit_single" => {
            submit(&mut connection, &warm_up, 1)?;
            let began = Instant::now();
            submit(&mut connection, &jobs, 1)?;
            Ok(rate(order.jobs, began))
        }
        "drain" => {
            submit(&mut connection, &warm_up, order.batch_jobs)?;
            drain(&mut connection, order.warm_up_jobs, order.batch_jobs)?;
            // SQLite reuses the ids of an emptied table.
            connection.execute("DELETE FROM done", [])?;
            submit(&mut connection, &jobs, order.batch_jobs)?;
            let began = Instant::now();
            drain(&mut connection, order.jobs, order.batch_jobs)?;
            Ok(rate(order.jobs, began))
        }
        "latency" => {
            submit(&mut connection, &warm_up, 1)?;
            commit_at_a_rate(&mut connection, &jobs, order.rate_per_second)
        }
        other => Err(format!("bare rows do not know the work `{other}`").into()),
    }
}

fn submit(connection: &mut Connection, jobs: &[Payload], batch_jobs: usize) -> Result<()> {
    for batch in jobs.chunks(batch_jobs) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut insert = transaction.prepare_cached(INSERT)?;
            for job in batch {
                insert.execute([serde_json::to_string(job)?])?;
            }
        }
        transaction.commit()?;
    }
    Ok(())
}

fn commit_at_a_rate(connection: &mut Connection, jobs: &[Payload], rate_per_second: f64) -> Result<Value> {
    let mut latencies_ms = Vec::with_capacity(jobs.len());
    let mut next = Instant::now();
    for job in jobs {
        wait_until(next);
        let began = Instant::now();
        submit(connection, std::slice::from_ref(job), 1)?;
        latencies_ms.push(began.elapsed().as_secs_f64() * 1e3);
        next += Duration::from_secs_f64(1.0 / rate_per_second);
    }
    Ok(latencies(latencies_ms))
}

#[expect(
    clippy::disallowed_methods,
    reason = "this contender has no runtime whose timer it could await"
)]
fn wait_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// Claims and finishes batches, each in one transaction, until none are left.
fn drain(connection: &mut Connection, jobs: usize, batch_jobs: usize) -> Result<()> {
    let mut done = 0;
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut ids: Vec<i64> = Vec::new();
        {
            let mut claim = transaction.prepare_cached(CLAIM)?;
            let mut rows = claim.query([i64::try_from(batch_jobs)?])?;
            while let Some(row) = rows.next()? {
                let payload: Payload = serde_json::from_str(row.get_ref(1)?.as_str()?)?;
                std::hint::black_box(payload);
                ids.push(row.get(0)?);
            }
            let ids = serde_json::to_string(&ids)?;
            transaction.prepare_cached(FINISH)?.execute(params![ids])?;
            transaction.prepare_cached(FORGET)?.execute(params![ids])?;
        }
        transaction.commit()?;
        done += ids.len();
        if ids.is_empty() {
            break;
        }
    }
    if done != jobs {
        return Err(format!("{done} of {jobs} jobs were claimed").into());
    }
    Ok(())
}
