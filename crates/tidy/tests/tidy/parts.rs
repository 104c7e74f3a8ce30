//! `.ci/part` runs a failed test once more, and nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The output of a target whose tests fail at its first run.
const FIRST: &str = "test walks ... ok\ntest flies ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored;\nerror: 1 target failed:";

struct Part {
    passed: bool,
    output: String,
    races: Option<String>,
    runs: usize,
}

/// Runs `.ci/part` beside a Makefile whose target prints `first`, and `second` when it runs again.
fn part(name: &str, first: &str, second: &str, second_status: i32) -> Part {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("build/test")).unwrap();
    fs::create_dir(at(".ci")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/part");
    fs::copy(script, at(".ci/part")).unwrap();
    fs::write(at("first"), format!("{first}\n")).unwrap();
    fs::write(at("second"), format!("{second}\n")).unwrap();
    let recipe = [
        format!("{name}:"),
        r#"@echo "$(AGAIN)" >> runs"#.to_owned(),
        format!(
            r#"@if [ -n "$(AGAIN)" ]; then cat second; exit {second_status}; else cat first; exit 1; fi"#
        ),
    ];
    let recipe = recipe.join("\n\t") + "\n";
    fs::write(at("Makefile"), recipe).unwrap();
    let ended = Command::new("python3")
        .arg(at(".ci/part"))
        .arg(name)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let runs = fs::read_to_string(at("runs")).unwrap();
    Part {
        passed: !at(&format!("build/test/{name}.failed")).exists(),
        output: String::from_utf8(ended.stdout).unwrap(),
        races: fs::read_to_string(at(&format!("build/test/{name}.races"))).ok(),
        runs: runs.lines().count(),
    }
}

#[test]
fn a_test_that_passes_by_itself_is_listed_as_a_race() {
    let part = part("test-crates", FIRST, "running 1 test\ntest flies ... ok", 0);
    assert!(part.passed);
    assert_eq!(part.races.as_deref(), Some("test-crates: flies\n"));
    assert!(
        part.output.contains("flies failed, and passed when it ran again"),
        "{}",
        part.output
    );
}

#[test]
fn a_test_that_fails_again_fails_its_part() {
    let again = part("test-cli", FIRST, "test flies ... FAILED", 2);
    assert!(!again.passed && again.races.is_none());
    assert_eq!(again.runs, 2);
    // A run that finds no such test proves nothing.
    let none = part("test-cli", FIRST, "running 0 tests", 0);
    assert!(!none.passed && none.races.is_none());
}

#[test]
fn other_failures_and_many_failures_run_nothing_again() {
    let aborted = format!("{FIRST}\n  process didn't exit successfully: `x` (signal: 6, SIGABRT)");
    let uncounted = FIRST.replace("test result", "no result");
    let unfinished = FIRST.replace("error: 1 target failed:", "Killed");
    let two_programs = FIRST.replace("1 target", "2 targets");
    let many = "test a ... FAILED\ntest b ... FAILED\ntest c ... FAILED\ntest d ... FAILED\n\
        test result: FAILED. 0 passed; 4 failed; 0 ignored;\nerror: 1 target failed:";
    let firsts = [
        &aborted,
        &uncounted,
        &unfinished,
        &two_programs,
        many,
        "error: could not compile `x`",
    ];
    for first in firsts {
        let part = part("test-scripts", first, "running 1 test\ntest flies ... ok", 0);
        assert!(!part.passed && part.runs == 1, "{first}");
    }
    let lint = part("lint", FIRST, "test flies ... ok", 0);
    assert!(!lint.passed && lint.runs == 1);
}

#[test]
fn failed_tests_of_pytest_run_again() {
    let first =
        "FAILED test_a.py::test_b[1-x] - assert 1 == 2\n1 failed, 9 passed in 2.00s\nmake: *** [x] Error 1";
    let raced = part("test-python", first, "1 passed in 0.10s", 0);
    assert_eq!(
        raced.races.as_deref(),
        Some("test-python: test_a.py::test_b[1-x]\n")
    );
    let error = format!("ERROR test_a.py::test_c - fixture\n{first}");
    let ended_early = first.replace("Error 1", "Error 2");
    for first in [error, ended_early] {
        assert!(
            !part("test-python", &first, "1 passed in 0.10s", 0).passed,
            "{first}"
        );
    }
    assert!(!part("test-python", first, "1 skipped in 0.10s", 0).passed);
}
