//! `gristmill memory delete`: no text of a source stays, neither in the knowledge base nor in the jobs that read it.

use crate::memory::knowledge::{answer, command, run, run_json, serve};
use crate::workspace::{Workspace, json_lines};

on_each_store! {
    a_deleted_source_is_erased_from_the_jobs,
}

/// The files of a folder that contain these letters in any case.
fn files_with(workspace: &Workspace, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(workspace.path("")).expect("a folder") {
        let entry = entry.expect("an entry");
        let bytes = std::fs::read(entry.path()).expect("a file").to_ascii_lowercase();
        if bytes.windows(word.len()).any(|window| window == word.as_bytes()) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

fn a_deleted_source_is_erased_from_the_jobs(workspace: fn() -> Workspace) {
    let workspace = workspace();
    let (_runtime, service) = serve(|text, _| answer(text));
    let (kb, jobs) = (
        workspace.database_or("kb.db"),
        workspace.database_or("kb.jobs.db"),
    );
    let (kb, jobs) = (kb.as_str(), jobs.as_str());
    workspace
        .write("secret.txt", "ADA KING: Quokkas whisper in Zanzibar.\n")
        .write("notes.md", "# Bees\n\nBees like Drums.\n");
    let ingest = |source: &[&str]| {
        let options = ["--into", kb, "--quiet", "--base-url", &service.base_url];
        run(&workspace, &[&["ingest"], source, &options[..]].concat()).expect(0);
    };
    ingest(&["secret.txt", "notes.md"]);
    std::fs::remove_file(workspace.path("secret.txt")).expect("removes");
    let payloads = || -> Vec<String> {
        let listed = ["jobs", "--kind", "extract", "--json", "--store", jobs];
        let rows = json_lines(&run(&workspace, &listed).expect(0));
        let show = rows.iter().map(|row| {
            let job = row["job"].as_str().expect("an id").to_owned();
            let shown = run_json(&workspace, &["show", &job, "--json", "--store", jobs]);
            shown.to_string().to_lowercase()
        });
        show.collect()
    };
    let before = payloads();
    assert!(before.iter().any(|job| job.contains("quokkas")), "{before:?}");
    if kb == "kb.db" {
        assert_eq!(files_with(&workspace, "quokkas"), ["kb.db", "kb.jobs.db"]);
    }

    run(&workspace, &["memory", "delete", kb, "secret.txt"]).expect(0);
    for word in ["quokkas", "zanzibar"] {
        assert_eq!(files_with(&workspace, word), [""; 0], "{word}");
        let after = payloads();
        assert!(
            !after.is_empty() && !after.iter().any(|job| job.contains(word)),
            "{after:?}"
        );
    }
    run(&workspace, &["recall", kb, "Quokkas"]).expect(1);
    // The extractions of other sources stay, so their texts are not read again.
    let calls = service.calls_total();
    ingest(&["notes.md", "--replace"]);
    assert_eq!(service.calls_total(), calls);
    let found = run_json(&workspace, &["recall", kb, "Drums", "--json"]);
    assert_eq!(found["messages"].as_array().map(Vec::len), Some(1), "{found}");
    // A second deletion keeps them, too. A third leaves none.
    workspace.write("more.txt", "BOB RAY: Wombats dig in Hobart.\n");
    ingest(&["more.txt"]);
    let told = run(&workspace, &["memory", "delete", kb, "more.txt"]).expect(0);
    assert!(told.starts_with("1 source and "), "{told}");
    let calls = service.calls_total();
    ingest(&["notes.md", "--replace"]);
    assert_eq!(service.calls_total(), calls);
    let told = run_json(&workspace, &["memory", "delete", kb, "notes.md", "--json"]);
    assert_eq!(told["sources"], 1, "{told}");
    assert!(payloads().is_empty());
}

#[test]
fn a_source_is_not_deleted_while_another_program_ingests() {
    let workspace = Workspace::new();
    workspace.write("notes.md", "# Bees\n\nBees like Drums.\n");
    let options = ["--into", "kb.db", "--quiet", "--extractor", "local"];
    run(&workspace, &[&["ingest", "notes.md"], &options[..]].concat()).expect(0);
    // The ingestion waits for lines.
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let (lines, end) = std::io::pipe().expect("a pipe");
    let ingest = [
        &["ingest", "-", "--name", "a.jsonl", "--on-batch-committed", "-"],
        &options[..],
    ]
    .concat();
    let mut child = command(&workspace, &ingest)
        .stdin(lines)
        .stdout(writer)
        .spawn()
        .expect("starts");
    let mut first = [0; 1];
    std::io::Read::read_exact(&mut reader, &mut first).expect("the source is planned");
    let error = run(&workspace, &["memory", "delete", "kb.db", "notes.md"]).error();
    assert!(
        error.contains("another process is ingesting into kb.db"),
        "{error}"
    );
    drop(end);
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    run(&workspace, &["memory", "delete", "kb.db", "notes.md"]).expect(0);
}
