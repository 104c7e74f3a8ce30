//! Tags, and the jobs that a filter's keys and tags select.

use std::collections::{BTreeMap, HashMap};

use gristmill_model::{BatchId, JobLabels, Positions, Tag, TagCondition};
use gristmill_store::query::Narrowed;
use gristmill_store::{JobFilter, StoreError, TagValue};
use tokio_postgres::Row;

use crate::database::columns::sum;
use crate::database::snapshot::Snapshot;
use crate::database::sums::read_keys;
use crate::failure::{Failure, Result};
use crate::multirange::Multirange;
use crate::query::filter::Conditions;

/// A statement that finds the jobs that a filter's keys, tags and parent select.
#[derive(Debug)]
pub(crate) struct Narrowing {
    pub sql: String,
    /// Its values.
    pub conditions: Conditions,
}

impl Narrowing {
    /// `None` if the filter has no keys, tags or parent.
    pub fn of(filter: &JobFilter) -> Option<Narrowing> {
        if !filter.tells_jobs_apart() {
            return None;
        }
        let mut conditions = Conditions::none();
        let batch = filter.batch.map(|batch| conditions.param(batch.0));
        let of_batch = |column: &str| match &batch {
            Some(batch) => format!(" AND {column} = {batch}"),
            None => String::new(),
        };
        let mut parts = Vec::new();
        for condition in &filter.tags {
            let tagged = tagged(&mut conditions, condition);
            parts.push(format!(
                "SELECT t.batch_id, range_agg(r) AS positions FROM gristmill.tag t \
                 CROSS JOIN LATERAL unnest(coalesce(t.positions, '{{[0,10000)}}')) r WHERE {tagged}{} GROUP BY t.batch_id",
                of_batch("t.batch_id")
            ));
        }
        if filter.key.is_some() || filter.key_prefix.is_some() {
            let keyed = keyed(&mut conditions, filter);
            parts.push(format!(
                "SELECT b.batch_id, range_agg(int4range((j.number - 1)::integer, j.number::integer)) AS positions \
                 FROM gristmill.keyed b CROSS JOIN LATERAL gristmill.unpacked(b.keys) WITH ORDINALITY AS j (item, number) \
                 WHERE {keyed}{} GROUP BY b.batch_id",
                of_batch("b.batch_id")
            ));
        }
        if let Some(parent) = filter.parent {
            let batch = conditions.param(parent.batch.0);
            let position = conditions.param(parent.position.cast_signed());
            parts.push(format!(
                "SELECT k.batch_id, k.positions FROM gristmill.suspension s CROSS JOIN LATERAL \
                 gristmill.children_of(s.batch_id, s.family, int4multirange(int4range({position}, {position} + 1))) k \
                 WHERE s.batch_id = {batch} AND {position} = ANY (s.parents){}",
                of_batch("k.batch_id")
            ));
        }
        let sql = format!(
            "SELECT batch_id, range_intersect_agg(positions) FROM ({}) part GROUP BY batch_id \
             HAVING count(*) = {} AND NOT isempty(range_intersect_agg(positions))",
            parts.join(" UNION ALL "),
            parts.len()
        );
        Some(Narrowing { sql, conditions })
    }

    /// Reads the answer.
    pub fn read(rows: &[Row]) -> Result<Narrowed> {
        rows.iter()
            .map(|row| {
                let positions = row.try_get::<_, Multirange>(1)?.0;
                Ok((BatchId(row.try_get(0)?), positions))
            })
            .collect()
    }
}

fn tagged(conditions: &mut Conditions, condition: &TagCondition) -> String {
    let name = conditions.param(condition.name.clone());
    let mut sql = if condition.prefix {
        format!("t.name >= {name} AND starts_with(t.name, {name})")
    } else {
        format!("t.name = {name}")
    };
    if let Some(value) = &condition.value {
        sql.push_str(&format!(" AND t.value = {}", conditions.param(value.clone())));
    }
    sql
}

/// It searches the text as a whole before it unpacks it.
fn keyed(conditions: &mut Conditions, filter: &JobFilter) -> String {
    let mut all = Vec::new();
    if let Some(key) = &filter.key {
        let key = conditions.param(key.clone());
        all.push(format!("(j.item #>> '{{}}') = {key}"));
    }
    if let Some(prefix) = &filter.key_prefix {
        let prefix = conditions.param(prefix.clone());
        all.push(format!("starts_with(j.item #>> '{{}}', {prefix})"));
    }
    all.join(" AND ")
}

/// The jobs that the filter's keys, tags and parent select; `None` if it has none.
pub(crate) async fn narrowed(snapshot: &Snapshot, filter: &JobFilter) -> Result<Option<Narrowed>> {
    match Narrowing::of(filter) {
        None => Ok(None),
        Some(narrowing) => {
            let rows = snapshot
                .query(&narrowing.sql, &narrowing.conditions.params())
                .await?;
            Narrowing::read(&rows).map(Some)
        }
    }
}

/// The tags of one job.
pub(crate) async fn tags_of(
    snapshot: &Snapshot,
    batch: BatchId,
    position: i32,
) -> Result<BTreeMap<String, String>> {
    let rows = snapshot
        .query(
            "SELECT name, value FROM gristmill.tag WHERE batch_id = $1 AND (positions IS NULL OR positions @> $2::integer)",
            &[&batch.0, &position],
        )
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// The keys and tags of batches; `None` for batches with damaged rows.
pub(crate) async fn labels_of(
    snapshot: &Snapshot,
    batches: &[i64],
    any_tagged: bool,
) -> Result<HashMap<BatchId, Option<JobLabels>>> {
    let mut tags: HashMap<BatchId, Vec<Tag>> = HashMap::new();
    if any_tagged {
        let sql = "SELECT batch_id, name, value, positions FROM gristmill.tag WHERE batch_id = ANY ($1) \
             ORDER BY batch_id, name, value";
        for row in &snapshot.query(sql, &[&batches]).await? {
            let positions: Option<Multirange> = row.try_get(3)?;
            tags.entry(BatchId(row.try_get(0)?)).or_default().push(Tag {
                name: row.try_get(1)?,
                value: row.try_get(2)?,
                positions: positions.map(|positions| positions.0),
            });
        }
    }
    let sql = "SELECT b.id, b.count, k.scope, k.sum, k.keys FROM gristmill.batch b LEFT JOIN gristmill.keyed k ON k.batch_id = b.id \
         WHERE b.id = ANY ($1)";
    let mut labels = HashMap::new();
    for row in &snapshot.query(sql, &[&batches]).await? {
        let batch = BatchId(row.try_get(0)?);
        let count: i32 = row.try_get(1)?;
        let keys = match row.try_get::<_, Option<i32>>(2)? {
            None => Ok(None),
            Some(_) => read_keys(row, batch, 2).map(Some),
        };
        let keys = match keys {
            Err(Failure::Refused(StoreError::Damaged { .. })) => {
                labels.insert(batch, None);
                continue;
            }
            keys => keys?,
        };
        let of_batch = JobLabels::new(
            Positions::all(count.unsigned_abs()),
            keys,
            tags.remove(&batch).unwrap_or_default(),
        );
        labels.insert(batch, of_batch.ok());
    }
    Ok(labels)
}

/// The values of a tag, after `after`.
pub(crate) async fn tag_values(
    snapshot: &Snapshot,
    name: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<TagValue>> {
    let rows = snapshot
        .query(
            "SELECT value, sum(count) FROM gristmill.tag WHERE name = $1 AND ($2::text IS NULL OR value > $2) \
             GROUP BY value ORDER BY value LIMIT $3",
            &[&name, &after, &i64::from(limit)],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(TagValue {
                value: row.try_get(0)?,
                jobs: sum(row, 1)?,
            })
        })
        .collect()
}

/// The groups that lanes of a queue have and that begin with a text.
pub(crate) async fn groups(
    snapshot: &Snapshot,
    queue: Option<&str>,
    prefix: &str,
    limit: u32,
) -> Result<Vec<String>> {
    let rows = snapshot
        .query(
            "SELECT job_group FROM gristmill.lane WHERE job_group <> '' AND ($1::text IS NULL OR queue = $1) \
             AND starts_with(job_group, $2) GROUP BY job_group ORDER BY job_group COLLATE \"C\" LIMIT $3",
            &[&queue, &prefix, &i64::from(limit)],
        )
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
