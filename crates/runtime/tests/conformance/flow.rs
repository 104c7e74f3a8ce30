//! The arrival of outcomes, and the effects of a drain, a cancel and more processes.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use gristmill_model::{Positions, Progress};
use gristmill_runtime::{Runtime, RuntimeOptions, ScriptHandler};
use gristmill_worker::Handler;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Ended, Gate, PATIENCE, Recorder, micro_batch, run, subjects, warm_subjects};

pub fn start(
    handler: &Arc<ScriptHandler>,
    payloads: &[serde_json::Value],
) -> (Arc<Recorder>, tokio::task::JoinHandle<()>) {
    start_on(0, handler, payloads)
}

pub fn start_on(
    runner: usize,
    handler: &Arc<ScriptHandler>,
    payloads: &[serde_json::Value],
) -> (Arc<Recorder>, tokio::task::JoinHandle<()>) {
    let recorder = Arc::new(Recorder::default());
    let (handler, sink, work) = (
        Arc::clone(handler),
        Arc::clone(&recorder),
        micro_batch(payloads, None),
    );
    let mut running = Box::pin(async move { handler.run(runner, work, &*sink).await });
    // The runner has the micro-batch before this returns, so that calls come in their order.
    let mut context = Context::from_waker(Waker::noop());
    let running = match running.as_mut().poll(&mut context) {
        Poll::Ready(()) => tokio::spawn(async {}),
        Poll::Pending => tokio::spawn(running),
    };
    (recorder, running)
}

pub async fn finish(running: tokio::task::JoinHandle<()>) {
    tokio::time::timeout(PATIENCE, running)
        .await
        .expect("the micro-batch did not end")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_do_not_wait_for_a_job_that_blocks() {
    for subject in subjects() {
        let handler = Arc::new(subject.handler("actions"));
        let (first, second) = (Gate::new(), Gate::new());
        let (recorder, running) = start(
            &handler,
            &[json!(1), json!(2), first.block(), second.block(), json!(3)],
        );
        recorder.until_answered(2).await;
        first.open("first").await;
        recorder.until_answered(3).await;
        assert_eq!(
            recorder.ended()[&2],
            Ended::Completed(json!("first")),
            "{}",
            subject.name
        );
        second.open("second").await;
        finish(running).await;
        assert_eq!(recorder.ended().len(), 5, "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_says_how_far_it_is() {
    for subject in warm_subjects() {
        let handler = Arc::new(subject.handler("actions"));
        let gate = Gate::new();
        let mut payload = gate.block();
        payload["do"] = json!("progress");
        let (recorder, running) = start(&handler, &[json!(1), payload, json!(2)]);
        let expected = Progress::of(3, 12).message("at the gate");
        let said = |recorder: &Recorder| recorder.progress_of(1) == Some(expected.clone());
        recorder.until("its progress", said).await;
        assert!(!recorder.ended().contains_key(&1), "{}", subject.name);
        gate.open("ended").await;
        finish(running).await;
        assert_eq!(recorder.ended()[&1], Ended::Completed(json!("ended")));
        assert_eq!(recorder.progress_of(0), None, "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_what_has_begun_and_releases_the_rest() {
    for subject in subjects() {
        let handler = Arc::new(subject.handler("actions"));
        let gate = Gate::new();
        let (recorder, running) = start(&handler, &[json!(1), gate.block(), json!(2), json!(3)]);
        recorder.until_answered(1).await;
        // A second micro-batch waits behind the first one, here or in the pipe to the process.
        let (behind, running_behind) = start(&handler, &[json!(4), json!(5)]);
        recorder.drain();
        behind.drain();
        recorder.until_drain_is_heard().await;
        behind.until_drain_is_heard().await;
        gate.open("ended").await;
        finish(running).await;
        finish(running_behind).await;
        let ended: Vec<Ended> = recorder.ended().into_values().collect();
        let expected = [
            Ended::Completed(json!(1)),
            Ended::Completed(json!("ended")),
            Ended::Released,
            Ended::Released,
        ];
        assert_eq!(ended, expected, "{}", subject.name);
        assert!(
            behind.ended().into_values().all(|ended| ended == Ended::Released),
            "{}",
            subject.name
        );
    }
}

/// The signals that this process ignores: bit 0 is signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
}

/// A signal that stops a service may reach its processes before the worker, or after it.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_whose_process_is_stopped_with_their_worker_are_released() {
    // A shell cannot undo that its parent ignores a signal. A process that a shell without job control starts with `&`
    // ignores SIGINT.
    let ignores_interrupts = ignored_signals() & (1 << (Signal::INT.as_raw() - 1)) != 0;
    for subject in subjects() {
        for (signal, is_first) in [("TERM", true), ("TERM", false), ("INT", false), ("KILL", true)] {
            if signal == "INT" && ignores_interrupts {
                continue;
            }
            let handler = Arc::new(subject.handler("actions"));
            let gate = Gate::new();
            let mut job = gate.announced_block();
            job["do"] = json!("terminate");
            job["signal"] = json!(signal);
            let (recorder, running) = start(&handler, &[job]);
            gate.until_waited_at().await;
            if is_first {
                recorder.drain();
                recorder.until_drain_is_heard().await;
            }
            gate.open("now").await;
            recorder.drain();
            finish(running).await;
            let name = subject.name;
            assert_eq!(recorder.ended()[&0], Ended::Released, "{name}, SIG{signal}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_jobs_are_skipped_before_and_while_their_micro_batch_runs() {
    for subject in subjects() {
        let handler = Arc::new(subject.handler("actions"));
        let gate = Gate::new();
        let (recorder, running) = start(&handler, &[json!(1), gate.block(), json!(2), json!(3), json!(4)]);
        recorder.until_answered(1).await;
        recorder.cancel(Positions::from(2..4));
        recorder.until_cancel_is_heard().await;
        gate.open("ended").await;
        finish(running).await;
        let ended: Vec<Ended> = recorder.ended().into_values().collect();
        let expected = [
            Ended::Completed(json!(1)),
            Ended::Completed(json!("ended")),
            Ended::Released,
            Ended::Released,
            Ended::Completed(json!(4)),
        ];
        assert_eq!(ended, expected, "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_is_killed_after_its_grace_and_others_go_on() {
    for subject in subjects() {
        let options = RuntimeOptions {
            cancel_grace_ms: 50,
            ..RuntimeOptions::default()
        };
        let handler = Arc::new(subject.handler_with("actions", &options));
        let gate = Gate::new();
        // Nobody opens the gate.
        let (recorder, running) = start(&handler, &[json!(1), gate.block(), json!(2)]);
        recorder.until_answered(1).await;
        recorder.cancel(Positions::from(1..2));
        finish(running).await;
        let ended: Vec<Ended> = recorder.ended().into_values().collect();
        assert_eq!(ended[0], Ended::Completed(json!(1)), "{}", subject.name);
        assert_eq!(ended[2], Ended::Completed(json!(2)), "{}", subject.name);
        // If the job had not begun when the cancel was noticed, it does not run at all.
        if ended[1] != Ended::Released {
            assert_eq!(ended[1].error().error_type, "cancelled", "{}", subject.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_micro_batch_that_is_given_up_frees_its_process() {
    for subject in subjects() {
        let handler = Arc::new(subject.handler("actions"));
        let gate = Gate::new();
        let (recorder, running) = start(&handler, &[json!(1), gate.block()]);
        recorder.until_answered(1).await;
        running.abort();
        let (ended, _) = run(&handler, &[json!(2)], None).await;
        assert_eq!(ended, [Ended::Completed(json!(2))], "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_jobs_run_at_once_and_keep_their_logs_apart() {
    for subject in warm_subjects() {
        let options = RuntimeOptions {
            concurrency: 3,
            ..RuntimeOptions::default()
        };
        let handler = subject.handler_with("actions_async", &options);
        let meet = |name: &str| json!({"do": "meet", "name": name, "count": 3});
        let names = ["a", "b", "c", "d", "e", "f"];
        let (ended, recorder) = run(&handler, &names.map(meet), None).await;
        for (index, name) in names.iter().enumerate() {
            assert_eq!(ended[index], Ended::Completed(json!(name)), "{}", subject.name);
            let log = recorder.log(index as u32);
            assert_eq!(log, format!("met {name}\nleft {name}\n"), "{}", subject.name);
            let said = recorder.progress_of(index as u32);
            let expected = Progress::fraction(0.5).message(*name);
            assert_eq!(said, Some(expected), "{}", subject.name);
        }
        let (ended, _) = run(
            &handler,
            &[json!({"do": "raise", "message": "no"}), json!(1)],
            None,
        )
        .await;
        assert_eq!(ended[0].error().error_type, "ValueError", "{}", subject.name);
        assert_eq!(ended[1], Ended::Completed(json!(1)), "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_run_at_once_and_stay_warm() {
    for subject in subjects() {
        let options = RuntimeOptions {
            processes: 2,
            ..RuntimeOptions::default()
        };
        let handler = Arc::new(subject.handler_with("actions", &options));
        let gates = [Gate::new(), Gate::new()];
        let (_, first) = start(&handler, &[gates[0].block()]);
        let (_, second) = start_on(1, &handler, &[gates[1].block()]);
        // A job waits at the second gate although nobody has opened the first one.
        gates[1].open("b").await;
        gates[0].open("a").await;
        finish(first).await;
        finish(second).await;
        if subject.runtime != Runtime::Program {
            let one = subject.handler("actions");
            let (before, _) = run(&one, &[json!({"do": "pid"})], None).await;
            let (after, _) = run(&one, &[json!({"do": "pid"})], None).await;
            assert_eq!(before, after, "{}", subject.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_micro_batches_of_all_sizes_come_back_whole() {
    for subject in warm_subjects() {
        let handler = Arc::new(subject.handler_with(
            "actions",
            &RuntimeOptions {
                processes: 2,
                ..Default::default()
            },
        ));
        let sizes = [1usize, 2, 7, 100, 1_000, 10_000];
        let running: Vec<_> = sizes
            .iter()
            .cycle()
            .take(24)
            .enumerate()
            .map(|(number, size)| {
                let payloads: Vec<_> = (0..*size)
                    .map(|number| json!({"number": number, "text": "é".repeat(number % 50)}))
                    .collect();
                let (recorder, running) = start_on(number % 2, &handler, &payloads);
                (payloads, recorder, running)
            })
            .collect();
        for (payloads, recorder, running) in running {
            finish(running).await;
            let ended = recorder.ended();
            assert_eq!(ended.len(), payloads.len(), "{}", subject.name);
            for (ended, payload) in ended.values().zip(&payloads) {
                assert_eq!(ended.value(), payload, "{}", subject.name);
            }
        }
    }
}
