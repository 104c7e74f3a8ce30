//! `ingest` names each message that it cannot read, and stores all others.

use crate::memory::knowledge::run;
use crate::workspace::Workspace;

const MAILS: &str = "From ada Mon May  1 09:30:00 2023\nFrom: Ada <ada@bees.example>\nSubject: Bees\n\n\
    From Paris, bees hum.\n\n";

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_stored() {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("in")).expect("a folder");
    workspace
        .write(
            "in/chat.jsonl",
            "{\"text\": \"Bees hum.\"}\nno JSON\n{\"text\": \"They drum.\"}\n",
        )
        .write("in/empty.md", "\n")
        .write("in/Inbox", MAILS)
        .write("in/bee.png", "x")
        .write("in/old.pst", "x");
    let seen = run(&workspace, &["ingest", "--dry-run", "./in/"]);
    assert_eq!(seen.code, Some(1), "{}", seen.stderr);
    assert!(
        seen.stdout.contains("in/Inbox") && seen.stdout.contains("2023-05-01"),
        "{}",
        seen.stdout
    );
    for expected in ["in/bee.png", "readpst", "in/chat.jsonl, line 2: ", "in/empty.md"] {
        assert!(seen.stderr.contains(expected), "{}", seen.stderr);
    }
    let ingested = run(
        &workspace,
        &["ingest", "in", "--into", "kb.db", "--extractor", "local"],
    );
    assert_eq!(ingested.code, Some(1), "{}", ingested.stderr);
    for expected in [
        "in/bee.png",
        "3 messages",
        "unreadable: 1 message",
        "in/empty.md has no text",
    ] {
        assert!(ingested.stderr.contains(expected), "{}", ingested.stderr);
    }
    let failed = run(&workspace, &["memory", "sources", "kb.db", "--failed"]).expect(0);
    assert!(
        failed.starts_with("in/chat.jsonl, line 2: ") && failed.lines().count() == 1,
        "{failed}"
    );

    // The corrected file is read again, and nothing is left on the list.
    workspace.write(
        "in/chat.jsonl",
        "{\"text\": \"Bees hum.\"}\n{\"text\": \"They drum.\"}\n",
    );
    let retried = run(
        &workspace,
        &[
            "ingest",
            "--retry-failed",
            "--into",
            "kb.db",
            "--extractor",
            "local",
        ],
    );
    retried.expect(0);
    assert_eq!(
        run(&workspace, &["memory", "sources", "kb.db", "--failed"]).expect(0),
        ""
    );
}
