//! `gristmill run` as a newcomer uses it: typical inputs, pipes, failures, limits.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Instant;

use serde_json::json;

use crate::workspace::{self, Workspace, exists, json_lines, numbers};

const SAME: &str = "def main(payload):\n    return payload\n";

fn with_same() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("same.py", SAME);
    workspace
}

#[test]
fn inputs_stand_after_the_script_or_before_the_program() {
    let workspace = with_same();
    workspace
        .write("a.jsonl", "1\n2")
        .write("b.jsonl", "3\nnope\n")
        .write("words.txt", "one\n");
    assert_eq!(
        workspace.run("run same.py words.txt --values").expect(0),
        "\"one\"\n"
    );
    assert_eq!(
        workspace.run("run words.txt --values -- tr a-z A-Z").expect(0),
        "\"ONE\"\n"
    );
    for inputs in [
        "a.jsonl b.jsonl",
        "*.jsonl --name pattern",
        "-i a.jsonl -i b.jsonl --name options",
    ] {
        let lines = json_lines(&workspace.run(&format!("run same.py {inputs}")).expect(1));
        let values: Vec<_> = lines[..3].iter().map(|line| line["value"].clone()).collect();
        assert_eq!(values, [1, 2, 3], "{inputs}");
        let message = lines[3]["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("b.jsonl:2: not JSON"), "{message}");
    }
}

#[test]
fn csv_files_share_their_header_and_json_arrays_are_items() {
    let workspace = with_same();
    workspace
        .write("a.csv", "id,name\n1,x")
        .write("b.csv", "id,name\r\n2,y\n3\n")
        .write("c.csv", "name,id\n1,x\n")
        .write("items.json", "[\n  {\"a\": [1,\n 2]},\n  \"x, ]\",\n  tru\n]\n");
    let lines = json_lines(&workspace.run("run same.py a.csv b.csv").expect(1));
    assert_eq!(lines[0]["value"], json!({"id": "1", "name": "x"}));
    assert_eq!(lines[1]["value"], json!({"id": "2", "name": "y"}));
    let message = lines[2]["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("b.csv:3: the row has 1 field"), "{message}");
    let ended = workspace.run("run same.py a.csv c.csv");
    assert!(
        ended.stderr.contains("the header of c.csv differs"),
        "{}",
        ended.stderr
    );
    let lines = json_lines(&workspace.run("run same.py items.json").expect(1));
    assert_eq!(lines[0]["value"], json!({"a": [1, 2]}));
    assert_eq!(lines[1]["value"], json!("x, ]"));
    let message = lines[2]["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("items.json, element 3: not JSON"),
        "{message}"
    );
    assert_eq!(
        workspace
            .run_with("run same.py --format json --values", b"[1, 2]")
            .expect(0),
        "1\n2\n"
    );
}

#[test]
fn new_lines_of_an_input_are_run_by_the_same_command() {
    let workspace = with_same();
    workspace.write("items.txt", "a\nb");
    workspace.run("run same.py items.txt").expect(0);
    // The line feed after the last line makes no item.
    for (text, expected) in [
        ("a\nb\n", "\"a\"\n\"b\"\n"),
        ("a\nb\nc\n", "\"a\"\n\"b\"\n\"c\"\n"),
        ("a\nb\nc\nd", "\"a\"\n\"b\"\n\"c\"\n\"d\"\n"),
    ] {
        workspace.write("items.txt", text);
        assert_eq!(
            workspace.run("run same.py items.txt --values").expect(0),
            expected
        );
    }
    workspace.write("items.txt", "a\nb\nc\ndd\n");
    let error = workspace.run("run same.py items.txt").error();
    assert!(error.contains("its last line, 4, has grown"), "{error}");
}

#[test]
fn every_pipe_is_a_run_of_its_own() {
    let workspace = Workspace::new();
    for (input, expected) in [
        ("a\n", "\"A\"\n"),
        ("b\nc\n", "\"B\"\n\"C\"\n"),
        ("a\n", "\"A\"\n"),
    ] {
        let ended = workspace.run_with("run --format lines --values -- tr a-z A-Z", input.as_bytes());
        assert_eq!(ended.expect(0), expected);
    }
}

#[test]
fn results_are_written_as_soon_as_those_before_them_are() {
    let workspace = Workspace::new();
    workspace.make_pipe("go");
    workspace
        .write(
            "waits.py",
            "def main(payload):\n    if payload == 3:\n        open('go').read()\n    return payload\n",
        )
        .write("items.jsonl", "1\n2\n3\n4\n");
    let mut child = workspace.spawn("run waits.py items.jsonl --values --quiet -j 2", Stdio::null());
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for expected in ["1\n", "2\n"] {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, expected);
    }
    // Only now can the third job end.
    std::fs::write(workspace.path("go"), "x").unwrap();
    let rest: Vec<_> = output.lines().map(Result::unwrap).collect();
    assert_eq!(rest, ["3", "4"]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_run_halts_after_failures_and_resumes_later() {
    let workspace = Workspace::new();
    workspace
        .write(
            "fails.py",
            "def main(payload):\n    assert payload > 300\n    return payload\n",
        )
        .write("items.jsonl", numbers(20_000));
    for (halt, name) in [("3", "count"), ("50%", "percentage")] {
        let command = format!("run fails.py items.jsonl -o out.jsonl --batch 10 -j 1 --json --name {name}");
        let ended = workspace.run(&format!("{command} --halt {halt}"));
        let summary = json_lines(&ended.expect(1)).remove(0);
        assert_eq!(summary["state"], "halted", "{summary}");
        assert!(summary["jobs_ended"].as_u64().unwrap() < 20_000, "{summary}");
        let summary = json_lines(&workspace.run(&command).expect(1)).remove(0);
        assert_eq!(
            (&summary["completed"], &summary["failed"]),
            (&json!(19_700), &json!(300))
        );
    }
}

#[test]
fn a_rate_bounds_the_attempts_and_ends_with_the_run() {
    let workspace = with_same();
    workspace.write("items.jsonl", numbers(6));
    let begun = Instant::now();
    workspace.run("run same.py items.jsonl --rate 10/s").expect(0);
    assert!(begun.elapsed().as_millis() >= 500, "{:?}", begun.elapsed());
    assert_eq!(workspace.run("limit list --json").expect(0), "");
}

#[test]
fn the_interpreter_can_be_named() {
    let workspace = with_same();
    let python = workspace.path("my-python");
    workspace
        .write("my-python", "#!/bin/sh\nMINE=yes exec python3 \"$@\"\n")
        .write(
            "mine.py",
            "import os\ndef main(payload):\n    return os.environ.get('MINE')\n",
        )
        .write("items.jsonl", "1\n");
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let command = "run mine.py items.jsonl --values --python ./my-python";
    assert_eq!(workspace.run(command).expect(0), "\"yes\"\n");
}

/// Shows which secrets of the environment it gets.
const LOOK: &str = "\
import json, os
NAMES = ('GRISTMILL_HOOK_SECRET', 'AGENT_TOKEN', 'GRISTMILL_TOKEN', 'PGPASSWORD', 'PGPASSFILE', 'OPENAI_API_KEY',
         'OPENAI_API_KEY_FILE', 'GRISTMILL_MEMORY', 'MINE')
def main(payload):
    return [name for name in NAMES if name in os.environ]
if __name__ == '__main__':
    print(json.dumps(main(None)))
";

#[test]
fn scripts_and_programs_get_only_passed_secrets() {
    let workspace = Workspace::new();
    workspace.write("look.py", LOOK).write("items.jsonl", "1\n");
    let looks = std::cell::Cell::new(0);
    let look = |script: &str, options: &str, program: &str, memory: &str| -> Vec<String> {
        looks.set(looks.get() + 1);
        let store = format!("--store {}.db", looks.get());
        let mut command = workspace.command(&format!(
            "run {script} items.jsonl --values {store} {options} {program}"
        ));
        for name in [
            "GRISTMILL_HOOK_SECRET",
            "AGENT_TOKEN",
            "GRISTMILL_TOKEN",
            "PGPASSWORD",
            "PGPASSFILE",
            "OPENAI_API_KEY",
            "OPENAI_API_KEY_FILE",
            "MINE",
        ] {
            command.env(name, "c2VjcmV0");
        }
        let output = command.env("GRISTMILL_MEMORY", memory).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script} {options} {program}: {errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let url = "postgresql://me:secret@db/memory";
    for (script, program) in [
        ("look.py", ""),
        ("", "-- python3 look.py"),
        ("", "-- python3 look.py {}"),
    ] {
        assert_eq!(look(script, "", program, url), ["MINE"], "{script} {program}");
        assert_eq!(
            look(script, "--env OPENAI_API_KEY --env PGPASSWORD", program, url),
            ["PGPASSWORD", "OPENAI_API_KEY", "MINE"]
        );
        // The location of a file has no password.
        assert_eq!(
            look(script, "", program, "memory.db"),
            ["GRISTMILL_MEMORY", "MINE"]
        );
    }
    for (wrong, told) in [
        ("A=b", "give only the name of a variable"),
        ("NOT_SET_ANYWHERE", "the environment has no variable"),
    ] {
        let refused = workspace
            .run(&format!("run look.py items.jsonl --env {wrong}"))
            .error();
        assert!(refused.contains(told), "{refused}");
    }
}

#[test]
fn the_file_is_complete_after_each_command() {
    let workspace = with_same();
    workspace.write("items.jsonl", numbers(100));
    for command in [
        "submit same 1 2 3",
        "run same.py items.jsonl",
        "cancel --kind same",
        "jobs",
    ] {
        workspace.run(command).expect(0);
        let log = workspace.path("gristmill.db-wal");
        assert!(
            !exists(&log) || std::fs::metadata(&log).unwrap().len() == 0,
            "{command}"
        );
    }
    std::fs::copy(workspace.path("gristmill.db"), workspace.path("copy.db")).unwrap();
    assert_eq!(
        workspace.run("jobs --store copy.db --limit 999").expect(0),
        workspace.run("jobs --limit 999").expect(0)
    );
}

#[test]
fn a_store_is_copied_while_it_is_used() {
    let workspace = with_same();
    workspace.write("items.jsonl", numbers(100));
    workspace.run("run same.py items.jsonl").expect(0);
    workspace.write_stopping_script(1);
    workspace.write("one.jsonl", "1\n");
    let mut child = workspace.spawn("run stopping.py one.jsonl -j 1", Stdio::null());
    std::fs::read(workspace.path("reached")).unwrap();
    let told = workspace.run("backup gristmill.db copy.db").expect(0);
    assert!(told.starts_with("gristmill.db copied to copy.db: "), "{told}");
    let counts = |store: &str| {
        json_lines(&workspace.run(&format!("stats --json --store {store}")).expect(0)).remove(0)
    };
    assert_eq!(counts("copy.db")["kinds"], counts("gristmill.db")["kinds"]);
    let error = workspace.run("backup gristmill.db copy.db").error();
    assert!(error.contains("copy.db exists; name another file"), "{error}");
    workspace.write("notes.txt", "no database");
    workspace.run("backup notes.txt other.db").error();
    workspace.run("backup none.db other.db").error();
    assert!(!exists(&workspace.path("other.db")));
    std::fs::OpenOptions::new()
        .write(true)
        .open(workspace.path("go"))
        .unwrap()
        .write_all(b"x")
        .unwrap();
    assert!(child.wait().unwrap().success());
}

/// Runs the command from the summary of failures in a shell.
fn run_pasted(workspace: &Workspace, summary: &str) -> workspace::Ended {
    let hint = summary
        .lines()
        .find_map(|line| line.split_once("run them again: "))
        .unwrap_or_else(|| panic!("no command in {summary}"));
    let mut command = std::process::Command::new("sh");
    command.args(["-c", hint.1]).stdin(Stdio::null());
    command.current_dir(workspace.path("."));
    command.output().unwrap().into()
}

#[test]
fn failed_items_run_again_with_a_better_script_and_better_lines() {
    let workspace = Workspace::new();
    let ran = "open('ran.txt', 'a').write(f'{payload}\\n')\n";
    // Two processes run the items, so their order is not fixed.
    let ran_items = || {
        let text = workspace.read("ran.txt");
        let mut items: Vec<String> = text.lines().map(str::to_owned).collect();
        items.sort();
        items.join(" ")
    };
    workspace
        .write(
            "a.py",
            format!("def main(payload):\n    {ran}    return 10 // payload\n"),
        )
        .write("items.jsonl", "1\n0\nnope\n{\n5\n");
    let ended = workspace.run("run a.py items.jsonl -o out.jsonl");
    let summary = ended.stderr.clone();
    ended.expect(1);

    // With a better script and the old lines, one of three completes.
    workspace.write(
        "a.py",
        format!("def main(payload):\n    {ran}    return 10 // (payload or 10)\n"),
    );
    workspace.run("run a.py items.jsonl -o out.jsonl").error();
    let ended = run_pasted(&workspace, &summary);
    assert!(
        ended
            .stderr
            .contains("1 failed item runs again; 2 items cannot be read"),
        "{}",
        ended.stderr
    );
    ended.expect(1);
    assert_eq!(ran_items(), "0 0 1 5");

    // After a line was corrected, only this line runs.
    workspace.write("items.jsonl", "1\n0\n2\n{\n5\n");
    let ended = run_pasted(&workspace, &summary);
    assert!(
        ended
            .stderr
            .contains("1 failed item runs again, 1 with a changed line; 1 item cannot be read"),
        "{}",
        ended.stderr
    );
    ended.expect(1);
    assert_eq!(ran_items(), "0 0 1 2 5");

    // The other line is corrected to one that fails, and then again. A new line is appended.
    workspace.write("items.jsonl", "1\n0\n2\n\"x\"\n5\n6\n");
    run_pasted(&workspace, &summary).expect(1);
    workspace.write("items.jsonl", "1\n0\n2\n4\n5\n6\n");
    run_pasted(&workspace, &summary).expect(0);
    assert_eq!(ran_items(), "0 0 1 2 4 5 6 x");
    let lines = json_lines(&workspace.read("out.jsonl"));
    let values: Vec<_> = lines.iter().map(|line| line["value"].clone()).collect();
    assert_eq!(values, [10, 1, 5, 2, 2, 1]);
    let corrected = lines[3]["job"].as_str().unwrap();
    let shown = workspace.run(&format!("show {corrected}")).expect(0);
    assert!(shown.contains("payload    4"), "{shown}");
    assert_eq!(
        workspace.run("results a.py:items.jsonl").expect(0),
        workspace.read("out.jsonl")
    );
    let listed = json_lines(&workspace.run("runs --json").expect(0)).remove(0);
    let counts = ["completed", "dead", "cancelled"].map(|state| listed["counts"][state].clone());
    assert_eq!(counts, [json!(6), json!(0), json!(0)], "{listed}");
    let again = workspace.run("run a.py items.jsonl --values");
    assert!(again.stderr.contains("nothing ran"), "{}", again.stderr);
    assert_eq!(again.expect(0), "10\n1\n5\n2\n2\n1\n");
}

#[test]
fn moved_lines_do_not_count_as_corrected() {
    let workspace = Workspace::new();
    workspace
        .write("a.py", "def main(payload):\n    return 10 // payload\n")
        .write("items.jsonl", "1\n2\n0\n4\n");
    workspace.run("run a.py items.jsonl").expect(1);
    workspace.write("items.jsonl", "2\n5\n4\n");
    let error = workspace.run("run a.py items.jsonl --retry-failed").error();
    assert!(
        error.contains("correct the lines of failed items in their places"),
        "{error}"
    );
    workspace.write("items.jsonl", "9\n1\n2\n5\n4\n");
    let error = workspace.run("run a.py items.jsonl --retry-failed").error();
    assert!(
        error.contains("item 2 of items.jsonl has changed, and its job did not fail"),
        "{error}"
    );
}

#[test]
fn the_item_and_its_fields_stand_in_the_arguments_of_a_program() {
    let workspace = Workspace::new();
    workspace
        .write("words.txt", "a b\n$(x)\n")
        .write("rows.csv", "id,name\n1,x y\n");
    assert_eq!(
        workspace.run("run words.txt --values -- echo <{}>").expect(0),
        "\"<a b>\"\n\"<$(x)>\"\n"
    );
    assert_eq!(
        workspace
            .run("run rows.csv --values -- echo {name}-{id}-{1}-${none}")
            .expect(0),
        "\"x y-1-{1}-${none}\"\n"
    );
}

#[test]
fn a_misspelt_field_in_the_arguments_is_refused() {
    let workspace = Workspace::new();
    workspace
        .write("rows.csv", "id,name\n1,x\n")
        .write("words.txt", "a\n")
        .write("mixed.jsonl", "nope\n{\"a\":1}\n{\"b\":2}\n");
    let error = workspace.run("run rows.csv -- echo {id} {nmae}").error();
    assert!(
        error.contains("no item has the field `nmae` of {nmae}")
            && error.contains("the first item has id, name"),
        "{error}"
    );
    let error = workspace.run("run words.txt -- awk {print}").error();
    assert!(
        error.contains("the first item is not an object") && error.contains("write { print }"),
        "{error}"
    );
    assert_eq!(workspace.run("runs --json").expect(0), "", "nothing has begun");
    // A field of some items is enough. An unreadable item has no fields.
    workspace.run("run mixed.jsonl -- echo {b}").expect(1);
}

#[test]
fn the_first_item_of_a_slow_pipe_runs_at_once() {
    for (command, lines) in [
        ("run same.py --values --quiet", ["1\n", "2\n"]),
        ("run same.py --values --quiet --format lines", ["a\n", "b\n"]),
        ("run same.py --values --quiet --format csv", ["k\n1\n", "2\n"]),
        ("run --values --quiet -- echo {}", ["1\n", "2\n"]),
    ] {
        let workspace = with_same();
        let mut child = workspace.spawn(command, Stdio::piped());
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        for line in lines {
            input.write_all(line.as_bytes()).unwrap();
            // The pipe stays open, and the item must not wait for others.
            let mut written = String::new();
            output.read_line(&mut written).unwrap();
            let last = line.trim_end().lines().last().unwrap();
            assert!(written.contains(last), "{command}: {written}");
        }
        drop(input);
        assert!(child.wait().unwrap().success(), "{command}");
    }
}

#[test]
fn a_halted_run_stops_at_its_failures() {
    let workspace = Workspace::new();
    workspace
        .write("fails.py", "def main(payload):\n    raise ValueError(payload)\n")
        .write("items.jsonl", numbers(20_000));
    for (halt, least, name) in [("3", 3, "few"), ("500", 500, "many"), ("50%", 20, "part")] {
        let ended = workspace.run(&format!(
            "run fails.py items.jsonl -o out.jsonl -j 2 --name {name} --halt {halt}"
        ));
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("stopped by --halt"), "{}", ended.stderr);
        let hints = ended.stderr.matches("run").count();
        assert!(
            ended.stderr.contains("run them and the rest: ") && !ended.stderr.contains("the same command"),
            "{hints}: {}",
            ended.stderr
        );
        let dead = workspace
            .run(&format!("jobs --run {name} --state dead --count"))
            .expect(0);
        let dead: u64 = dead.trim().parse().unwrap();
        // One more job may have begun in the other process.
        assert!((least..=least + 1).contains(&dead), "{halt}: {dead}");
        let runs = json_lines(&workspace.run("runs --json").expect(0));
        assert_eq!(runs[0]["state"], "halted", "{}", runs[0]);
    }
    workspace.write("fails.py", SAME);
    workspace
        .run("run fails.py items.jsonl -o out.jsonl --name few --retry-failed")
        .expect(0);
    let runs = json_lines(&workspace.run("runs --json").expect(0));
    let few = runs.iter().find(|run| run["name"] == "few").unwrap();
    assert_eq!(
        (&few["state"], &few["counts"]["completed"]),
        (&json!("finished"), &json!(20_000))
    );
}

#[test]
fn a_run_that_halts_at_its_last_item_is_finished() {
    let workspace = Workspace::new();
    workspace
        .write("a.py", "def main(payload):\n    return 10 // payload\n")
        .write("items.jsonl", "1\n2\n0\n");
    workspace
        .run("run a.py items.jsonl -o out.jsonl -j 1 --halt 1")
        .expect(1);
    let runs = json_lines(&workspace.run("runs --json").expect(0));
    assert_eq!(runs[0]["state"], "finished", "{}", runs[0]);
}

#[test]
fn failures_that_are_retried_do_not_halt_a_run() {
    let workspace = Workspace::new();
    workspace
        .write(
            "flaky.py",
            "import gristmill\ndef main(payload):\n    assert gristmill.job().attempt > 1\n",
        )
        .write("items.jsonl", numbers(50));
    for delay in ["0s", "1ms"] {
        workspace
            .run(&format!(
                "run flaky.py items.jsonl --name {delay} --halt 1 --retries 1 --retry-delay {delay}"
            ))
            .expect(0);
    }
}

#[test]
fn a_script_with_inline_dependencies_runs_in_the_environment_that_uv_makes() {
    let workspace = Workspace::new();
    let script = "# /// script\n# dependencies = [\"rich\"]\n# ///\n\
                  import os\ndef main(payload):\n    return os.environ.get('MADE_BY')\n";
    let uv =
        "#!/bin/sh\necho \"$@\" >> asked.txt\n[ \"$1\" = python ] && echo ./made-python\n[ ! -e broken ]\n";
    workspace
        .write("needs.py", script)
        .write("items.jsonl", "1\n")
        .write("uv", uv)
        .write("made-python", "#!/bin/sh\nMADE_BY=uv exec python3 \"$@\"\n");
    for program in ["uv", "made-python"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(workspace.path(program), mode).unwrap();
    }
    let run = |more: &str| -> workspace::Ended {
        let path = std::env::var("PATH").unwrap();
        let folder = workspace.path("");
        let mut command = workspace.command(&format!("run needs.py items.jsonl --values {more}"));
        command.env("PATH", format!("{}:{path}", folder.display()));
        command.output().unwrap().into()
    };
    assert_eq!(run("").expect(0), "\"uv\"\n");
    assert_eq!(
        workspace.read("asked.txt"),
        "sync --quiet --script needs.py\npython find --script needs.py\n"
    );
    workspace.write("broken", "");
    let error = run("--name broken").error();
    assert!(
        error.contains("uv cannot make the environment of needs.py"),
        "{error}"
    );
}

#[test]
fn a_source_without_text_is_told() {
    let workspace = Workspace::new();
    workspace.write("title.md", "# Title\n");
    let ended = workspace.run("ingest title.md --into kb.db --extractor local");
    assert!(
        ended.stderr.contains("the sources have no text"),
        "{}",
        ended.stderr
    );
    ended.expect(0);
}

#[test]
fn a_run_of_another_program_is_offered_another_name_first() {
    let workspace = with_same();
    workspace
        .write("other.py", SAME)
        .write("items.jsonl", "1\n")
        .run("run same.py items.jsonl --name mine")
        .expect(0);
    let error = workspace.run("run other.py items.jsonl --name mine").error();
    let at = |hint: &str| error.find(hint).unwrap_or_else(|| panic!("{hint}: {error}"));
    assert!(error.contains("is of another program"), "{error}");
    assert!(at("--name") < at("--retry-failed"), "{error}");
    workspace.write("same.py", format!("{SAME}\n"));
    let error = workspace.run("run same.py items.jsonl --name mine").error();
    let at = |hint: &str| error.find(hint).unwrap_or_else(|| panic!("{hint}: {error}"));
    assert!(at("--retry-failed") < at("--name"), "{error}");
}
