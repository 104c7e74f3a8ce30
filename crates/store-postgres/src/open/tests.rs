use std::sync::Arc;

use gristmill_model::limits::{
    ATTEMPTS_MAX, BATCH_BYTES_TARGET, BATCH_JOBS_MAX, CONTROLS_MAX, INTERVAL_MS_MAX, KEPT_EVENTS_MAX,
    KEY_BYTES_MAX, KEY_PERIOD_MS_MAX, LEASE_JOBS_MAX, NAME_BYTES_MAX, PAUSES_PER_JOB_MAX, PAYLOAD_BYTES_MAX,
    PREREQUISITES_MAX, TAG_NAME_BYTES_MAX, TAG_VALUE_BYTES_MAX, TAGS_PER_JOB_MAX, VALUE_BYTES_MAX,
};
use gristmill_model::{NewBatch, PackedArray, SystemClock};
use gristmill_postgres_link::layout::SchemaLayout;
use gristmill_private_postgres::shared;
use gristmill_store::layout::Layout;
use gristmill_store::rules::lanes::LANES_MAX;
use gristmill_store::{Store, StoreError};

use crate::open::LAYOUT;
use crate::{PostgresOptions, PostgresStore};

/// The layout of a later release.
const LATER: SchemaLayout = SchemaLayout {
    layout: Layout {
        tables: &[
            LAYOUT.layout.tables[0],
            "ALTER TABLE gristmill.run ADD COLUMN note text;",
        ],
        code: LAYOUT.layout.code,
    },
    ..LAYOUT
};

/// SQL cannot read the constants of this program. It repeats those that it needs, under names of its own.
#[test]
fn limits_in_sql_are_those_of_the_model() {
    let ten_years = |limit: i64| ("ten_years_ms", limit);
    let known = [
        ("attempts_max", i64::from(ATTEMPTS_MAX)),
        ("bytes_max", number(BATCH_BYTES_TARGET)),
        ("controls_max", number(CONTROLS_MAX)),
        ("jobs_max", i64::from(BATCH_JOBS_MAX)),
        ("kept_max", i64::from(KEPT_EVENTS_MAX)),
        ("key_bytes_max", number(KEY_BYTES_MAX)),
        ("lanes_max", number(LANES_MAX)),
        ("lease_jobs_max", i64::from(LEASE_JOBS_MAX)),
        ("name_bytes_max", number(NAME_BYTES_MAX)),
        ("payload_bytes_max", number(PAYLOAD_BYTES_MAX)),
        ("reasons_max", number(PAUSES_PER_JOB_MAX)),
        ("tag_name_bytes_max", number(TAG_NAME_BYTES_MAX)),
        ("tag_value_bytes_max", number(TAG_VALUE_BYTES_MAX)),
        ("tags_max", i64::from(TAGS_PER_JOB_MAX)),
        ("value_bytes_max", number(VALUE_BYTES_MAX)),
        ten_years(INTERVAL_MS_MAX),
    ];
    assert_eq!(i64::try_from(KEY_PERIOD_MS_MAX), Ok(INTERVAL_MS_MAX));
    let mut found = std::collections::BTreeMap::new();
    for line in LAYOUT.layout.code.iter().flat_map(|file| file.lines()) {
        let code = line.split("--").next().unwrap_or_default();
        let declared = code.trim().split_once(" CONSTANT ").and_then(|(name, rest)| {
            let value = rest.split_once(":= ")?.1.strip_suffix(';')?;
            Some((name, value.parse::<i64>().ok()?))
        });
        if let Some((name, value)) = declared {
            assert_eq!(
                *found.entry(name).or_insert(value),
                value,
                "{name} has two values"
            );
            continue;
        }
        // No other limit may be written as a number.
        let numbers = code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for digits in numbers.filter_map(|word| word.parse::<i64>().ok()) {
            let is_limit = known.iter().any(|(_, limit)| *limit == digits && digits > 1_000);
            assert!(!is_limit, "a limit without a name: {line}");
        }
    }
    // SQL clients may name fewer prerequisites.
    let prerequisites = found.remove("prerequisites_max");
    assert!(prerequisites.is_some_and(|limit| limit <= number(PREREQUISITES_MAX)));
    assert_eq!(found, known.into_iter().collect());
}

fn number(limit: usize) -> i64 {
    i64::try_from(limit).unwrap()
}

/// With CREATE OR REPLACE a second definition would silently take the place of the first.
#[tokio::test]
async fn each_view_function_and_trigger_is_defined_once() {
    let url = shared().create_database().unwrap();
    open(&url).await.unwrap().close().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let objects = LAYOUT.read(&client).await.unwrap().unwrap().objects;
    let lines = LAYOUT.layout.code.iter().flat_map(|file| file.lines());
    let definitions = lines
        .filter(|line| line.starts_with("CREATE OR REPLACE "))
        .count();
    assert_eq!(objects.len(), definitions, "{objects:#?}");
    assert!(definitions > 50, "{definitions}");
}

async fn open(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::open(url, PostgresOptions::new(Arc::new(SystemClock), 1)).await
}

fn job() -> NewBatch {
    NewBatch::new("work", PackedArray::from_stored("[1]"))
}

/// A process that keeps running after a newer one has changed the layout writes nothing more, and says why.
#[tokio::test]
async fn a_changed_layout_stops_the_processes_that_are_at_work() {
    let url = shared().create_database().unwrap();
    let old = open(&url).await.unwrap();
    old.submit(vec![job()], None).await.unwrap();
    old.submit_one(job()).await.unwrap();

    let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    LATER.apply(&mut client).await.unwrap();

    let refusals = [
        old.submit(vec![job()], None).await.map(|_| ()).unwrap_err(),
        old.submit_one(job()).await.map(|_| ()).unwrap_err(),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, StoreError::LayoutChanged { .. }), "{refusal:?}");
        let text = refusal.to_string();
        assert!(text.contains("start that version here, too"), "{text}");
    }
    let jobs: i64 = client
        .query_one("SELECT sum(count) FROM gristmill.batch", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(jobs, 2, "nothing was stored since");
    let error = open(&url).await.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::NewerSchema {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("or newer"), "{error}");
}

/// A migration waits for the operations in progress, and they never wait for it.
#[tokio::test]
async fn a_migration_lets_operations_finish() {
    let url = shared().create_database().unwrap();
    open(&url).await.unwrap().close().await.unwrap();
    let connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        client
    };
    // An operation begins in this way.
    let operation = connect().await;
    operation
        .batch_execute(&format!(
            "SET gristmill.layout = '{}'; BEGIN; INSERT INTO gristmill.writer (id, operation) VALUES ('a', 1)",
            LAYOUT.layout.id()
        ))
        .await
        .unwrap();
    let mut migrating = connect().await;
    let migration = tokio::spawn(async move { LATER.apply(&mut migrating).await });
    let watch = connect().await;
    let waiting =
        "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'gristmill.writer'::regclass)";
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while !watch.query_one(waiting, &[]).await.unwrap().get::<_, bool>(0) {
        assert!(
            !migration.is_finished() && tokio::time::Instant::now() < deadline,
            "the migration does not wait"
        );
        tokio::task::yield_now().await;
    }
    // The migration changes this table.
    operation
        .batch_execute("LOCK TABLE gristmill.run IN ROW EXCLUSIVE MODE; COMMIT")
        .await
        .unwrap();
    migration.await.unwrap().unwrap();
}

/// If `standard_conforming_strings` is off, a backslash in a plain literal escapes, and functions run with the settings
/// of their callers. So literals with backslashes have the form E'…', which means the same everywhere.
#[test]
fn no_literal_depends_on_settings_of_callers() {
    for file in LAYOUT.layout.tables.iter().chain(LAYOUT.layout.code) {
        let code = file
            .lines()
            .map(|line| line.split("--").next().unwrap_or_default());
        for line in code {
            let mut parts = line.split('\'');
            let mut before = parts.next().unwrap_or_default();
            while let Some(literal) = parts.next() {
                let escapes = before.ends_with('E') || before.is_empty();
                assert!(escapes || !literal.contains('\\'), "{line}");
                before = parts.next().unwrap_or_default();
            }
        }
    }
}

/// Logical replication of all tables (`CREATE PUBLICATION … FOR ALL TABLES`) refuses changes of a table without a primary key.
#[tokio::test]
async fn every_table_has_a_primary_key() {
    let url = shared().create_database().unwrap();
    let options = PostgresOptions::new(Arc::new(SystemClock), 7);
    drop(PostgresStore::open(&url, options).await.unwrap());
    let database = url
        .trim_start_matches("postgresql:///")
        .split('?')
        .next()
        .unwrap();
    let without = shared().psql(
        database,
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'gristmill'::regnamespace AND c.relkind IN ('r', 'p') \
         AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)",
    );
    assert_eq!(without.unwrap(), "");
}
