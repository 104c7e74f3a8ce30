//! A [`JobFilter`]'s conditions as SQL, and the batches that may have matching jobs.

use gristmill_model::{BatchId, JobState};
use gristmill_store::JobFilter;
use gristmill_store::query::Narrowed;
use tokio_postgres::types::ToSql;

/// Values for the `$1`, `$2`, … of a statement.
pub(crate) type Params<'p> = Vec<&'p (dyn ToSql + Sync)>;

/// The conditions of a filter on batches, without those on states.
#[derive(Debug)]
pub(crate) struct Conditions {
    columns: Vec<String>,
    params: Vec<Box<dyn ToSql + Sync + Send>>,
    is_narrow: bool,
}

impl Conditions {
    /// No conditions.
    pub fn none() -> Self {
        Conditions {
            columns: Vec::new(),
            params: Vec::new(),
            is_narrow: false,
        }
    }

    pub fn of(filter: &JobFilter) -> Self {
        let mut conditions = Conditions {
            is_narrow: filter.batch.is_some() || filter.run.is_some(),
            ..Conditions::none()
        };
        let mut lanes = Vec::new();
        if let Some(kind) = &filter.kind {
            lanes.push(format!("l.kind = {}", conditions.param(kind.clone())));
        }
        if let Some(queue) = &filter.queue {
            lanes.push(format!("l.queue = {}", conditions.param(queue.clone())));
        }
        if let Some(group) = &filter.group {
            lanes.push(format!("l.job_group = {}", conditions.param(group.clone())));
        }
        if !lanes.is_empty() {
            conditions.columns.push(format!(
                "lane_id = ANY (ARRAY(SELECT l.id FROM gristmill.lane l WHERE {}))",
                lanes.join(" AND ")
            ));
        }
        if let Some(run) = filter.run {
            let param = conditions.param(run.0);
            conditions.columns.push(format!("run_id = {param}"));
        }
        if let Some(batch) = filter.batch {
            let param = conditions.param(batch.0);
            conditions.columns.push(format!("id = {param}"));
        }
        if let Some(at) = filter.submitted_since {
            let param = conditions.param(at.0);
            conditions.columns.push(format!("submitted_at >= {param}"));
        }
        if let Some(at) = filter.submitted_until {
            let param = conditions.param(at.0);
            conditions.columns.push(format!("submitted_at < {param}"));
        }
        if filter.no_steps {
            let condition = "id NOT IN (SELECT t.batch_id FROM gristmill.step_batch t)";
            conditions.columns.push(condition.to_owned());
        }
        conditions
    }

    /// Leaves only the batches that have the filter's keys and tags.
    fn narrow(&mut self, narrowed: &Narrowed) {
        let batches: Vec<i64> = narrowed.keys().map(|batch| batch.0).collect();
        let param = self.param(batches);
        self.columns.push(format!("id = ANY ({param})"));
        self.is_narrow = true;
    }

    /// The conditions on the columns of a batch with this alias. Unless they are narrowed, they also fit a slice.
    pub fn on(&self, alias: &str) -> String {
        let conditions: Vec<String> = self
            .columns
            .iter()
            .map(|column| format!("{alias}.{column}"))
            .collect();
        if conditions.is_empty() {
            "true".to_owned()
        } else {
            conditions.join(" AND ")
        }
    }

    /// Adds a value, and returns its name in the statement.
    pub fn param(&mut self, value: impl ToSql + Sync + Send + 'static) -> String {
        self.params.push(Box::new(value));
        format!("${}", self.params.len())
    }

    pub fn params(&self) -> Params<'_> {
        self.params
            .iter()
            .map(|param| &**param as &(dyn ToSql + Sync))
            .collect()
    }
}

/// A statement that finds batches, by id ascending.
#[derive(Debug)]
pub(crate) struct Candidates {
    sql: String,
    conditions: Conditions,
}

impl Candidates {
    /// Finds matching batches that may have jobs in one of these states (in any, if there are none), a portion at a
    /// time. `columns` are those of the batch `b` and its lane `l`; the statement continues after a batch.
    pub fn new(filter: &JobFilter, narrowed: Option<&Narrowed>, states: &[JobState], columns: &str) -> Self {
        let mut conditions = Conditions::of(filter);
        if let Some(narrowed) = narrowed {
            conditions.narrow(narrowed);
        }
        let first = conditions.param(0_i64);
        let rows_max = conditions.param(0_i64);
        let sources = if conditions.is_narrow || states.is_empty() {
            Vec::new()
        } else {
            sources(&conditions, states, &first, &rows_max)
        };
        let found = if sources.is_empty() {
            String::new()
        } else {
            format!(" AND b.id = ANY (ARRAY({}))", sources.join(" UNION "))
        };
        let sql = format!(
            "SELECT {columns} FROM gristmill.batch b JOIN gristmill.lane l ON l.id = b.lane_id \
             WHERE {} AND b.id >= {first}{found} ORDER BY b.id LIMIT {rows_max}",
            conditions.on("b"),
        );
        Candidates { sql, conditions }
    }

    /// The statement.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The values: at most `rows_max` batches, beginning with `first`.
    pub fn params<'p>(&'p self, first: &'p i64, rows_max: &'p i64) -> Params<'p> {
        let mut params = self.conditions.params();
        let count = params.len();
        params[count - 2] = first;
        params[count - 1] = rows_max;
        params
    }
}

/// For each state, the table that has its jobs in the order of batches: the first `rows_max` batches of each table
/// include the first `rows_max` of all. (`IN` would read each of the tables to its end.)
fn sources(conditions: &Conditions, states: &[JobState], first: &str, rows_max: &str) -> Vec<String> {
    let source = |table: &str, which: &str| {
        format!(
            "(SELECT DISTINCT x.batch_id FROM gristmill.{table} x JOIN gristmill.batch c ON c.id = x.batch_id \
             WHERE {} AND x.batch_id >= {first} AND c.id >= {first}{which} ORDER BY x.batch_id LIMIT {rows_max})",
            conditions.on("c"),
        )
    };
    let mut sources = Vec::new();
    if states.contains(&JobState::Waiting) || states.contains(&JobState::Scheduled) {
        sources.push(source("slice", ""));
    }
    if states.contains(&JobState::Blocked) || states.contains(&JobState::Paused) {
        sources.push(source("blocked", ""));
    }
    if states.contains(&JobState::Running) {
        sources.push(source("held", ""));
    }
    for state in states.iter().filter(|state| state.is_final()) {
        // The second condition lets PostgreSQL use the partial index.
        let which = match state {
            JobState::Completed => " AND x.state = 'completed'".to_owned(),
            _ => format!(" AND x.state = '{state}' AND x.state <> 'completed'"),
        };
        sources.push(source("report", &which));
    }
    sources
}

/// How many batches the first look for candidates reads; each further look reads twice as many.
pub(crate) const LOOK_BATCHES_FIRST: i64 = 16;

/// The maximum number of batches that one look reads.
pub(crate) const LOOK_BATCHES_MAX: i64 = 1_024;

/// The id after a batch.
pub(crate) fn following(batch: BatchId) -> i64 {
    batch.0 + 1
}
