//! `gristmill run` from end to end, with real scripts.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::workspace::{self, Ended, Workspace, exists, json_lines, numbers};

on_each_store! {
    a_python_script_runs_over_jsonl_and_the_output_is_in_order,
    bad_lines_fail_with_their_place_and_leave_the_others_alone,
    a_limit_stops_and_the_same_command_without_it_goes_on,
    the_examples_with_children_measure_folders,
    a_process_that_cannot_start_charges_no_item,
}

const WORDS_PY: &str = "def main(payload):\n    return {'words': len(payload['text'].split())}\n";

fn a_python_script_runs_over_jsonl_and_the_output_is_in_order(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    let items: String = (0..2_500)
        .map(|count| format!("{{\"text\": \"{}\"}}\n", "word ".repeat(count % 7)))
        .collect();
    workspace.write("words.py", WORDS_PY).write("items.jsonl", items);
    let ended = workspace.run("run words.py --input items.jsonl --output out.jsonl");
    assert!(
        ended
            .stderr
            .contains("run `words.py:items.jsonl`: all 2,500 jobs completed"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.expect(0), "");
    let lines = json_lines(&workspace.read("out.jsonl"));
    assert_eq!(lines.len(), 2_500);
    for (index, line) in lines.iter().enumerate() {
        let job = format!("{}:{}", index / 1_000 + 1, index % 1_000);
        assert_eq!(*line, json!({"job": job, "value": {"words": index % 7}}));
    }
}

#[test]
fn what_a_script_cannot_end_in_time_is_named_and_the_rest_is_written() {
    let workspace = Workspace::new();
    let script = "import atexit, threading\nlog = open('log', 'w')\n\
        threading.Thread(target=threading.Event().wait, name='uploader').start()\n\
        def refuse():\n    raise ValueError('no space left')\n\
        atexit.register(refuse)\n\
        def main(n):\n    log.write('%d\\n' % n)\n";
    workspace
        .write("lasts.py", script)
        .write("items.jsonl", numbers(200));
    let ended = workspace.run("run lasts.py -i items.jsonl --output out.jsonl -j 1");
    for expected in [
        "after 5000 ms it was still in",
        "uploader",
        "ValueError: no space left",
        "lasts.py",
    ] {
        assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
    }
    ended.expect(0);
    // A slow process gives jobs back, which then run later.
    let log = workspace.read("log");
    let mut written: Vec<u32> = log.lines().map(|line| line.parse().expect("a number")).collect();
    written.sort_unstable();
    assert_eq!(written, (1..=200).collect::<Vec<_>>());
}

#[test]
fn javascript_bash_and_a_program_run_too() {
    let workspace = Workspace::new();
    workspace
        .write(
            "double.mjs",
            "export async function main(payload) { return payload * 2 }\n",
        )
        .write("double.sh", "read -r number\necho $((number * 2))\n")
        .write("items.jsonl", numbers(50));
    let expected: String = (1..=50).map(|number| format!("{}\n", number * 2)).collect();
    for script in ["double.mjs", "double.sh"] {
        let output = workspace
            .run(&format!("run {script} -i items.jsonl --values"))
            .expect(0);
        assert_eq!(output, expected, "{script}");
    }
    let output = workspace
        .run("run -i items.jsonl --values --name cat -- cat")
        .expect(0);
    assert_eq!(output, numbers(50));
}

#[test]
fn parquet_is_read_by_pyarrow_where_the_python_has_it() {
    let workspace = Workspace::new();
    for folder in ["with", "without"] {
        std::fs::create_dir_all(workspace.path(folder).join("pyarrow")).unwrap();
    }
    // Stands for the package, which the tests of the Python package have: one column of the numbers behind the mark of a file.
    let package = "class BaseExtensionType: pass\n";
    let types = "def __getattr__(name): return lambda kind: False\n";
    let parquet = "import json, types\n\
        class Column:\n\
        \x20   type = 'double'\n\
        \x20   def __init__(self, values): self.values = values\n\
        \x20   def to_pylist(self): return self.values\n\
        class ParquetFile:\n\
        \x20   schema = ()\n\
        \x20   def __init__(self, path): self.values = json.loads(open(path).read()[4:])\n\
        \x20   def iter_batches(self, batch_size):\n\
        \x20       schema = types.SimpleNamespace(names=['a'])\n\
        \x20       yield types.SimpleNamespace(schema=schema, columns=[Column(self.values)])\n";
    workspace
        .write("echo.py", "def main(payload):\n    return payload\n")
        .write("with/pyarrow/__init__.py", package)
        .write("with/pyarrow/types.py", types)
        .write("with/pyarrow/parquet.py", parquet)
        .write("without/pyarrow/__init__.py", "raise ImportError('not here')\n")
        .write("items.parquet", "PAR1[\"\u{e9}\", 2, NaN, 3]")
        .write("broken.parquet", "PAR1nonsense");
    let run = |arguments: &str, packages: &str| -> workspace::Ended {
        let mut command = workspace.command(arguments);
        command.env("PYTHONPATH", workspace.path(packages));
        command.output().expect("the program starts").into()
    };
    let error = run("run echo.py items.parquet --quiet", "without").error();
    for part in [
        "items.parquet cannot be opened: it is Parquet",
        "-m pip install pyarrow",
        "--python",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = run("run echo.py broken.parquet --quiet", "with").error();
    assert!(error.contains("JSONDecodeError"), "{error}");
    let results = json_lines(&run("run echo.py items.parquet --quiet", "with").expect(1));
    assert_eq!(results[0]["value"], json!({"a": "\u{e9}"}));
    assert_eq!(results[1]["value"], json!({"a": 2}));
    let message = "items.parquet:3: column `a` has NaN or an infinity, which JSON cannot hold: write null or text instead";
    assert_eq!(results[2]["error"]["message"], message);
    assert_eq!(results[3]["value"], json!({"a": 3}));
}

#[test]
fn csv_lines_gzip_zstd_and_standard_input_are_read() {
    let workspace = Workspace::new();
    workspace.write("same.py", "def main(payload):\n    return payload\n");
    workspace.write("rows.csv", "id,name\n1,\"a, b\"\n2\n3,c\n");
    let ended = workspace.run("run same.py -i rows.csv");
    assert!(
        ended
            .stderr
            .contains("1 × bad_row: rows.csv:3: the row has 1 field, and the header has 2"),
        "{}",
        ended.stderr
    );
    let lines = json_lines(&ended.expect(1));
    assert_eq!(lines[0]["value"], json!({"id": "1", "name": "a, b"}));
    assert_eq!(
        lines[1]["error"]["message"],
        "rows.csv:3: the row has 1 field, and the header has 2"
    );
    assert_eq!(lines[2]["value"], json!({"id": "3", "name": "c"}));

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"one\ntwo\n").unwrap();
    workspace.write("lines.txt.gz", gzip.finish().unwrap());
    workspace.write(
        "lines.txt.zst",
        zstd::encode_all(b"one\ntwo\n".as_slice(), 1).unwrap(),
    );
    for name in ["lines.txt.gz", "lines.txt.zst"] {
        assert_eq!(
            workspace
                .run(&format!("run same.py -i {name} --values"))
                .expect(0),
            "\"one\"\n\"two\"\n"
        );
    }
    assert_eq!(
        workspace
            .run_with("run same.py --format lines --values", b"x\ny")
            .expect(0),
        "\"x\"\n\"y\"\n"
    );
    assert_eq!(
        workspace
            .run_with("run same.py -i - --values --name numbers", b"7\n\n8\n")
            .expect(0),
        "7\n8\n"
    );
    assert_eq!(
        workspace
            .run_with("run same.py --values --name none", b"")
            .expect(0),
        ""
    );
}

fn bad_lines_fail_with_their_place_and_leave_the_others_alone(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    let mut items = b"1\n{\"a\":\n2\n\"\xff\"\n\n".to_vec();
    items.extend(format!("\"{}\"\n3\n", "x".repeat(50 << 20)).into_bytes());
    workspace
        .write("same.py", "def main(payload):\n    return payload\n")
        .write("items.jsonl", items);
    let ended = workspace.run("run same.py -i items.jsonl -o out.jsonl --json");
    let summary = &json_lines(&ended.expect(1))[0];
    assert_eq!(
        (&summary["completed"], &summary["failed"], &summary["blank_lines"]),
        (&json!(3), &json!(3), &json!(1))
    );
    let lines = json_lines(&workspace.read("out.jsonl"));
    let values: Vec<_> = lines.iter().map(|line| line["value"].clone()).collect();
    assert_eq!(
        values,
        [
            json!(1),
            json!(null),
            json!(2),
            json!(null),
            json!(null),
            json!(3)
        ]
    );
    for (index, place) in [
        (1, "items.jsonl:2: not JSON"),
        (3, "items.jsonl:4: not UTF-8"),
        (4, "items.jsonl:6: the line is 52428802 bytes"),
    ] {
        let message = lines[index]["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(place), "{message}");
    }
}

#[test]
fn failures_carry_their_traceback_and_are_counted_by_kind() {
    let workspace = Workspace::new();
    workspace
        .write(
            "picky.py",
            "def main(payload):\n    print('seen', payload)\n    if payload % 10 == 3:\n\
             \x20       raise ValueError(f'no {payload}')\n    return payload\n",
        )
        .write("items.jsonl", numbers(100));
    let ended = workspace
        .run("run picky.py -i items.jsonl -o out.jsonl --retries 1 --retry-delay 1ms --backoff constant");
    assert!(
        ended
            .stderr
            .contains("10 × ValueError: no 3  (gristmill show 1:2)"),
        "{}",
        ended.stderr
    );
    ended.expect(1);
    let lines = json_lines(&workspace.read("out.jsonl"));
    assert!(
        lines[12]["error"]["traceback"]
            .as_str()
            .unwrap()
            .contains("picky.py"),
        "{}",
        lines[12]
    );
    let shown = workspace.run("show 1:12").expect(0);
    for part in [
        "state      dead",
        "attempt    2 of 2",
        "payload    13",
        "attempt 1 failed",
        "ValueError: no 13",
        "seen 13",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let bare = workspace.run("results picky.py:items.jsonl --values").expect(1);
    assert_eq!(bare.lines().filter(|line| *line == "null").count(), 10);
}

fn a_limit_stops_and_the_same_command_without_it_goes_on(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace
        .write("same.py", "def main(payload):\n    return payload\n")
        .write("items.jsonl", numbers(3_000));
    let ended = workspace.run("run same.py -i items.jsonl -o out.jsonl --limit 1500 --batch 100");
    assert!(ended.stderr.contains("stopped at --limit"), "{}", ended.stderr);
    ended.expect(0);
    assert_eq!(workspace.read("out.jsonl").lines().count(), 1_500);
    workspace
        .run("run same.py -i items.jsonl -o out.jsonl --batch 100")
        .expect(0);
    let values: Vec<_> = json_lines(&workspace.read("out.jsonl"))
        .iter()
        .map(|line| line["value"].as_u64())
        .collect();
    assert_eq!(values, (1..=3_000).map(Some).collect::<Vec<_>>());
}

#[test]
fn a_closed_pipe_ends_the_run_quietly() {
    let workspace = Workspace::new();
    workspace
        .write("same.py", "def main(payload):\n    return payload\n")
        .write("items.jsonl", numbers(20_000));
    let mut child = workspace.spawn("run same.py -i items.jsonl --quiet", Stdio::null());
    drop(child.stdout.take());
    let ended: workspace::Ended = child.wait_with_output().unwrap().into();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(141), ""));
    let again = workspace.run("run same.py -i items.jsonl --quiet").expect(0);
    assert_eq!(again.lines().count(), 20_000);
}

/// Runs a command that may have so many files open at once.
fn run_with_files_max(command: &Command, files_max: u32) -> Ended {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("ulimit -n {files_max}; exec \"$0\" \"$@\"")])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(command.get_current_dir().expect("it has a folder"))
        .env_remove("GRISTMILL_STORE")
        .stdin(Stdio::null());
    Ended::from(shell.output().expect("a shell starts"))
}

#[test]
fn a_full_disk_is_named_and_nothing_is_lost() {
    let workspace = Workspace::new();
    workspace
        .write("same.py", "def main(payload):\n    return payload\n")
        .write("items.jsonl", numbers(5_000));
    let error = workspace
        .run("run same.py -i items.jsonl -o /dev/full --quiet")
        .error();
    assert!(
        error.contains("the disk of /dev/full is full: free some space and run the same command again"),
        "{error}"
    );
    workspace.run("run same.py -i items.jsonl -o out.jsonl").expect(0);
    assert_eq!(workspace.read("out.jsonl").lines().count(), 5_000);
}

/// Whatever the number of file descriptors that the process may open: it says that they are too few for it, or all jobs complete.
#[test]
fn too_few_file_descriptors_fail_no_job() {
    let workspace = Workspace::new();
    workspace.write("double.py", "def main(payload):\n    return payload * 2\n");
    let lines: Vec<String> = (0..2_000).map(|number| format!("{number}\n")).collect();
    workspace.write("in.jsonl", lines.concat());
    let mut completed = 0;
    for files in (16..=64).step_by(4) {
        let output = format!("{files}.jsonl");
        let run = format!("run double.py --input in.jsonl --output {output} --store {files}.db -j 4 --quiet");
        let ended = run_with_files_max(&workspace.command(&run), files);
        match ended.code {
            Some(0) => {
                completed += 1;
                assert_eq!(workspace.read(&output).lines().count(), 2_000, "{files}");
            }
            _ => assert!(ended.error().contains("Too many open files"), "{files}"),
        }
    }
    assert!(completed > 3, "{completed}");
}

#[test]
fn what_cannot_be_right_is_refused_with_a_remedy_and_leaves_nothing() {
    let workspace = Workspace::new();
    workspace
        .write("same.py", "def main(payload):\n    return payload\n")
        .write("broken.py", "def main(payload)\n    return payload\n")
        .write("empty.py", "x = 1\n")
        .write("no_flow.py", "async def main(flow, item):\n    return item\n")
        .write("items.jsonl", "1\n")
        .write("plain", "#!/usr/bin/perl\nprint 1;\n")
        .write("rows.csv", "a\n1\n")
        .write("words", "1\n");
    for (arguments, expected) in [
        (
            "run none.py -i items.jsonl",
            "the script none.py does not exist; check its path",
        ),
        (
            "run ./plain items.jsonl",
            "./plain is not executable; allow it with `chmod +x ./plain`",
        ),
        (
            "run items.jsonl -- ./plain",
            "./plain is not executable; allow it with `chmod +x ./plain`",
        ),
        (
            "run same.py items.jsonl --python none/python",
            "--python none/python is not a program",
        ),
        ("run same.py none*.jsonl", "it matches no file"),
        ("run same.py items.jsonl rows.csv", "have different formats"),
        ("run broken.py -i items.jsonl", "SyntaxError"),
        ("run empty.py -i items.jsonl", "no function main"),
        (
            "run no_flow.py -i items.jsonl",
            "no_flow.py: main must take one argument: write `def main(payload):`, or put @gristmill.flow before a flow",
        ),
        (
            "run same.py -i none.jsonl",
            "none.jsonl cannot be opened: No such file",
        ),
        ("run same.py -i words", "give --format jsonl"),
        ("run same.py -i .", "is a folder"),
        (
            "run same.py -i items.jsonl -o items.jsonl",
            "--output items.jsonl is the input",
        ),
        (
            "run same.py -i items.jsonl -o same.py",
            "--output same.py is the script",
        ),
        (
            "run same.py -i items.jsonl -o none/out.jsonl",
            "none/out.jsonl cannot be written",
        ),
        (
            "run same.py -i items.jsonl --name ''\u{1}",
            "the name of a run has",
        ),
        ("run -i items.jsonl -- no-such-program", "no-such-program"),
        (
            "run same.py -i items.jsonl --timeout 30",
            "write a number and ms, s, m, h or d",
        ),
        (
            "run same.py -i items.jsonl --restart --continue",
            "cannot be used with",
        ),
        ("run same.py -i items.jsonl --batch 0", "0 is not in 1..=10000"),
        ("jobs", "the store gristmill.db does not exist"),
    ] {
        let error = workspace.run(&format!(
            "{arguments} {}",
            if arguments.contains("none/out") {
                "--store other.db"
            } else {
                ""
            }
        ));
        let error = error.error();
        assert!(error.contains(expected), "{arguments}: {error}");
        assert!(!exists(&workspace.path("gristmill.db-wal")), "{arguments}");
    }
    assert_eq!(workspace.read("items.jsonl"), "1\n");
}

#[test]
fn a_store_that_is_none_or_cannot_be_written_is_named() {
    let workspace = Workspace::new();
    workspace
        .write("same.py", "def main(payload):\n    return payload\n")
        .write("items.jsonl", "1\n");
    workspace.write("notes.txt", "these are no tables".repeat(100));
    let error = workspace
        .run("run same.py -i items.jsonl --store notes.txt")
        .error();
    assert!(error.contains("notes.txt"), "{error}");
    let error = workspace
        .run("run same.py -i items.jsonl --store none/gristmill.db")
        .error();
    assert!(
        error.contains("none/gristmill.db cannot be opened: its folder does not exist; make the folder"),
        "{error}"
    );
    let error = workspace
        .run("run same.py -i items.jsonl --store /proc/gristmill.db")
        .error();
    assert!(
        error.contains(
            "/proc/gristmill.db cannot be opened: it does not exist, and its folder cannot be written; name a file elsewhere"
        ),
        "{error}"
    );
    assert_eq!(error.matches("gristmill.db").count(), 1, "{error}");
}

fn the_examples_with_children_measure_folders(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["folder_size.py", "largest_files.mjs"] {
        workspace.write(name, std::fs::read(examples.join(name)).unwrap());
    }
    let top = workspace.path("top");
    for (folder, bytes) in [("", 1), ("a", 20), ("a/b", 300), ("a/b/c", 4_000), ("d", 50_000)] {
        std::fs::create_dir_all(top.join(folder)).unwrap();
        std::fs::write(top.join(folder).join("file"), "x".repeat(bytes)).unwrap();
    }
    let items = [json!(top), json!(top.join("a/b")), json!(top.join("nowhere"))];
    workspace.write("items.jsonl", items.map(|item| format!("{item}\n")).concat());

    workspace
        .run("run folder_size.py --input items.jsonl --output sizes.jsonl --retries 0 --json")
        .expect(1);
    let sizes = json_lines(&workspace.read("sizes.jsonl"));
    assert_eq!(
        sizes[0]["value"],
        json!({"bytes": 54_321, "files": 5, "folders": 5})
    );
    assert_eq!(
        sizes[1]["value"],
        json!({"bytes": 4_300, "files": 2, "folders": 2})
    );
    assert_eq!(sizes[2]["error"]["type"], "FileNotFoundError");
    let listed = workspace.run("jobs --parent 1:0 --json").expect(0);
    let listed = json_lines(&listed);
    assert_eq!(listed.len(), 2, "{listed:?}");

    workspace
        .run("run largest_files.mjs --input items.jsonl --output largest.jsonl --retries 0")
        .expect(0);
    let largest = json_lines(&workspace.read("largest.jsonl"));
    let sizes: Vec<_> = largest[0]["value"]["largest"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    let sizes: Vec<_> = sizes.iter().map(|file| file["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [50_000, 4_000, 300]);
    assert_eq!(
        (&largest[0]["value"]["folders"], &largest[0]["value"]["unread"]),
        (&json!(5), &json!(0))
    );
    assert_eq!(largest[1]["value"]["folders"], 2);
    assert_eq!(
        (&largest[2]["value"]["folders"], &largest[2]["value"]["unread"]),
        (&json!(0), &json!(1))
    );
}

/// One process may import the script, and all others are killed at it.
const ONCE_PY: &str = "import fcntl, os, signal, time\n\
    with open(os.path.dirname(os.path.abspath(__file__)) + '/starts', 'a+') as starts:\n\
    \x20   fcntl.flock(starts, fcntl.LOCK_EX)\n\
    \x20   is_first = starts.tell() == 0\n\
    \x20   starts.write('x')\n\
    if not is_first:\n\
    \x20   os.kill(os.getpid(), signal.SIGKILL)\n\
    def main(payload):\n\
    \x20   time.sleep(0.005)\n\
    \x20   return payload\n";

fn a_process_that_cannot_start_charges_no_item(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    workspace
        .write("once.py", ONCE_PY)
        .write("items.jsonl", numbers(300));
    let ended = workspace.run("run once.py items.jsonl -j 4 --output out.jsonl --values");
    assert!(
        ended
            .stderr
            .contains("a process of once.py cannot start; 1 other goes on"),
        "{}",
        ended.stderr
    );
    ended.expect(0);
    assert_eq!(workspace.read("out.jsonl"), numbers(300));
}
