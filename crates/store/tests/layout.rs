//! How databases come from one layout to another: tables by migrations, code as a whole.

use std::sync::Barrier;
use std::thread;

use gristmill_private_postgres::shared;
use gristmill_store::layout::postgres::SchemaLayout;
use gristmill_store::layout::{Layout, LayoutError, postgres, sqlite};
use rusqlite::Connection;
use tokio_postgres::{Client, NoTls};

/// The first version of a small layout.
const FIRST: Layout = Layout {
    tables: &["CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT NOT NULL);"],
    code: &[
        "CREATE VIEW shown AS SELECT id, body FROM note;",
        "CREATE VIEW obsolete AS SELECT 1 AS one;
         CREATE TRIGGER kept AFTER INSERT ON note BEGIN UPDATE note SET body = NEW.body || '!' WHERE id = NEW.id; END;",
    ],
};

/// The same tables, with a changed view and without another.
const OTHER_CODE: Layout = Layout {
    code: &["CREATE VIEW shown AS SELECT id, upper(body) AS body FROM note;"],
    ..FIRST
};

/// The next version.
const SECOND: Layout = Layout {
    tables: &[
        FIRST.tables[0],
        "ALTER TABLE note RENAME COLUMN body TO words; ALTER TABLE note ADD COLUMN at INTEGER NOT NULL DEFAULT 7;",
    ],
    code: &["CREATE VIEW shown AS SELECT id, words || ' at ' || at AS body FROM note;"],
};

/// A next version that cannot be carried out to the end.
const BROKEN: Layout = Layout {
    tables: &[
        FIRST.tables[0],
        "ALTER TABLE note ADD COLUMN at INTEGER; ALTER TABLE missing ADD COLUMN at INTEGER;",
    ],
    code: FIRST.code,
};

fn apply(connection: &mut Connection, layout: &Layout) {
    sqlite::apply(connection, layout, |_| Ok(())).unwrap();
}

fn shown(connection: &Connection) -> String {
    connection
        .query_row("SELECT group_concat(body) FROM shown", [], |row| row.get(0))
        .unwrap()
}

fn names(connection: &Connection) -> Vec<String> {
    let mut statement = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type IN ('view', 'trigger') ORDER BY name")
        .unwrap();
    let names = statement.query_map([], |row| row.get(0)).unwrap();
    names.collect::<Result<_, _>>().unwrap()
}

#[test]
fn views_and_triggers_are_replaced_as_a_whole() {
    let mut connection = Connection::open_in_memory().unwrap();
    apply(&mut connection, &FIRST);
    connection
        .execute_batch("INSERT INTO note VALUES (1, 'a'); CREATE VIEW mine AS SELECT body FROM note;")
        .unwrap();
    assert_eq!(shown(&connection), "a!");
    assert_eq!(names(&connection), ["kept", "mine", "obsolete", "shown"]);

    apply(&mut connection, &OTHER_CODE);
    connection
        .execute_batch("INSERT INTO note VALUES (2, 'b')")
        .unwrap();
    assert_eq!(
        shown(&connection),
        "A!,B",
        "neither the old view nor the old trigger"
    );
    assert_eq!(
        names(&connection),
        ["mine", "shown"],
        "a view of somebody else stays"
    );
    let found = sqlite::read(&connection).unwrap().unwrap();
    assert_eq!((found.version, found.code), (1, OTHER_CODE.code_digest()));
}

#[test]
fn a_migration_changes_the_tables_below_the_views() {
    let mut connection = Connection::open_in_memory().unwrap();
    apply(&mut connection, &FIRST);
    connection
        .execute_batch("INSERT INTO note VALUES (1, 'a')")
        .unwrap();
    apply(&mut connection, &SECOND);
    assert_eq!(shown(&connection), "a! at 7");
    let changes = connection.total_changes();
    apply(&mut connection, &SECOND);
    assert_eq!(connection.total_changes(), changes, "nothing is written again");
}

#[test]
fn a_failed_migration_changes_nothing() {
    let mut connection = Connection::open_in_memory().unwrap();
    apply(&mut connection, &FIRST);
    connection
        .execute_batch("INSERT INTO note VALUES (1, 'a')")
        .unwrap();
    let before = sqlite::read(&connection).unwrap();
    let error = sqlite::apply(&mut connection, &BROKEN, |_| Ok(())).unwrap_err();
    let LayoutError::Failed { found: 1, cause } = error else {
        panic!("{error:?}");
    };
    assert!(cause.to_string().contains("no such table: missing"), "{cause}");
    assert_eq!(sqlite::read(&connection).unwrap(), before);
    assert_eq!(names(&connection), ["kept", "obsolete", "shown"]);
    assert_eq!(shown(&connection), "a!");
}

#[test]
fn a_layout_of_a_newer_program_is_left_alone() {
    let mut connection = Connection::open_in_memory().unwrap();
    apply(&mut connection, &SECOND);
    let error = sqlite::apply(&mut connection, &FIRST, |_| Ok(())).unwrap_err();
    assert!(
        matches!(&error, LayoutError::Newer(found) if found.version == 2),
        "{error:?}"
    );

    // The same tables, with the code of a program that was released later: 10 comes after 9.
    let code = OTHER_CODE.code_digest();
    connection
        .execute("UPDATE layout SET code = ?1, program = '999.10.0'", [&code])
        .unwrap();
    let error = sqlite::apply(&mut connection, &SECOND, |_| Ok(())).unwrap_err();
    assert!(
        matches!(&error, LayoutError::Newer(found) if found.program == "999.10.0"),
        "{error:?}"
    );
    connection
        .execute("UPDATE layout SET program = '0.0.9'", [])
        .unwrap();
    apply(&mut connection, &SECOND);
}

/// Each has a connection of its own, as processes have. One brings the file to the layout, and the others wait for it.
#[test]
fn many_migrate_a_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shared.db");
    let opened = |layout: Layout| {
        let mut connection = Connection::open(&file).unwrap();
        connection
            .busy_timeout(std::time::Duration::from_secs(30))
            .unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        apply(&mut connection, &layout);
        connection
    };
    opened(FIRST)
        .execute_batch("INSERT INTO note VALUES (1, 'a')")
        .unwrap();
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                assert_eq!(shown(&opened(SECOND)), "a! at 7");
            });
        }
    });
}

/// Released files never change. A version that was made of other files is that of no release.
#[test]
fn tables_that_no_release_made_are_left_alone() {
    const CHANGED: Layout = Layout {
        tables: &[
            "CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT);",
            SECOND.tables[1],
        ],
        code: SECOND.code,
    };
    const CHANGED_FIRST: Layout = Layout {
        tables: &[CHANGED.tables[0]],
        ..FIRST
    };
    let mut connection = Connection::open_in_memory().unwrap();
    apply(&mut connection, &FIRST);
    for layout in [CHANGED, CHANGED_FIRST] {
        let error = sqlite::apply(&mut connection, &layout, |_| Ok(())).unwrap_err();
        assert!(matches!(error, LayoutError::Development), "{error:?}");
    }
    apply(&mut connection, &SECOND);
}

#[test]
fn a_file_of_a_development_version_is_told_from_a_new_one() {
    let connection = Connection::open_in_memory().unwrap();
    assert!(sqlite::read(&connection).unwrap().is_none());
    connection
        .execute_batch("CREATE TABLE refinery_schema_history (version INTEGER)")
        .unwrap();
    assert!(matches!(sqlite::read(&connection), Err(LayoutError::Development)));
}

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
    lock: (1_196_576_076, 99),
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

/// The next version, with changed functions and without some.
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
async fn many_migrate_a_schema_at_once() {
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
async fn a_schema_of_a_development_version_is_told_from_a_new_one() {
    let client = connect(&shared().create_database().unwrap()).await;
    assert!(FIRST_SCHEMA.read(&client).await.unwrap().is_none());
    client
        .batch_execute("CREATE SCHEMA notes; CREATE TABLE notes.migration (version integer)")
        .await
        .unwrap();
    let error: postgres::Error = FIRST_SCHEMA.read(&client).await.unwrap_err();
    assert!(matches!(error, LayoutError::Development), "{error:?}");
}
