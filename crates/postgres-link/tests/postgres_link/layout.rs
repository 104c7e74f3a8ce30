//! Changes of schemas from one layout to another: tables by migrations, code as a whole.

use gristmill_postgres_link::layout::{Error, SchemaLayout};
use gristmill_private_postgres::shared;
use gristmill_store::layout::{Layout, LayoutError};
use tokio_postgres::{Client, NoTls};

const REVOKE: &str = "
    DO $$
    DECLARE
        made regprocedure;
    BEGIN
        FOR made IN SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'notes'::regnamespace
            AND oid <> ALL (current_setting('gristmill.functions_before')::oid[])
        LOOP
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', made);
        END LOOP;
    END
    $$;";

/// The first version of a small layout.
const FIRST_SCHEMA: SchemaLayout = SchemaLayout {
    schema: "notes",
    layout: Layout {
        tables: &["CREATE TABLE notes.note (id integer PRIMARY KEY, body text NOT NULL);"],
        code: &[
            "CREATE OR REPLACE FUNCTION notes.decorated(body text) RETURNS text LANGUAGE sql AS $$ SELECT body || '!' $$;
             CREATE OR REPLACE FUNCTION notes.obsolete(body text) RETURNS text LANGUAGE sql AS $$ SELECT body $$;
             CREATE OR REPLACE FUNCTION notes.noted() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN NEW.body := upper(NEW.body); RETURN NEW; END $$;",
            "CREATE OR REPLACE VIEW notes.shown AS SELECT id, notes.decorated(body) AS body FROM notes.note;
             CREATE OR REPLACE VIEW notes.obsolete_view AS SELECT notes.obsolete(body) FROM notes.note;
             CREATE OR REPLACE TRIGGER noted BEFORE INSERT ON notes.note FOR EACH ROW EXECUTE FUNCTION notes.noted();",
            REVOKE,
        ],
    },
    stop_others: |_| String::new(),
};

/// The next version. Some functions are changed, and some are missing.
const SECOND_SCHEMA: SchemaLayout = SchemaLayout {
    layout: Layout {
        tables: &[
            FIRST_SCHEMA.layout.tables[0],
            "ALTER TABLE notes.note ADD COLUMN at integer NOT NULL DEFAULT 7;",
        ],
        code: &[
            "CREATE OR REPLACE FUNCTION notes.decorated(body text) RETURNS text LANGUAGE sql AS $$ SELECT body || '?' $$;
             CREATE OR REPLACE FUNCTION notes.added() RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$;",
            "CREATE OR REPLACE VIEW notes.shown AS SELECT id, notes.decorated(body) AS body, at FROM notes.note;",
            REVOKE,
        ],
    },
    ..FIRST_SCHEMA
};

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn text(client: &Client, sql: &str) -> String {
    let row = client.query_one(sql, &[]).await.unwrap();
    row.get::<_, Option<String>>(0).unwrap_or_default()
}

const SHOWN: &str = "SELECT string_agg(body, ',' ORDER BY id) FROM notes.shown";
const OBJECTS: &str = "SELECT string_agg(name, ' ' ORDER BY name) FROM (
    SELECT proname::text FROM pg_proc WHERE pronamespace = 'notes'::regnamespace
    UNION ALL SELECT relname FROM pg_class WHERE relnamespace = 'notes'::regnamespace AND relkind = 'v'
    UNION ALL SELECT tgname FROM pg_trigger WHERE tgrelid = 'notes.note'::regclass) o (name)";

#[tokio::test]
async fn functions_are_replaced_and_keep_their_rights() {
    let url = shared().create_database().unwrap();
    let mut client = connect(&url).await;
    FIRST_SCHEMA.apply(&mut client).await.unwrap();
    client
        .batch_execute(
            "CREATE ROLE reader_of_notes; GRANT EXECUTE ON FUNCTION notes.decorated TO reader_of_notes;
             GRANT EXECUTE ON FUNCTION notes.noted TO PUBLIC; GRANT SELECT ON notes.shown TO reader_of_notes;
             CREATE FUNCTION notes.mine() RETURNS integer LANGUAGE sql AS 'SELECT 5';
             CREATE VIEW public.of_others AS SELECT body FROM notes.shown;
             INSERT INTO notes.note VALUES (1, 'a')",
        )
        .await
        .unwrap();
    assert_eq!(text(&client, SHOWN).await, "A!");
    assert_eq!(
        text(&client, OBJECTS).await,
        "decorated mine noted noted obsolete obsolete_view shown"
    );

    SECOND_SCHEMA.apply(&mut client).await.unwrap();
    client
        .batch_execute("INSERT INTO notes.note VALUES (2, 'b')")
        .await
        .unwrap();
    assert_eq!(text(&client, SHOWN).await, "A?,b?");
    assert_eq!(text(&client, OBJECTS).await, "added decorated mine shown");
    assert_eq!(
        text(&client, "SELECT string_agg(body, ',') FROM public.of_others").await,
        "A?,b?"
    );
    let may = "SELECT concat_ws(' ', has_function_privilege('reader_of_notes', 'notes.decorated(text)', 'EXECUTE'), \
               has_function_privilege('reader_of_notes', 'notes.added()', 'EXECUTE'), \
               has_table_privilege('reader_of_notes', 'notes.shown', 'SELECT'))";
    assert_eq!(
        text(&client, may).await,
        "t f t",
        "old rights stay, and new functions are denied"
    );
    let mut found = SECOND_SCHEMA.read(&client).await.unwrap().unwrap();
    found.objects.sort();
    assert_eq!(
        found.objects,
        [
            "FUNCTION IF EXISTS notes.added()",
            "FUNCTION IF EXISTS notes.decorated(text)",
            "VIEW IF EXISTS notes.shown"
        ]
    );

    let error = FIRST_SCHEMA.apply(&mut client).await.unwrap_err();
    assert!(
        matches!(&error, LayoutError::Newer(found) if found.version == 2),
        "{error:?}"
    );
    assert_eq!(text(&client, SHOWN).await, "A?,b?");
}

#[tokio::test]
async fn a_failed_migration_of_a_schema_changes_nothing() {
    const BROKEN_SCHEMA: SchemaLayout = SchemaLayout {
        layout: Layout {
            tables: &[
                FIRST_SCHEMA.layout.tables[0],
                "DROP VIEW notes.shown; DROP TABLE missing;",
            ],
            code: FIRST_SCHEMA.layout.code,
        },
        ..FIRST_SCHEMA
    };
    let url = shared().create_database().unwrap();
    let mut client = connect(&url).await;
    FIRST_SCHEMA.apply(&mut client).await.unwrap();
    let error = BROKEN_SCHEMA.apply(&mut client).await.unwrap_err();
    assert!(matches!(error, LayoutError::Failed { found: 1, .. }), "{error:?}");
    assert_eq!(FIRST_SCHEMA.read(&client).await.unwrap().unwrap().version, 1);
    assert_eq!(text(&client, SHOWN).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_processes_migrate_a_schema_at_once() {
    let url = shared().create_database().unwrap();
    let mut first = connect(&url).await;
    FIRST_SCHEMA.apply(&mut first).await.unwrap();
    first
        .batch_execute("INSERT INTO notes.note VALUES (1, 'a')")
        .await
        .unwrap();
    let migrating: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move {
                let mut client = connect(&url).await;
                SECOND_SCHEMA.apply(&mut client).await.unwrap();
                text(&client, SHOWN).await
            })
        })
        .collect();
    for migrated in migrating {
        assert_eq!(migrated.await.unwrap(), "A?");
    }
}

#[tokio::test]
async fn a_schema_of_a_development_version_is_not_taken_for_a_new_one() {
    let client = connect(&shared().create_database().unwrap()).await;
    assert!(FIRST_SCHEMA.read(&client).await.unwrap().is_none());
    client
        .batch_execute("CREATE SCHEMA notes; CREATE TABLE notes.migration (version integer)")
        .await
        .unwrap();
    let error: Error = FIRST_SCHEMA.read(&client).await.unwrap_err();
    assert!(matches!(error, LayoutError::Development), "{error:?}");
}
