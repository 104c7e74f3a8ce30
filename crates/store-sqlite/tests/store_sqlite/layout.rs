//! Migrations of files between layouts: tables change by migrations, code as a whole.

use std::sync::Barrier;
use std::thread;

use gristmill_store::layout::{Layout, LayoutError};
use gristmill_store_sqlite::layout as sqlite;
use rusqlite::Connection;

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

/// A next version that fails in the middle.
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

    // The same tables, with the code of a later release: 10 comes after 9.
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

/// Each thread has its own connection, like a process. One migrates the file, and the others wait for it.
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

/// Released files never change. A version made of other files belongs to no release.
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
