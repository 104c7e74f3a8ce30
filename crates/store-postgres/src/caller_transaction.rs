//! Submits within a transaction of the caller.

use gristmill_model::{BatchId, NewBatch};
use gristmill_store::StoreError;
use gristmill_store::hook::lanes_of_hooks;
use gristmill_store::rules::check::check_batches;
use gristmill_store::rules::dependency::stored_prerequisites;
use gristmill_store::rules::lanes::{LANES_MAX, LaneName};

use crate::PostgresStore;
use crate::database::columns::number;
use crate::database::writes::Writes;
use crate::failure::Result;
use crate::graph::dependency::{Ended, check_prerequisites};
use crate::submit::cache::{HITS, hits_params, read_hits};
use crate::submit::{Circumstances, awaited, check_texts, may_be_over};

impl PostgresStore {
    /// Stores batches within a transaction of the caller on the same database, and returns their ids. The jobs exist
    /// once the caller commits; after a rollback they never existed. The caller's role must own the schema `gristmill`,
    /// or have grants on its tables. After an error, the caller must roll the transaction back.
    ///
    /// The caller's COMMIT normally wakes the workers. An open transaction holds locks on the batches that the new jobs
    /// wait for, if any: keep it short.
    ///
    /// # Errors
    ///
    /// Those of [`submit`](gristmill_store::Store::submit), and [`StoreError::Database`] for errors of the database;
    /// nothing is retried.
    pub async fn submit_within(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        batches: Vec<NewBatch>,
    ) -> std::result::Result<Vec<BatchId>, StoreError> {
        check_batches(&batches)?;
        for batch in &batches {
            check_texts(batch)?;
        }
        self.store_within(transaction, batches)
            .await
            .map_err(|failure| failure.at(self.database.address.as_str()))
    }

    async fn store_within(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        batches: Vec<NewBatch>,
    ) -> Result<Vec<BatchId>> {
        let now = self.database.now();
        let lanes_max = i32::try_from(LANES_MAX).unwrap_or(i32::MAX);
        let stored: Vec<i64> = stored_prerequisites(&batches)
            .into_keys()
            .map(|batch| batch.0)
            .collect();
        if !stored.is_empty() {
            transaction
                .execute("SELECT gristmill.lock_batches($1)", &[&stored])
                .await?;
            let rows = transaction
                .query(
                    "SELECT id, count FROM gristmill.batch WHERE id = ANY ($1)",
                    &[&stored],
                )
                .await?;
            let counts = rows
                .iter()
                .map(|row| Ok((BatchId(row.try_get(0)?), number(row, 1)?)))
                .collect::<Result<_>>()?;
            check_prerequisites(batches.iter(), &counts)?;
        }
        let (mut ids, mut ended, mut writes) = (Vec::new(), Ended::default(), Writes::default());
        let awaited = awaited(batches.iter());
        for (place, batch) in batches.into_iter().enumerate() {
            intern_lanes_of_hooks(transaction, &batch, lanes_max).await?;
            let name = LaneName::of(&batch);
            let row = transaction
                .query_one(
                    "SELECT nextval('gristmill.batch_id'), gristmill.intern_lane($1, $2, $3, $4)",
                    &[&name.queue, &name.kind, &name.group, &lanes_max],
                )
                .await?;
            let id = BatchId(row.try_get(0)?);
            let lane = i64::from(row.try_get::<_, i32>(1)?);
            let is_awaited = awaited.contains(&place);
            let is_watched = is_awaited || batch.options.hooks.is_some();
            if is_watched && may_be_over(&batch) {
                ended.add_all(id);
            }
            let mut circumstances = Circumstances {
                earlier: &ids,
                is_awaited,
                ..Circumstances::default()
            };
            if let Some(params) = hits_params(&batch, now) {
                let params = params
                    .iter()
                    .map(|param| &**param as &(dyn tokio_postgres::types::ToSql + Sync));
                let params: Vec<_> = params.collect();
                circumstances.hits = read_hits(&transaction.query(HITS, &params).await?)?;
            }
            writes.submit(now, id, lane, &batch, circumstances)?;
            ids.push(id);
        }
        for (sql, params) in writes.into_statements() {
            let params = params
                .iter()
                .map(|param| &**param as &(dyn tokio_postgres::types::ToSql + Sync));
            transaction.execute(sql, &params.collect::<Vec<_>>()).await?;
        }
        if !stored.is_empty() {
            transaction
                .execute("SELECT gristmill.await($1)", &[&stored])
                .await?;
            stored.iter().for_each(|batch| ended.add_all(BatchId(*batch)));
        }
        if !ended.is_empty() {
            let (batches, meant) = ended.into_params();
            transaction
                .execute(
                    "SELECT gristmill.settle($1, $2::int4multirange[], $3)",
                    &[&batches, &meant, &now.0],
                )
                .await?;
        }
        transaction.execute("SELECT gristmill.wake()", &[]).await?;
        Ok(ids)
    }
}

async fn intern_lanes_of_hooks(
    transaction: &tokio_postgres::Transaction<'_>,
    batch: &NewBatch,
    lanes_max: i32,
) -> Result<()> {
    for name in lanes_of_hooks(batch) {
        transaction
            .execute(
                "SELECT gristmill.intern_lane($1, $2, $3, $4)",
                &[&name.queue, &name.kind, &name.group, &lanes_max],
            )
            .await?;
    }
    Ok(())
}
