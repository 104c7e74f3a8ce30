//! A [`JobFilter`]'s conditions on batches, as SQL.

use gristmill_store::JobFilter;
use gristmill_store::query::Narrowed;
use rusqlite::types::Value;

/// No conditions.
const NONE: &str = "true";

/// Conditions on `batch b JOIN lane l`, without those of the filter on states.
#[derive(Debug)]
pub(crate) struct BatchConditions {
    pub sql: String,
    pub params: Vec<Value>,
}

impl BatchConditions {
    /// The conditions of a filter whose keys and tags select these jobs.
    pub fn narrowed(filter: &JobFilter, narrowed: Option<&Narrowed>) -> Self {
        let mut conditions = BatchConditions::of(filter);
        let ids = narrowed.map(|narrowed| {
            let ids: Vec<String> = narrowed.keys().map(ToString::to_string).collect();
            Value::from(format!("[{}]", ids.join(",")))
        });
        conditions.add("b.id IN (SELECT value FROM json_each(?))", ids);
        conditions
    }

    pub fn of(filter: &JobFilter) -> Self {
        let mut conditions = BatchConditions {
            sql: NONE.to_owned(),
            params: Vec::new(),
        };
        conditions.add("l.kind = ?", filter.kind.clone().map(Value::from));
        conditions.add("l.queue = ?", filter.queue.clone().map(Value::from));
        conditions.add("l.job_group = ?", filter.group.clone().map(Value::from));
        conditions.add("b.run_id = ?", filter.run.map(|run| Value::from(run.0)));
        conditions.add("b.id = ?", filter.batch.map(|batch| Value::from(batch.0)));
        conditions.add(
            "b.submitted_at >= ?",
            filter.submitted_since.map(|at| Value::from(at.0)),
        );
        conditions.add(
            "b.submitted_at < ?",
            filter.submitted_until.map(|at| Value::from(at.0)),
        );
        if filter.no_steps {
            conditions
                .sql
                .push_str(" AND b.id NOT IN (SELECT batch_id FROM step_batch)");
        }
        conditions
    }

    /// Whether all batches fulfil them.
    pub fn are_none(&self) -> bool {
        self.sql == NONE
    }

    fn add(&mut self, sql: &str, param: Option<Value>) {
        if let Some(param) = param {
            self.sql.push_str(" AND ");
            self.sql.push_str(sql);
            self.params.push(param);
        }
    }
}
