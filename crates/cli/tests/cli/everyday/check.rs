//! `gristmill check`, on both stores.

use crate::workspace::Workspace;

on_each_store! {
    damage_is_listed,
}

const DOUBLE: &str = "def main(payload):\n    return payload * 2\n";

/// Changes the store outside of Gristmill.
fn damage(store: &str, sql: &str) {
    if store.starts_with("postgresql:") {
        let database = store.trim_start_matches("postgresql:///");
        let database = database.split('?').next().unwrap();
        gristmill_private_postgres::shared().psql(database, sql).unwrap();
    } else {
        let connection = rusqlite::Connection::open(store).unwrap();
        connection.execute_batch(&sql.replace("gristmill.", "")).unwrap();
    }
}

fn damage_is_listed(workspace: fn() -> Workspace) {
    let workspace = workspace();
    let file = workspace.path("jobs.db").display().to_string();
    let store = workspace.database_or(&file);
    workspace
        .write("double.py", DOUBLE)
        .write("items.jsonl", "1\n2\n3\n");
    let run = "run double.py --input items.jsonl --output results.jsonl --batch 1";
    workspace.run(&format!("{run} --store {store}")).expect(0);
    workspace
        .run(&format!("submit later 5 --store {store}"))
        .expect(0);
    let clean = workspace.run(&format!("check {store}"));
    assert!(
        clean.stderr.contains("4 batches checked: no damage"),
        "{}",
        clean.stderr
    );
    assert_eq!(clean.expect(0), "");

    damage(&store, "UPDATE gristmill.batch SET payloads = '[6]' WHERE id = 4");
    damage(&store, "UPDATE gristmill.report SET \"values\" = '[7]'");
    let told = workspace.run(&format!("check {store}"));
    assert!(
        told.stderr.contains("4 batches checked: 4 findings of damage"),
        "{}",
        told.stderr
    );
    let told = told.expect(1);
    for line in [
        "batch 1, report: its values have changed since they were stored",
        "batch 4, batch: its payloads or options have changed since they were stored",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}: {told}");
    }
    let json = workspace.run(&format!("check {store} --json")).expect(1);
    let lines: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4, "{json}");
    assert!(
        lines
            .iter()
            .any(|line| line["batch"] == 4 && line["table"] == "batch"),
        "{json}"
    );

    // A command that meets the damage names it, and pauses the rest.
    let error = workspace.run(&format!("show 4:0 --store {store}")).error();
    assert!(error.contains("batch 4 is damaged"), "{error}");
    assert!(error.contains("gristmill cancel --batch 4"), "{error}");
    let listed = workspace
        .run(&format!("jobs --state paused --store {store} --json"))
        .expect(0);
    assert!(listed.contains("4:0"), "{listed}");
    let told = workspace.run(&format!("check {store}")).expect(1);
    assert!(
        told.contains("batch 4, blocked: jobs 0 are paused for the reason `damaged`"),
        "{told}"
    );
}

#[test]
fn a_file_that_is_not_a_store_is_refused() {
    let workspace = Workspace::new();
    let error = workspace.run("check missing.db").error();
    assert!(error.contains("missing.db does not exist"), "{error}");
    workspace.write("text.db", "no database at all, and long enough to look at");
    workspace.run("check text.db").error();
    workspace.run("check").error();
}
