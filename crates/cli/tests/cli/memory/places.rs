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
    assert_eq!(sources(&workspace), ["notes.md"], "also where it has changed");
    ingest_in(&workspace, "2024", &whole, &[]).expect(0);
    assert_eq!(sources(&workspace), ["notes.md"]);
    assert!(finds(&workspace, "dance"));
    let twice = [
        "ingest",
        "2023/notes.md",
        &whole,
        "2024/../2023/notes.md",
        "--into",
        "kb.db",
    ];
    run(&workspace, &[&twice[..], &["--extractor", "local"]].concat()).expect(0);
    assert_eq!(sources(&workspace), ["notes.md"]);
    assert!(finds(&workspace, "dance"));
}

#[test]
fn a_file_with_the_name_of_another_source_is_read() {
    let workspace = two_years();
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(0);
    workspace.write("notes.md", "Hornets sting.\n");
    ingest_in(&workspace, "", ".", &[]).expect(0);
    for word in ["bees", "wasps", "hornets"] {
        assert!(finds(&workspace, word), "{word}");
    }
    assert_eq!(sources(&workspace).len(), 3);
    // A source of that name moves in this ingestion, before the file has its turn.
    let workspace = two_years();
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(0);
    let (old, new) = (workspace.path("2023/notes.md"), workspace.path("2023/a.md"));
    std::fs::rename(old, new).expect("moves");
    workspace.write("notes.md", "Hornets sting.\n");
    ingest_in(&workspace, "", ".", &[]).expect(0);
    assert_eq!(sources(&workspace), ["2023/a.md", "2024/notes.md", "notes.md"]);
    for word in ["bees", "wasps", "hornets"] {
        assert!(finds(&workspace, word), "{word}");
    }
}

#[test]
fn a_source_that_was_moved_by_hand_is_no_more_the_file_at_its_old_place() {
    for is_moved_first in [true, false] {
        let workspace = two_years();
        ingest_in(&workspace, "", "2023/notes.md", &[]).expect(0);
        std::fs::create_dir(workspace.path("old")).expect("a folder");
        let move_file = || {
            let (old, new) = (workspace.path("2023/notes.md"), workspace.path("old/notes.md"));
            std::fs::rename(old, new).expect("moves");
        };
        if is_moved_first {
            move_file();
        }
        run(
            &workspace,
            &["memory", "move", "kb.db", "2023/notes.md", "old/notes.md"],
        )
        .expect(0);
        if !is_moved_first {
            move_file();
        }
        workspace.write("2023/notes.md", "Hornets sting.\n");
        ingest_in(&workspace, "", "2023/notes.md", &[]).expect(0);
        assert_eq!(sources(&workspace), ["2023/notes.md", "old/notes.md"]);
        let again = ingest_in(&workspace, "", "old/notes.md", &[]);
        assert!(again.stderr.contains("nothing is new"), "{}", again.stderr);
        assert!(finds(&workspace, "bees") && finds(&workspace, "hornets"));
    }
}

#[test]
fn a_file_that_is_away_is_replaced_by_no_other_of_its_name() {
    let workspace = two_years();
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(0);
    std::fs::rename(workspace.path("2023"), workspace.path("2025")).expect("moves");
    ingest_in(&workspace, "2024", "notes.md", &[]).expect(0);
    let other = from_root(&workspace, "2024/notes.md");
    assert_eq!(sources(&workspace), [other.clone(), "notes.md".to_owned()]);
    assert!(finds(&workspace, "bees") && finds(&workspace, "wasps"));
    // With the same content, it has moved.
    let again = ingest_in(&workspace, "2025", "notes.md", &[]);
    assert!(again.stderr.contains("nothing is new"), "{}", again.stderr);
    workspace.write("2025/notes.md", "Bees dance.\n");
    ingest_in(&workspace, "2025", "notes.md", &[]).expect(0);
    assert_eq!(sources(&workspace), [other, "notes.md".to_owned()]);
    assert!(finds(&workspace, "dance") && finds(&workspace, "wasps"));
}

#[test]
fn a_file_is_one_source_behind_links() {
    let workspace = two_years();
    std::os::unix::fs::symlink(workspace.path("2023"), workspace.path("link")).expect("a link");
    ingest_in(&workspace, "", "link", &[]).expect(0);
    ingest_in(&workspace, "", "2023/notes.md", &[]).expect(0);
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(0);
    assert_eq!(sources(&workspace), ["link/notes.md"]);
    // One file with two paths that no link tells, as behind a bind mount.
    let workspace = two_years();
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(0);
    std::fs::remove_file(workspace.path("2024/notes.md")).expect("removes");
    std::fs::hard_link(workspace.path("2023/notes.md"), workspace.path("2024/notes.md")).expect("a link");
    ingest_in(&workspace, "2024", "notes.md", &[]).expect(0);
    assert_eq!(sources(&workspace), ["notes.md"]);
    // A folder that is named by a link is the folder.
    let workspace = two_years();
    std::os::unix::fs::symlink(workspace.path("2023"), workspace.path("link")).expect("a link");
    workspace.write("2023/other.md", "Moths flit.\n");
    ingest_in(&workspace, "", "2023", &[]).expect(0);
    std::fs::remove_file(workspace.path("2023/other.md")).expect("removes");
    ingest_in(&workspace, "", "link", &["--prune-missing"]).expect(0);
    assert_eq!(sources(&workspace), ["2023/notes.md"]);
}

#[test]
fn a_file_that_is_retried_from_elsewhere_is_one_source() {
    let workspace = two_years();
    let chat = "{\"text\": \"Bees chat.\"}\nno JSON\n";
    workspace.write("2023/chat.jsonl", chat);
    ingest_in(&workspace, "2023", "chat.jsonl", &[]).expect(1);
    workspace.write(
        "2023/chat.jsonl",
        chat.replace("no JSON", "{\"text\": \"Moths chat.\"}"),
    );
    ingest_in(&workspace, "", "2023", &["--retry-failed"]).expect(0);
    assert_eq!(sources(&workspace), ["2023/notes.md", "chat.jsonl"]);
    assert!(finds(&workspace, "moths"));
    // A file of the same name is not the one that failed.
    let workspace = two_years();
    workspace.write("2023/chat.jsonl", chat);
    workspace.write("2024/chat.jsonl", "{\"text\": \"Wasps chat.\"}\n");
    ingest_in(&workspace, "2023", "chat.jsonl", &[]).expect(1);
    workspace.write(
        "2023/chat.jsonl",
        chat.replace("no JSON", "{\"text\": \"Moths chat.\"}"),
    );
    ingest_in(&workspace, "2024", "chat.jsonl", &["--retry-failed"]).expect(0);
    assert!(finds(&workspace, "moths") && finds(&workspace, "wasps"));
}

#[test]
fn a_file_that_cannot_be_read_is_not_mistaken_for_another_one_of_its_name() {
    let workspace = two_years();
    let picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    std::fs::write(workspace.path("2023/notes.md"), picture).expect("writes");
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(1);
    ingest_in(&workspace, "2024", "notes.md", &[]).expect(0);
    assert!(finds(&workspace, "wasps"));
    let failed = || run(&workspace, &["memory", "sources", "kb.db", "--failed"]);
    assert!(
        failed().expect(0).contains("notes.md"),
        "2023/notes.md is as it was"
    );
    workspace.write("2023/notes.md", "Bees hum.\n");
    run_in(&workspace, "2024", &retry_into("../kb.db")).expect(0);
    assert!(finds(&workspace, "bees") && finds(&workspace, "wasps"));
    assert_eq!(failed().expect(0), "");
    assert_eq!(sources(&workspace).len(), 2);
    // A file that failed and is gone may be the one that is named now.
    let workspace = two_years();
    std::fs::write(workspace.path("2023/notes.md"), picture).expect("writes");
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(1);
    std::fs::remove_file(workspace.path("2023/notes.md")).expect("removes");
    ingest_in(&workspace, "2024", "notes.md", &[]).expect(0);
    assert_eq!(
        (failed().expect(0), sources(&workspace)),
        (String::new(), vec!["notes.md".to_owned()])
    );
}

const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

/// The names and places of the sources that could not be read.
fn failures(workspace: &Workspace) -> Vec<(String, Option<String>)> {
    let listed = run(workspace, &["memory", "sources", "kb.db", "--failed", "--json"]).expect(0);
    let failures = crate::workspace::json_lines(&listed).into_iter();
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    failures
        .map(|failure| (text(&failure["source"]).expect("a name"), text(&failure["place"])))
        .collect()
}

/// The arguments that read failed sources of a knowledge base again.
fn retry_into(base: &str) -> [&str; 6] {
    ["ingest", "--retry-failed", "--into", base, "--extractor", "local"]
}

fn retry(workspace: &Workspace) -> Ended {
    run(workspace, &retry_into("kb.db"))
}

/// A workspace with files of two years, and the path of the file of 2023, which could not be read.
fn failed_year() -> (Workspace, String) {
    let workspace = two_years();
    std::fs::write(workspace.path("2023/notes.md"), PICTURE).expect("writes");
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(1);
    let place = from_root(&workspace, "2023/notes.md");
    (workspace, place)
}

#[test]
fn a_failure_stays_one_when_its_folder_is_gone_and_can_be_deleted() {
    let (workspace, place) = failed_year();
    std::fs::remove_dir_all(workspace.path("2023")).expect("removes");
    for _ in 0..2 {
        retry(&workspace).expect(1);
        let expected = ("notes.md".to_owned(), Some(place.clone()));
        assert_eq!(failures(&workspace), [expected]);
    }
    // It may be on a disk that is away, so no other file gets its name.
    ingest_in(&workspace, "2024", "notes.md", &[]).expect(0);
    assert_eq!(sources(&workspace), [from_root(&workspace, "2024/notes.md")]);
    assert_eq!(failures(&workspace).len(), 1);
    // The file is there again.
    std::fs::create_dir(workspace.path("2023")).expect("a folder");
    std::fs::write(workspace.path("2023/notes.md"), PICTURE).expect("writes");
    ingest_in(&workspace, "2023", "notes.md", &[]).expect(1);
    assert_eq!(failures(&workspace).len(), 1);
    run(&workspace, &["memory", "delete", "kb.db", "notes.md"]).expect(0);
    assert_eq!(failures(&workspace), []);
}

#[test]
fn a_failure_is_that_of_one_file_behind_two_paths() {
    let (workspace, _) = failed_year();
    std::fs::remove_file(workspace.path("2024/notes.md")).expect("removes");
    std::fs::hard_link(workspace.path("2023/notes.md"), workspace.path("2024/notes.md")).expect("a link");
    ingest_in(&workspace, "2024", "notes.md", &[]).expect(1);
    assert_eq!(failures(&workspace).len(), 1);
    workspace.write("2023/notes.md", "Bees hum.\n");
    ingest_in(&workspace, "2024", "notes.md", &[]).expect(0);
    assert_eq!(
        (sources(&workspace), failures(&workspace)),
        (vec!["notes.md".to_owned()], vec![])
    );
}

#[test]
fn a_pipe_neither_clears_nor_changes_the_failure_of_a_file() {
    let (workspace, place) = failed_year();
    let pipe = |name: &str, file: &str| {
        let arguments = [
            "ingest",
            "-",
            "--name",
            name,
            "--into",
            "kb.db",
            "--extractor",
            "local",
        ];
        let mut piped = command(&workspace, &arguments);
        piped.stdin(std::fs::File::open(workspace.path(file)).expect("a file"));
        Ended::from(piped.output().expect("runs"))
    };
    let expected = ("notes.md".to_owned(), Some(place));
    for (file, code) in [("2023/notes.md", 1), ("2024/notes.md", 0)] {
        pipe("notes.md", file).expect(code);
        assert_eq!(failures(&workspace), std::slice::from_ref(&expected), "{file}");
    }
    // The failure of a pipe is over when the pipe is read, also after a retry that looked for a file of its name.
    pipe("piped.md", "2023/notes.md").expect(1);
    retry(&workspace).expect(1);
    assert_eq!(
        failures(&workspace),
        [expected.clone(), ("piped.md".to_owned(), None)]
    );
    pipe("piped.md", "2024/notes.md").expect(0);
    assert_eq!(failures(&workspace), [expected]);
}

/// Other systems have no such names.
#[cfg(target_os = "linux")]
#[test]
fn files_below_a_folder_whose_name_is_not_utf8_are_not_pruned() {
    use std::os::unix::ffi::OsStrExt;

    let workspace = two_years();
    let folder = workspace.path("").join(std::ffi::OsStr::from_bytes(b"b\xe4h"));
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("notes.md"), "Moths flit.\n").expect("writes");
    for flags in [&[][..], &["--prune-missing"]] {
        let arguments = ["ingest", ".", "--into", "../kb.db", "--extractor", "local"];
        let mut command = command(&workspace, &[&arguments, flags].concat());
        command.current_dir(&folder);
        Ended::from(command.output().expect("runs")).expect(0);
        assert!(finds(&workspace, "moths"));
    }
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
    run_in(&workspace, "2024", &retry_into("../kb.db")).expect(0);
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
