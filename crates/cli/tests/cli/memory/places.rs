//! One file is one source, from whichever folder it is named, and files of one name in two folders are two.

use crate::memory::knowledge::{command, run};
use crate::workspace::{Ended, Workspace};

/// Runs the program in a folder of the workspace.
fn run_in(workspace: &Workspace, folder: &str, arguments: &[&str]) -> Ended {
    let mut command = command(workspace, arguments);
    command.current_dir(workspace.path(folder));
    Ended::from(command.output().expect("runs"))
}

/// Ingests a source into `kb.db` beside the folder, from within the folder.
fn ingest_in(workspace: &Workspace, folder: &str, source: &str, flags: &[&str]) -> Ended {
    let up = if folder.is_empty() { "kb.db" } else { "../kb.db" };
    let arguments = ["ingest", source, "--into", up, "--extractor", "local"];
    run_in(workspace, folder, &[&arguments, flags].concat())
}

/// The names of the sources.
fn sources(workspace: &Workspace) -> Vec<String> {
    let listed = run(workspace, &["memory", "sources", "kb.db", "--json"]).expect(0);
    let names = crate::workspace::json_lines(&listed).into_iter();
    names
        .map(|source| source["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn from_root(workspace: &Workspace, path: &str) -> String {
    let path = workspace.path(path).canonicalize().expect("a file");
    path.display().to_string()
}

fn finds(workspace: &Workspace, word: &str) -> bool {
    run(workspace, &["recall", "kb.db", word]).code == Some(0)
}

fn two_years() -> Workspace {
    let workspace = Workspace::new();
    for (year, text) in [("2023", "Bees hum.\n"), ("2024", "Wasps drum.\n")] {
        std::fs::create_dir(workspace.path(year)).expect("a folder");
        workspace.write(&format!("{year}/notes.md"), text);
    }
    workspace
}

#[test]
fn files_of_one_name_in_two_folders_are_two_sources() {
    let workspace = two_years();
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(0);
    ingest_in(&workspace, "2024", "notes.md", &[]).expect(0);
    let other = from_root(&workspace, "2024/notes.md");
    assert_eq!(sources(&workspace), [other, "notes.md".to_owned()]);
    assert!(finds(&workspace, "bees") && finds(&workspace, "wasps"));
    // Each is found again under its name.
    workspace.write("2024/notes.md", "Hornets drum.\n");
    let changed = ingest_in(&workspace, "2024", "notes.md", &[]);
    assert!(changed.stderr.contains("1 replaced"), "{}", changed.stderr);
    let unchanged = ingest_in(&workspace, "2023", "notes.md", &[]);
    assert!(
        unchanged.stderr.contains("nothing is new"),
        "{}",
        unchanged.stderr
    );
    assert!(finds(&workspace, "bees") && finds(&workspace, "hornets") && !finds(&workspace, "wasps"));
}

#[test]
fn a_file_is_one_source_however_it_is_spelled() {
    let workspace = two_years();
    let whole = from_root(&workspace, "2023/notes.md");
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(0);
    workspace.write("2023/notes.md", "Bees hum.\nBees dance.\n");
    ingest_in(&workspace, "", "2023/notes.md", &[]).expect(0);
    assert_eq!(
        sources(&workspace),
        ["2023/notes.md"],
        "also where it has changed"
    );
    ingest_in(&workspace, "2024", &whole, &[]).expect(0);
    assert_eq!(sources(&workspace), std::slice::from_ref(&whole));
    let twice = [
        "ingest",
        "2023/notes.md",
        &whole,
        "2024/../2023/notes.md",
        "--into",
        "kb.db",
    ];
    run(&workspace, &[&twice[..], &["--extractor", "local"]].concat()).expect(0);
    assert_eq!(sources(&workspace), ["2023/notes.md"]);
    assert!(finds(&workspace, "dance"));
}

#[test]
fn files_of_other_folders_are_neither_pruned_nor_mistaken_when_they_are_retried() {
    let workspace = two_years();
    std::fs::create_dir_all(workspace.path("2024/mails")).expect("folders");
    std::fs::create_dir_all(workspace.path("2023/mails")).expect("folders");
    workspace
        .write("2023/mails/a.md", "Bees in mails.\n")
        .write("2023/mails/gone.md", "Moths in mails.\n")
        .write("2023/chat.jsonl", "{\"text\": \"Bees chat.\"}\nno JSON\n")
        .write("2024/mails/b.md", "Wasps in mails.\n")
        .write("2024/chat.jsonl", "{\"text\": \"Hornets chat.\"}\n");
    ingest_in(&workspace, "2023", ".", &[]).expect(1);
    ingest_in(&workspace, "2024", "mails", &["--prune-missing"]).expect(0);
    assert!(
        finds(&workspace, "moths"),
        "the folder 2023/mails has another file"
    );
    workspace.write(
        "2023/chat.jsonl",
        "{\"text\": \"Bees chat.\"}\n{\"text\": \"Moths chat.\"}\n",
    );
    let retry = [
        "ingest",
        "--retry-failed",
        "--into",
        "../kb.db",
        "--extractor",
        "local",
    ];
    run_in(&workspace, "2024", &retry).expect(0);
    assert!(!finds(&workspace, "hornets"), "2024/chat.jsonl is another file");
    let failed = run(&workspace, &["memory", "sources", "kb.db", "--failed"]);
    assert_eq!(failed.expect(0), "", "2023/chat.jsonl was read again");
    std::fs::remove_file(workspace.path("2023/mails/gone.md")).expect("removes");
    let piped = [
        "ingest",
        "-",
        "--name",
        "mails/piped.md",
        "--into",
        "../kb.db",
        "--extractor",
        "local",
    ];
    let mut piped = command(&workspace, &piped);
    piped.current_dir(workspace.path("2023"));
    piped.stdin(std::fs::File::open(workspace.path("2024/notes.md")).expect("a file"));
    Ended::from(piped.output().expect("runs")).expect(0);
    ingest_in(&workspace, "2023", "mails", &["--prune-missing"]).expect(0);
    let left = sources(&workspace);
    let ends = |ending: &str| left.iter().any(|name| name.ends_with(ending));
    assert!(
        ends("mails/a.md") && ends("mails/b.md") && ends("mails/piped.md"),
        "{left:?}"
    );
    assert!(!ends("mails/gone.md"), "{left:?}");
}
