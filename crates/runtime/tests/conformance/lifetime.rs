//! A child never outlives us, whatever our end.

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

use gristmill_runtime::Runtime;
use gristmill_worker::Handler;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde_json::{Value, json};

use crate::harness::{Gate, PATIENCE, Recorder, micro_batch, run, subjects, warm_subjects};

/// Names the runtime in the environment of the program that will be killed.
const VICTIM: &str = "GRISTMILL_TEST_VICTIM";
const VICTIM_TEST: &str = "lifetime::victim";

fn pidfd(pid: i64) -> OwnedFd {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("the process lives")
}

fn parent(pid: i64) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().parse().unwrap()
}

/// Waits until all these processes have ended.
fn await_end(what: &str, processes: &[OwnedFd]) {
    let patience = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    for process in processes {
        let ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(ended, 1, "{what}: a process lives on");
    }
}

fn pids(text: &Value) -> Vec<i64> {
    text.as_array()
        .expect("two process ids")
        .iter()
        .map(|pid| pid.as_i64().unwrap())
        .collect()
}

/// Not a test itself: runs a job that starts its own process, prints both ids, and blocks until it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn victim() {
    let Ok(name) = std::env::var(VICTIM) else { return };
    let subject = subjects()
        .into_iter()
        .find(|subject| subject.name == name)
        .unwrap();
    let handler = subject.handler("actions");
    let gate = Gate::new();
    let payloads = if name == "bash" {
        vec![json!({"do": "spawn", "stay": "yes"})]
    } else {
        vec![json!({"do": "spawn"}), gate.block()]
    };
    let recorder = Arc::new(Recorder::default());
    let running = handler.run(0, micro_batch(&payloads, None), &*recorder);
    let report = async {
        if name != "bash" {
            recorder.until_answered(1).await;
            println!("PIDS {}", recorder.ended()[&0].value());
        }
        std::future::pending::<()>().await
    };
    tokio::join!(running, report);
}

/// Starts this test program again as a victim.
fn start_victim(name: &str) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", VICTIM_TEST, "--nocapture", "--test-threads=1"])
        .env(VICTIM, name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    (victim, output)
}

#[test]
fn nothing_is_left_when_the_parent_is_killed() {
    for subject in warm_subjects() {
        let (mut victim, output) = start_victim(subject.name);
        let line = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("PIDS ").map(|(_, pids)| pids.to_owned()));
        let line = line.expect("the victim says which processes it started");
        let mut pids = pids(&serde_json::from_str(&line).unwrap());
        assert_eq!(pids.len(), 2);
        if subject.runtime == Runtime::Python {
            // Its parent is the fork server.
            let server = parent(pids[0]);
            assert_ne!(server, i64::from(victim.id()));
            pids.push(server);
        }
        let processes: Vec<OwnedFd> = pids.into_iter().map(pidfd).collect();
        victim.kill().unwrap();
        victim.wait().unwrap();
        await_end(subject.name, &processes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_when_the_handler_is_dropped_or_shut_down() {
    for subject in warm_subjects() {
        for graceful in [false, true] {
            let handler = subject.handler("actions");
            let (ended, _) = run(&handler, &[json!({"do": "spawn"})], None).await;
            let processes: Vec<OwnedFd> = pids(ended[0].value()).into_iter().map(pidfd).collect();
            if graceful {
                handler.shut_down().await;
            }
            drop(handler);
            await_end(subject.name, &processes);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_leaves_running_dies_with_its_job() {
    for subject in subjects().into_iter().filter(|subject| subject.name == "bash") {
        let handler = subject.handler("actions");
        let (ended, _) = run(&handler, &[json!({"do": "spawn"})], None).await;
        for pid in pids(ended[0].value()) {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            // Its group was killed before the job was answered. Its reaper may take its time.
            if let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
                await_end("bash", &[process]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_takes_the_whole_group() {
    for subject in warm_subjects() {
        let handler = subject.handler("actions");
        let (ended, _) = run(
            &handler,
            &[json!({"do": "spawn"}), json!({"do": "hang"})],
            Some(1_000),
        )
        .await;
        // The process was alive when it answered. Both are gone when the hang is answered.
        for pid in pids(ended[0].value()) {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            if let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
                await_end(subject.name, &[process]);
            }
        }
        assert_eq!(ended[1].error().error_type, "timeout", "{}", subject.name);
    }
}

#[test]
fn signals_of_the_terminal_do_not_reach_children() {
    for subject in warm_subjects() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let handler = subject.handler("actions");
            let (ended, _) = run(&handler, &[json!({"do": "pid"})], None).await;
            let child = Pid::from_raw(i32::try_from(ended[0].value().as_i64().unwrap()).unwrap()).unwrap();
            let group = rustix::process::getpgid(Some(child)).unwrap();
            assert_eq!(group, child, "{}", subject.name);
            assert_ne!(group, rustix::process::getpgrp());
            // A process that is killed from outside while idle is replaced when there is work.
            rustix::process::kill_process(child, Signal::KILL).unwrap();
            let (after, _) = run(&handler, &[json!({"do": "pid"})], None).await;
            assert_ne!(after[0].value(), ended[0].value(), "{}", subject.name);
        });
    }
}
