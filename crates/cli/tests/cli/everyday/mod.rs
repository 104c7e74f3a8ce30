//! The steps of a newcomer with queues.

mod check;
mod doors;
mod json;
mod places;
mod submit;
mod terminal;
mod texts;
mod webhook;

use serde_json::{Value, json};

use crate::workspace::{Workspace, json_lines, send_signal};

const PAGE: &str =
    "def main(payload):\n    if payload == 3:\n        raise ValueError('three')\n    return payload\n";

fn json_of(workspace: &Workspace, command: &str) -> Vec<Value> {
    json_lines(&workspace.run(command).expect(0))
}

#[test]
fn a_script_runs_the_kind_with_the_name_of_its_file() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE);
    workspace.run("submit page 1 2").expect(0);
    workspace.run("submit mail 1").expect(0);
    workspace.run("submit page 5 --queue slow").expect(0);
    let ended = workspace.run("worker page.py --drain");
    assert!(
        ended
            .stderr
            .contains("gristmill: serves the kind page on the queue default\n"),
        "{}",
        ended.stderr
    );
    for warning in [
        "1 job waits that no worker serves: kind mail, queue default",
        "kind page, queue slow",
    ] {
        assert!(ended.stderr.contains(warning), "{}", ended.stderr);
    }
    assert_eq!(ended.code, Some(0));
    let quiet = workspace.run("worker page.py --drain --quiet");
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    assert_eq!(workspace.run("jobs --state completed --count").expect(0), "2\n");
}

#[test]
fn submitted_jobs_have_three_attempts_and_jobs_of_runs_one() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE).write("items.jsonl", "3\n");
    workspace.run("submit page 1").expect(0);
    workspace
        .run("schedule put nightly page --every 1h --overlap skip")
        .expect(0);
    workspace.run("schedule trigger nightly").expect(0);
    for job in json_of(&workspace, "jobs --json") {
        let shown = json_of(
            &workspace,
            &format!("show {} --json", job["job"].as_str().unwrap()),
        )
        .remove(0);
        assert_eq!(
            shown["options"]["retry"],
            json!({"attempts_max": 3, "backoff": "jitter", "delay_ms": 1000, "delay_ms_max": 300_000})
        );
    }
    workspace
        .run("run page.py -i items.jsonl --name r --output out.jsonl")
        .expect(1);
    assert_eq!(json_of(&workspace, "jobs --run r --json")[0]["attempt"], 1);
}

#[test]
fn fields_for_keys_and_tags_are_checked() {
    let workspace = Workspace::new();
    workspace.write(
        "items.jsonl",
        "{\"paid\":true,\"url\":\"a\"}\n{\"paid\":false,\"url\":\"b\"}\n",
    );
    let submit = |more: &str| workspace.run(&format!("submit page --input items.jsonl {more}"));
    for (more, told) in [
        ("--key-field ulr", "--key-field ulr: no payload has a text"),
        ("--tag-field payd", "--tag-field payd: no payload has a text"),
        (
            "--debounce 5s",
            "--debounce merges jobs with the same key: give --key or --key-field",
        ),
    ] {
        let error = submit(more).error();
        assert!(error.contains(told), "{error}");
    }
    assert!(
        workspace
            .run("submit page 1 --tag-field paid")
            .error()
            .contains("--tag-field paid")
    );
    submit("--tag-field paid --key-field url").expect(0);
    assert_eq!(
        workspace.run("jobs --count").expect(0),
        "2\n",
        "refused submits store nothing"
    );
    assert_eq!(workspace.run("jobs --tag paid=true --count").expect(0), "1\n");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let workspace = Workspace::new();
    workspace.write(
        "evil.py",
        "def main(payload):\n    print('\\x1b[2J')\n    raise ValueError('\\x1b]0;mine\\x07 \\x9b31m')\n",
    );
    workspace
        .run("submit evil \"\u{9b}31m\u{7f}\" --retries 0")
        .expect(0);
    workspace.run("worker evil.py --drain --quiet").expect(1);
    for command in ["show 1:0", "jobs"] {
        let shown = workspace.run(command).expect(0);
        assert!(shown.contains("mine"), "{command}: {shown}");
        let harmful: Vec<char> = shown
            .chars()
            .filter(|letter| letter.is_control() && *letter != '\n')
            .collect();
        assert!(harmful.is_empty(), "{command} prints {harmful:?}");
    }
}

#[test]
fn a_missing_object_ends_with_status_1() {
    let workspace = Workspace::new();
    workspace.run("submit page 1").expect(0);
    for (command, told) in [
        ("results nope", "run `nope` does not exist"),
        ("results --batch 9", "batch 9 does not exist"),
        ("schedule trigger nope", "schedule `nope` does not exist"),
        ("wait 9", "batch 9 does not exist"),
        ("wait 1:7", "job 1:7 does not exist"),
        ("limit lift --all", ""),
        ("resume --queue default", ""),
    ] {
        let ended = workspace.run(command);
        assert!(ended.stderr.contains(told), "{command}: {}", ended.stderr);
        assert_eq!(ended.code, Some(1), "{command}");
    }
    let error = workspace.run("limit set --concurrency 2").error();
    assert!(
        error.contains("--each-group") && !error.contains("--batch"),
        "{error}"
    );
    let error = workspace
        .run("limit set --kind page --rate 10/s --per 1m")
        .error();
    assert!(error.contains("omit the unit, or --per"), "{error}");
    workspace.run("limit set --kind page --rate 6/m").expect(0);
    let limits = workspace.run("limit list --json").expect(0);
    assert!(limits.contains("\"period_ms\":60000"), "{limits}");
    workspace.run("limit lift --kind page").expect(0);
    let help = workspace.run("limit list --help").expect(0);
    assert!(
        help.contains("for each limit") && !help.contains("pause"),
        "{help}"
    );
    let error = workspace.run("pause").error();
    assert!(
        error.contains("--batch") && !error.contains("--each-group"),
        "{error}"
    );
}

#[test]
fn show_says_what_a_job_waits_on() {
    let workspace = Workspace::new();
    workspace.run("submit page 1").expect(0);
    workspace.run("limit set --kind page --concurrency 2").expect(0);
    workspace.run("limit set --kind mail --concurrency 0").expect(0);
    workspace.run("limit set --all --rate 5/s").expect(0);
    let shown = workspace.run("show 1:0").expect(0);
    let reasons = |shown: &str| {
        let lines = shown.lines().filter(|line| line.starts_with("waits on"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&shown), ["waits on   a worker: none is registered"]);
    workspace.run("limit set --kind page --concurrency 0").expect(0);
    let shown = workspace.run("show 1:0").expect(0);
    assert_eq!(
        reasons(&shown),
        [
            "waits on   a limit of kind page: at most 0 running",
            "waits on   a worker: none is registered"
        ]
    );
}

#[test]
fn show_names_the_prerequisites_of_a_blocked_job() {
    let workspace = Workspace::new();
    for _ in 0..2 {
        workspace.run("submit page 1 2").expect(0);
    }
    workspace
        .run("submit page 3 --after 2:1 --after 1 --after-failure fail")
        .expect(0);
    let shown = workspace.run("show 3:0").expect(0);
    for line in [
        "waits on   batch 1: 2 waiting; if one does not complete: fail",
        "waits on   2:1: 1 waiting; if one does not complete: fail",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let shown = &json_of(&workspace, "show 3:0 --json")[0];
    assert_eq!(shown["prerequisites"][0]["batch"], 1, "{shown}");
}

#[test]
fn a_full_limit_is_named_while_it_is_full() {
    let workspace = Workspace::new();
    workspace.write_stopping_script(1);
    workspace.run("submit stopping 1 2 --group acme").expect(0);
    workspace.run("submit stopping 3 --group other").expect(0);
    workspace
        .run("limit set --kind stopping --each-group --concurrency 1")
        .expect(0);
    let worker = workspace.spawn(
        "worker stopping.py --quiet --drain -j 1",
        std::process::Stdio::null(),
    );
    std::fs::read(workspace.path("reached")).unwrap();
    let limit = "a limit of kind stopping, each group: at most 1 running";
    assert!(workspace.run("show 1:1").expect(0).contains(limit));
    assert!(!workspace.run("show 2:0").expect(0).contains(limit));
    std::fs::write(workspace.path("go"), "x").unwrap();
    assert!(worker.wait_with_output().unwrap().status.success());
}

#[test]
fn pauses_are_seen_in_listings_and_by_workers() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE);
    workspace.run("submit page 1 2").expect(0);
    workspace.run("submit page 4 --group acme").expect(0);
    workspace.run("submit mail 1").expect(0);
    workspace.run("pause 1:0 --reason mine").expect(0);
    workspace
        .run("pause --kind page --group acme --reason stocktaking")
        .expect(0);
    workspace.run("pause --kind mail --reason outage").expect(0);
    let listed = workspace.run("jobs").expect(0);
    let line = |start: &str| {
        let line = listed.lines().find(|line| line.starts_with(start)).unwrap();
        line.to_owned()
    };
    assert!(line("1:0").contains("paused "), "{listed}");
    assert!(!line("1:1").contains("paused"), "{listed}");
    assert!(line("2:0").contains("waiting, paused: stocktaking"), "{listed}");
    let rows = json_of(&workspace, "jobs --json");
    assert_eq!(rows[1]["pauses"], json!([]));
    assert_eq!(rows[2]["pauses"][0]["reason"], "stocktaking");
    let queues = workspace.run("queues").expect(0);
    assert!(queues.contains("stocktaking (group acme)"), "{queues}");
    let rows = json_of(&workspace, "queues --json");
    assert_eq!(
        (&rows[0]["kind"], &rows[0]["pauses"][0]["reason"]),
        (&json!("mail"), &json!("outage"))
    );
    let ended = workspace.run("worker page.py --drain");
    for line in [
        "left behind: a pause holds 1 job of kind page on queue default: gristmill jobs --state paused",
        "left behind: a pause holds 1 job of kind page on queue default (stocktaking); to resume: \
         gristmill resume --kind page --group acme --reason stocktaking",
    ] {
        assert!(ended.stderr.contains(line), "{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("outage"), "{}", ended.stderr);
    ended.expect(0);
    workspace
        .run("resume --kind page --group acme --reason stocktaking")
        .expect(0);
    workspace.run("resume 1:0 --reason mine").expect(0);
    let ended = workspace.run("worker page.py --drain");
    assert!(!ended.stderr.contains("left behind"), "{}", ended.stderr);
}

#[test]
fn ended_runs_leave_no_queues_behind() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE).write_stopping_script(1);
    workspace.write("one.jsonl", "1\n");
    workspace.run("submit page 1").expect(0);
    workspace.run_with("run page.py", b"1\n2\n").expect(0);
    let queues = |rows: Vec<Value>| -> Vec<String> {
        let names = rows.iter().map(|row| row["queue"].as_str().unwrap().to_owned());
        names.collect()
    };
    assert_eq!(queues(json_of(&workspace, "queues --json")), ["default"]);
    let run = workspace.spawn("run stopping.py one.jsonl --name r", std::process::Stdio::null());
    std::fs::read(workspace.path("reached")).unwrap();
    assert_eq!(queues(json_of(&workspace, "queues --json")), ["default", "run:r"]);
    std::fs::write(workspace.path("go"), "x").unwrap();
    assert!(run.wait_with_output().unwrap().status.success());
}

#[test]
fn show_names_the_cause_of_a_cancel() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE);
    workspace.run("submit page 1 3 --retries 0").expect(0);
    workspace.run("submit page 1 --after 1").expect(0);
    workspace.run("submit page 1 --after 2:0").expect(0);
    workspace.run("worker page.py --drain --quiet").expect(1);
    for (job, cause, state) in [("2:0", "1:1", "dead"), ("3:0", "2:0", "cancelled")] {
        let shown = workspace.run(&format!("show {job}")).expect(0);
        let line = format!(
            "\ncause      job {cause}, which it waited for, ended as {state}; `gristmill show {cause}` shows it\n"
        );
        assert!(shown.contains(&line), "{shown}");
        let shown = json_of(&workspace, &format!("show {job} --json")).remove(0);
        assert_eq!(shown["cause"], json!({"job": cause, "state": state}));
    }
    workspace.run("submit page 1").expect(0);
    workspace.run("cancel 4:0").expect(0);
    let shown = workspace.run("show 4:0").expect(0);
    assert!(
        shown.contains("cancelled") && !shown.contains("cause "),
        "{shown}"
    );
}

#[test]
fn show_prints_an_error_once() {
    let workspace = Workspace::new();
    workspace
        .write("page.py", PAGE)
        .write("boom.sh", "echo kaboom >&2\nexit 3\n");
    workspace.run("submit page 3 --retries 0").expect(0);
    workspace.run("submit boom 3 --retries 0").expect(0);
    workspace.run("worker page.py boom.sh --drain --quiet").expect(1);
    let shown = workspace.run("show 1:0").expect(0);
    assert_eq!(shown.matches("ValueError: three").count(), 1, "{shown}");
    assert!(shown.contains("page.py"), "{shown}");
    let shown = workspace.run("show 2:0").expect(0);
    assert_eq!(
        shown.matches("kaboom").count(),
        2,
        "the error and the log: {shown}"
    );
}

#[test]
fn jobs_of_schedules_are_tagged() {
    let workspace = Workspace::new();
    workspace
        .run("schedule put nightly page --every 1h --tag region=eu --tag size=s --complete-within 5m")
        .expect(0);
    workspace.run("schedule trigger nightly").expect(0);
    let count = workspace.run("jobs --tag region=eu --tag size=s --count");
    assert_eq!(count.expect(0), "1\n");
    let shown = &json_of(&workspace, "show 1:0 --json")[0];
    assert_eq!(shown["options"]["complete_within_ms"], 300_000);
    let error = workspace
        .run("schedule put nightly page --every 1h --tag region")
        .error();
    assert!(error.contains("write name=value"), "{error}");
}

#[test]
fn an_interval_has_no_time_zone_and_a_calendar_day_is_an_expression() {
    let workspace = Workspace::new();
    let error = workspace
        .run("schedule put nightly page --every 1d --time-zone Europe/Berlin")
        .error();
    assert!(
        error.contains("does not take --time-zone with --every"),
        "{error}"
    );
    assert!(error.contains("--cron @daily"), "{error}");
    workspace
        .run("schedule put nightly page --cron @midnight --time-zone Europe/Berlin")
        .expect(0);
    let listed = workspace.run("schedule list").expect(0);
    assert!(listed.contains("@midnight (Europe/Berlin)"), "{listed}");
}

#[test]
fn the_next_jobs_are_listed_in_the_order_of_claims() {
    let workspace = Workspace::new();
    workspace.run("submit page 1 2").expect(0);
    workspace.run("submit page 3 --priority 5").expect(0);
    workspace.run("submit mail 1 2 3 --queue post").expect(0);
    workspace.run("submit page 4 --delay 1h").expect(0);
    let ids = |more: &str| -> Vec<String> {
        let rows = json_of(&workspace, &format!("jobs --next --json {more}"));
        let ids = rows.iter().map(|row| row["job"].as_str().unwrap().to_owned());
        ids.collect()
    };
    assert_eq!(ids(""), ["2:0", "1:0", "1:1", "3:0", "3:1", "3:2"]);
    assert_eq!(ids("--limit 2"), ["2:0", "1:0"]);
    assert_eq!(ids("--queue post"), ["3:0", "3:1", "3:2"]);
    assert_eq!(ids("--kind page"), ["2:0", "1:0", "1:1"]);
    workspace.run("limit set --kind mail --concurrency 1").expect(0);
    workspace.run("pause --kind page").expect(0);
    assert_eq!(ids(""), ["3:0"]);
    workspace.run("pause --kind mail").expect(0);
    let none = workspace.run("jobs --next");
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert!(
        none.stderr.contains("no job can be claimed now"),
        "{}",
        none.stderr
    );
    let refused = workspace.run("jobs --next --state dead");
    assert!(
        refused.stderr.contains("cannot be used with"),
        "{}",
        refused.stderr
    );
    let refused = workspace.run("jobs --next --limit 1001");
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("at most 1000 jobs"), "{}", refused.stderr);
}

#[test]
fn jobs_are_listed_by_time() {
    let workspace = Workspace::new();
    assert_eq!(workspace.run("submit page 1 2 3").code, Some(0));
    workspace.run("submit mail 1 2").expect(0);
    let ids = |more: &str| -> Vec<String> {
        let rows = json_of(&workspace, &format!("jobs --json {more}"));
        let ids = rows.iter().map(|row| row["job"].as_str().unwrap().to_owned());
        ids.collect()
    };
    assert_eq!(ids("--newest --limit 3"), ["2:1", "2:0", "1:2"]);
    assert_eq!(ids("--newest --kind page --limit 2"), ["1:2", "1:1"]);
    assert_eq!(ids("--newest --kind none"), [""; 0]);
    assert_eq!(ids("--since 1h").len(), 5);
    assert!(ids("--until 1h").is_empty() && ids("--since 0s").is_empty());
    let more = workspace.run("jobs --newest --limit 4");
    assert!(more.stderr.contains("older jobs match"), "{}", more.stderr);
    assert_eq!(
        workspace.run("jobs --since 1h --kind mail --count").expect(0),
        "2\n"
    );
    workspace.run("cancel --until 1h").expect(0);
    assert_eq!(workspace.run("jobs --state waiting --count").expect(0), "5\n");
    workspace.run("cancel --since 1h --kind mail").expect(0);
    assert_eq!(workspace.run("jobs --state cancelled --count").expect(0), "2\n");
}

#[test]
fn a_wait_that_gives_up_leaves_the_file_whole() {
    let workspace = Workspace::new();
    workspace.write_stopping_script(1);
    workspace.run("submit stopping 1").expect(0);
    for stopped in ["timeout", "signal"] {
        // A worker that is killed leaves commits beside the file.
        let mut worker = workspace.spawn("worker stopping.py --quiet", std::process::Stdio::null());
        std::fs::read(workspace.path("reached")).unwrap();
        worker.kill().unwrap();
        worker.wait().unwrap();
        let log = workspace.path("gristmill.db-wal");
        assert!(std::fs::metadata(&log).unwrap().len() > 0, "the case needs a log");
        match stopped {
            "timeout" => {
                assert_eq!(workspace.run("wait 1 --timeout 10ms").code, Some(1));
            }
            _ => {
                let waiting = workspace.spawn("wait 1", std::process::Stdio::null());
                // It is interrupted after it has opened the store. An earlier signal would end it at once.
                wait_for_open(&waiting, "gristmill.db");
                send_signal(&waiting, "-INT");
                assert_eq!(waiting.wait_with_output().unwrap().status.code(), Some(130));
            }
        }
        assert!(
            !log.exists() || std::fs::metadata(&log).unwrap().len() == 0,
            "{stopped}"
        );
        workspace.run("retry --all").code.unwrap();
    }
}

/// Waits until a process has a file open.
fn wait_for_open(child: &std::process::Child, name: &str) {
    let begun = std::time::Instant::now();
    let folder = format!("/proc/{}/fd", child.id());
    let is_open = || {
        let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|path| path.ends_with(name))
    };
    while !is_open() {
        assert!(begun.elapsed().as_secs() < 30, "the file is not opened");
        std::thread::yield_now();
    }
}

#[test]
fn wait_ends_with_the_jobs_and_says_how_they_ended() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE);
    workspace.run("submit page 1 2").expect(0);
    workspace.run("submit page 3 --retries 0").expect(0);
    let ended = workspace.run("wait 1 --timeout 10ms");
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("batch 1 has not ended after 10.0 ms"),
        "{}",
        ended.stderr
    );
    let waiting = workspace.spawn("wait 1 1:1", std::process::Stdio::null());
    workspace.run("worker page.py --drain --quiet").expect(1);
    let waited = waiting.wait_with_output().unwrap();
    assert!(waited.status.success());
    assert_eq!(
        String::from_utf8(waited.stdout).unwrap(),
        "batch 1 has ended: 2 completed\njob 1:1 has ended: 1 completed\n"
    );
    let told = json_lines(&workspace.run("wait 2 --json").expect(1)).remove(0);
    assert_eq!((&told["batch"], &told["counts"]["dead"]), (&json!(2), &json!(1)));
    assert!(
        workspace
            .run("wait x")
            .error()
            .contains("neither a batch (42) nor a job (42:7)")
    );
}

#[test]
fn the_history_has_an_end() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE);
    workspace.run("submit page 1 2").expect(0);
    workspace.run("worker page.py --drain --quiet").expect(0);
    let history = |more: &str| json_of(&workspace, &format!("history --json {more}"));
    assert_eq!(history("--since 1h --until 0s")[0]["completed"], 2);
    assert!(history("--since 2h --until 1h").is_empty());
}

#[test]
fn queues_and_workers_are_listed() {
    let workspace = Workspace::new();
    workspace.run("submit page 1 2").expect(0);
    workspace.run("submit mail 1 --queue slow").expect(0);
    let listed = workspace.run("queues").expect(0);
    assert!(listed.starts_with("queue    kind  waiting"), "{listed}");
    let rows = json_of(&workspace, "queues --json");
    assert_eq!(
        (&rows[0]["kind"], &rows[0]["waiting"], &rows[1]["queue"]),
        (&json!("page"), &json!(2), &json!("slow"))
    );
    assert_eq!(json_of(&workspace, "jobs --count --json")[0]["waiting"], 3);
    let none = workspace.run("workers");
    assert_eq!(
        (none.code, none.stderr.as_str()),
        (Some(0), "no worker is registered\n")
    );
    workspace.write_stopping_script(1);
    let worker = workspace.spawn(
        "worker stopping.py --kind page --quiet --drain",
        std::process::Stdio::null(),
    );
    std::fs::read(workspace.path("reached")).unwrap();
    let rows = json_of(&workspace, "workers --json");
    assert_eq!(
        (rows.len(), rows[0]["process_id"].as_u64()),
        (1, Some(worker.id().into()))
    );
    assert_eq!(
        (&rows[0]["queues"], &rows[0]["kinds"]),
        (&json!(["default"]), &json!(["page"]))
    );
    let listed = workspace.run("workers").expect(0);
    assert!(
        listed.contains("queues   kinds") && listed.contains("default  page"),
        "{listed}"
    );
    // The worker that runs serves other jobs than this one.
    let shown = workspace.run("show 2:0").expect(0);
    let unserved = "waits on   a worker: none of the 1 registered serves the kind mail on the queue slow";
    assert!(shown.contains(unserved), "{shown}");
    workspace.write("other.py", PAGE);
    let other = workspace.run("worker other.py --drain");
    let warning = "1 job waits that no worker serves: kind mail, queue slow";
    assert!(other.stderr.contains(warning), "{}", other.stderr);
    assert!(!other.stderr.contains("kind page"), "{}", other.stderr);
    std::fs::write(workspace.path("go"), "x").unwrap();
    assert!(worker.wait_with_output().unwrap().status.success());
}

/// The payloads of all jobs of a kind.
fn payloads(workspace: &Workspace, kind: &str) -> Vec<Value> {
    let jobs = json_lines(&workspace.run(&format!("jobs --kind {kind} --json")).expect(0));
    let shown = jobs.iter().map(|job| {
        let show = format!("show {} --json", job["job"].as_str().unwrap());
        json_lines(&workspace.run(&show).expect(0)).remove(0)["payload"].take()
    });
    shown.collect()
}

#[test]
fn a_submit_and_a_schedule_tell_how_they_ended() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE).write("items.jsonl", "1\n3\n");
    workspace
        .run("submit page --input items.jsonl --retries 0 --batch 1 --on-success done --on-failure failed")
        .expect(0);
    workspace
        .run("schedule put nightly page 1 --every 1h --on-success done --on-failure failed")
        .expect(0);
    workspace.run("schedule trigger nightly").expect(0);
    workspace.run("worker page.py --drain --quiet").expect(1);
    let failed = payloads(&workspace, "failed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(
        (&failed[0]["batch"], &failed[0]["completed"], &failed[0]["dead"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let done = payloads(&workspace, "done");
    assert_eq!((done.len(), &done[0]["name"]), (1, &json!("nightly")), "{done:?}");
}

#[test]
fn a_run_tells_once_that_it_has_finished() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE).write("items.jsonl", "1\n2\n");
    let run = "run page.py items.jsonl --name pages --output out.jsonl --on-success done --on-failure failed";
    workspace.run(run).expect(0);
    workspace.run(run).expect(0);
    let done = payloads(&workspace, "done");
    assert_eq!(done.len(), 1, "{done:?}");
    let told = [
        &done[0]["run"],
        &done[0]["outcome"],
        &done[0]["completed"],
        &done[0]["batch"],
    ];
    assert_eq!(
        told,
        [&json!("pages"), &json!("success"), &json!(2), &Value::Null]
    );
    assert!(payloads(&workspace, "failed").is_empty());
}

#[test]
fn wrong_hooks_are_refused_by_name() {
    let workspace = Workspace::new();
    let many: String = (0..10_001).map(|number| format!("{number}\n")).collect();
    workspace.write("many.jsonl", many);
    for (command, told) in [
        (
            "submit page 1 --key a --on-success done",
            "jobs with keys cannot have hooks",
        ),
        (
            "submit page 1 --on-success ftp://a",
            "`ftp://a` is not a URL for a hook",
        ),
        (
            "submit page --input many.jsonl --on-failure failed",
            "at most 10,000 jobs",
        ),
        ("worker --http-hooks a/b", "`a/b` is not a host for webhooks"),
    ] {
        let ended = workspace.run(command);
        assert_eq!(ended.code, Some(2), "{command}: {}", ended.stderr);
        assert!(ended.stderr.contains(told), "{command}: {}", ended.stderr);
    }
}
