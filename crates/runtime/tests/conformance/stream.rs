//! A process takes a stream of jobs: jobs that have not begun can be taken back, jobs of several micro-batches run
//! concurrently, and time counts from each job's own start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use gristmill_runtime::{Runtime, RuntimeOptions, ScriptHandler};
use gristmill_worker::Handler;
use serde_json::{Value, json};

use crate::flow::{finish, start, start_on};
use crate::harness::{Ended, Gate, Subject, run, run_work, subjects, timed, warm_subjects};

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_begun_comes_back_while_a_job_blocks() {
    for subject in subjects() {
        let handler = Arc::new(subject.handler("actions"));
        let gate = Gate::new();
        let (first, running) = start(&handler, &[json!(1), gate.announced_block(), json!(2), json!(3)]);
        let (second, running_second) = start(&handler, &[json!(4), json!(5)]);
        first.until_answered(1).await;
        gate.until_waited_at().await;
        let asked = Instant::now();
        handler.recall(0);
        first.until_answered(3).await;
        second.until_answered(2).await;
        println!("{}: recalled in {:?}", subject.name, asked.elapsed());
        assert_eq!(first.ended()[&2], Ended::Returned, "{}", subject.name);
        assert_eq!(first.ended()[&3], Ended::Returned, "{}", subject.name);
        assert!(
            second.ended().values().all(|ended| *ended == Ended::Returned),
            "{}",
            subject.name
        );
        finish(running_second).await;
        // Jobs that come after a recall run in their order.
        let (third, running_third) = start(&handler, &[json!(6)]);
        gate.open("ended").await;
        finish(running).await;
        finish(running_third).await;
        assert_eq!(
            first.ended()[&1],
            Ended::Completed(json!("ended")),
            "{}",
            subject.name
        );
        assert_eq!(third.ended()[&0], Ended::Completed(json!(6)), "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_of_asynchronous_jobs_leaves_those_that_run() {
    for subject in warm_subjects() {
        let options = RuntimeOptions {
            concurrency: 2,
            ..RuntimeOptions::default()
        };
        let handler = Arc::new(subject.handler_with("actions_async", &options));
        let gates = [Gate::new(), Gate::new()];
        let payloads = [gates[0].wait(), gates[1].wait(), json!(1), json!(2)];
        let (recorder, running) = start(&handler, &payloads);
        gates[0].until_waited_at().await;
        gates[1].until_waited_at().await;
        handler.recall(0);
        recorder.until_answered(2).await;
        let ended: Vec<Ended> = recorder.ended().into_values().collect();
        assert_eq!(ended, [Ended::Returned, Ended::Returned], "{}", subject.name);
        gates[1].let_go();
        recorder.until_answered(3).await;
        gates[0].let_go();
        finish(running).await;
        assert_eq!(
            recorder.ended()[&0],
            Ended::Completed(json!("waited")),
            "{}",
            subject.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_process_that_starts_comes_back_at_once() {
    for subject in warm_subjects() {
        let gate = Gate::new();
        let folder = tempfile::tempdir().unwrap();
        let (name, text) = match subject.runtime {
            Runtime::Python => (
                "slow.py",
                format!(
                    "open({:?}).read()\ndef main(payload): return payload\n",
                    gate.path
                ),
            ),
            _ => (
                "slow.mjs",
                format!(
                    "import fs from 'node:fs'; fs.readFileSync({:?}); export const main = (payload) => payload;",
                    gate.path
                ),
            ),
        };
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let handler = ScriptHandler::new(subject.script_file(&path), &RuntimeOptions::default()).unwrap();
        let handler = Arc::new(handler);
        let (recorder, running) = start(&handler, &[json!(1), json!(2)]);
        recorder.until_asked().await;
        handler.recall(0);
        finish(running).await;
        let ended: Vec<Ended> = recorder.ended().into_values().collect();
        assert_eq!(ended, [Ended::Returned, Ended::Returned], "{}", subject.name);
        gate.open("").await;
        let (ended, _) = run(&handler, &[json!(3)], None).await;
        assert_eq!(ended, [Ended::Completed(json!(3))], "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_capacity_is_known_once_the_script_is() {
    for subject in subjects() {
        for (stem, options, expected) in [
            ("actions", RuntimeOptions::default(), 1),
            (
                "actions",
                RuntimeOptions {
                    threads: 3,
                    processes: 2,
                    ..RuntimeOptions::default()
                },
                3,
            ),
            (
                "actions_async",
                RuntimeOptions {
                    concurrency: 5,
                    ..RuntimeOptions::default()
                },
                5,
            ),
        ] {
            if subject.runtime == Runtime::Program && stem != "actions" {
                continue;
            }
            let handler = subject.handler_with(stem, &options);
            handler.check().await.unwrap();
            let capacity = handler.capacity();
            let threaded = stem == "actions" && subject.runtime != Runtime::Python;
            assert_eq!(capacity.runners, Some(options.processes), "{}", subject.name);
            assert_eq!(
                capacity.concurrency,
                if threaded { 1 } else { expected },
                "{} {stem}",
                subject.name
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_several_micro_batches_run_at_once() {
    for subject in warm_subjects() {
        let options = RuntimeOptions {
            concurrency: 3,
            ..RuntimeOptions::default()
        };
        let handler = Arc::new(subject.handler_with("actions_async", &options));
        let meet = |name: &str| json!({"do": "meet", "name": name, "count": 3});
        let calls = ["a", "b", "c"].map(|name| start(&handler, &[meet(name)]));
        for ((recorder, running), name) in calls.into_iter().zip(["a", "b", "c"]) {
            finish(running).await;
            assert_eq!(
                recorder.ended()[&0],
                Ended::Completed(json!(name)),
                "{}",
                subject.name
            );
            assert_eq!(
                recorder.log(0),
                format!("met {name}\nleft {name}\n"),
                "{}",
                subject.name
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn synchronous_python_jobs_run_in_threads() {
    for subject in warm_subjects()
        .iter()
        .filter(|subject| subject.runtime == Runtime::Python)
    {
        let options = RuntimeOptions {
            threads: 3,
            ..RuntimeOptions::default()
        };
        let handler = Arc::new(subject.handler_with("actions", &options));
        let gates = [Gate::new(), Gate::new(), Gate::new()];
        let payloads: Vec<_> = gates
            .iter()
            .enumerate()
            .map(|(number, gate)| {
                let mut payload = gate.announced_block();
                payload["say"] = json!(format!("job {number}"));
                payload
            })
            .collect();
        let (recorder, running) = start(&handler, &payloads[..2]);
        let (other, running_other) = start(&handler, &[payloads[2].clone(), json!(1)]);
        // Jobs wait at all three gates, although none has been opened.
        for gate in &gates {
            gate.until_waited_at().await;
        }
        handler.recall(0);
        other.until_answered(1).await;
        assert_eq!(other.ended()[&1], Ended::Returned);
        for gate in gates.iter().rev() {
            gate.open("opened").await;
        }
        finish(running).await;
        finish(running_other).await;
        let logs = [recorder.log(0), recorder.log(1), other.log(0)];
        assert_eq!(logs, ["job 0\n", "job 1\n", "job 2\n"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asynchronous_job_that_is_late_ends_alone() {
    for subject in warm_subjects() {
        let handler = Arc::new(subject.handler("actions_async"));
        let (ended, _) = run(&handler, &[json!({"do": "pid"})], None).await;
        let gate = Gate::new();
        let (neighbour, running) = start(&handler, &[gate.wait()]);
        gate.until_waited_at().await;
        let (late, _) = run(&handler, &[json!({"do": "hang"}), json!(1)], Some(300)).await;
        assert_eq!(late[0].error().error_type, "timeout", "{}", subject.name);
        assert!(late[0].error().message.contains("300 ms"), "{}", subject.name);
        gate.let_go();
        finish(running).await;
        assert_eq!(
            neighbour.ended()[&0],
            Ended::Completed(json!("waited")),
            "{}",
            subject.name
        );
        let (after, _) = run(&handler, &[json!({"do": "pid"})], None).await;
        assert_eq!(after, ended, "{}: the process was killed", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_full_of_jobs_that_never_end_is_replaced() {
    for subject in warm_subjects() {
        let options = RuntimeOptions {
            concurrency: 4,
            ..RuntimeOptions::default()
        };
        let handler = Arc::new(subject.handler_with("actions_async", &options));
        let payloads: Vec<_> = (0..12)
            .map(|number| {
                if number % 2 == 0 {
                    json!({"do": "hang"})
                } else {
                    json!(number)
                }
            })
            .collect();
        let (ended, _) = run(&handler, &payloads, Some(200)).await;
        for (number, ended) in ended.iter().enumerate() {
            match number % 2 {
                0 => assert_eq!(ended.error().error_type, "timeout", "{}", subject.name),
                _ => assert_eq!(ended, &Ended::Completed(json!(number)), "{}", subject.name),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_counts_from_each_jobs_own_start() {
    for subject in warm_subjects() {
        let handler = Arc::new(subject.handler("actions"));
        handler.check().await.unwrap();
        // Each takes less than the limit, and all of them together take more.
        let sleeps = vec![json!({"do": "sleep", "ms": 300}); 5];
        let (ended, _) = run_work(&handler, timed(&sleeps, 1_200)).await;
        assert!(
            ended.iter().all(|ended| *ended == Ended::Completed(json!(300))),
            "{}: {ended:?}",
            subject.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_replaced_when_it_has_had_its_share() {
    for subject in warm_subjects() {
        let options = RuntimeOptions {
            jobs_per_process_max: 10,
            ..RuntimeOptions::default()
        };
        let handler = Arc::new(subject.handler_with("actions", &options));
        let (ended, _) = run(&handler, &vec![json!({"do": "pid"}); 35], None).await;
        let pids: Vec<i64> = ended
            .iter()
            .map(|ended| ended.value().as_i64().unwrap())
            .collect();
        let shares: Vec<usize> = pids
            .chunk_by(|one, other| one == other)
            .map(<[i64]>::len)
            .collect();
        assert_eq!(shares, [10, 10, 10, 5], "{}", subject.name);
        assert_eq!(pids.iter().collect::<BTreeSet<_>>().len(), 4, "{}", subject.name);
    }
}

/// The identity that a job of batch 42 gets.
pub fn told(position: u32, key: Value, tags: Value) -> Value {
    json!({
        "id": format!("42:{position}"), "attempt": 1, "key": key, "batch": 42, "kind": "script:actions", "queue": "default",
        "group": null, "tags": tags, "deadline": null, "traceparent": null,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_know_who_they_are() {
    let mut subjects: Vec<(Subject, &str)> = Vec::new();
    subjects.extend(self::subjects().into_iter().map(|subject| (subject, "actions")));
    subjects.extend(
        warm_subjects()
            .into_iter()
            .map(|subject| (subject, "actions_async")),
    );
    for (subject, script) in subjects {
        let options = RuntimeOptions {
            threads: 3,
            concurrency: 3,
            ..RuntimeOptions::default()
        };
        let handler = subject.handler_with(script, &options);
        let ask = [json!({"do": "job"}), json!({"do": "job"}), json!({"do": "job"})];
        let (ended, _) = run_work(&handler, crate::harness::of_two_batches(&ask, &ask[..2])).await;
        let said: Vec<&Value> = ended.iter().map(Ended::value).collect();
        let of_second = |position: u32, key: Value, tags: Value| {
            json!({
                "id": format!("43:{position}"), "attempt": 5, "key": key, "batch": 43, "kind": "script:actions",
                "queue": "default", "group": "acme", "tags": tags, "deadline": 1.5,
                "traceparent": "00-0000000000000000000000000000000a-000000000000000b-01",
            })
        };
        let expected = [
            told(10, json!(null), json!({})),
            told(11, json!(null), json!({})),
            told(12, json!(null), json!({})),
            of_second(
                7,
                json!("say \"one\""),
                json!({"__proto__": "own", "tenant": "7"}),
            ),
            of_second(8, json!(null), json!({"tenant": "7"})),
        ];
        assert_eq!(
            said,
            expected.iter().collect::<Vec<_>>(),
            "{} {script}",
            subject.name
        );
    }
}

/// A job that asks for its flow gets an answer, and what it asks next is answered, too. Nobody here knows its flow.
#[tokio::test(flavor = "multi_thread")]
async fn what_jobs_ask_about_themselves_is_answered() {
    for subject in warm_subjects() {
        let options = RuntimeOptions {
            threads: 3,
            ..RuntimeOptions::default()
        };
        let handler = subject.handler_with("actions", &options);
        let (ended, _) = run(&handler, &vec![json!({"do": "flow"}); 7], None).await;
        for ended in &ended {
            let reason = "the handler runs without a worker";
            assert_eq!(ended.value(), &json!(reason), "{}", subject.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_printed_survives_its_end() {
    for subject in warm_subjects() {
        for stem in ["actions", "actions_async"] {
            for end in ["exit", "segfault", "hang"] {
                if (stem, end) == ("actions_async", "segfault") {
                    continue;
                }
                let handler = subject.handler_with(
                    stem,
                    &RuntimeOptions {
                        concurrency: 2,
                        ..RuntimeOptions::default()
                    },
                );
                let payloads = [
                    json!(1),
                    json!({"do": "print_and", "text": "before the end", "then": end}),
                    json!(2),
                ];
                let (ended, recorder) = run(&handler, &payloads, Some(1_500)).await;
                let name = format!("{} {stem} {end}", subject.name);
                assert!(matches!(&ended[1], Ended::Failed(_)), "{name}: {ended:?}");
                let log = recorder.log(1);
                assert!(
                    log.starts_with("before the end\nand no line feed"),
                    "{name}: {log:?}"
                );
                assert_eq!(
                    (recorder.log(0), recorder.log(2)),
                    (String::new(), String::new()),
                    "{name}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_too_long_says_so_although_its_job_was_killed() {
    for subject in warm_subjects() {
        let payload = json!({"do": "print_and", "text": "x".repeat(100_000), "then": "exit"});
        let (_, recorder) = run(&subject.handler("actions"), &[payload], None).await;
        let log = recorder.log(0);
        assert!(
            log.ends_with("a job's log is cut at 65536 bytes\n"),
            "{}: {}",
            subject.name,
            &log[log.len() - 80..]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_followed_job_prints_is_told_while_it_runs() {
    for subject in subjects() {
        let handler = Arc::new(subject.handler("actions"));
        let gate = Gate::new();
        let mut payload = gate.announced_block();
        payload["say"] = json!("early");
        let (recorder, running) = start_on(0, &handler, &[json!(1), payload]);
        gate.until_waited_at().await;
        assert_eq!(
            recorder.printed(1),
            "",
            "{}: told although nobody follows",
            subject.name
        );
        recorder.follow();
        recorder
            .until("what it printed", |recorder| recorder.printed(1) == "early\n")
            .await;
        assert!(!recorder.ended().contains_key(&1), "{}", subject.name);
        gate.open("ended").await;
        finish(running).await;
        assert_eq!(recorder.log(1), "early\n", "{}", subject.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_is_heeded_late_loses_no_later_job() {
    const ROUNDS: usize = 300;
    for subject in warm_subjects() {
        let handler = Arc::new(subject.handler("actions"));
        let quick = vec![json!(1); 17];
        // Its first job still runs when the process looks for recalls.
        let mut slow_first = quick.clone();
        slow_first[0] = json!({"do": "sleep", "ms": 5});
        let mut returned = 0;
        for round in 0..ROUNDS {
            let (recorder, running) = start(&handler, &quick);
            // Sometimes before the jobs have begun, sometimes while they run, sometimes when they have just ended.
            for _ in 0..round % 60 {
                tokio::task::yield_now().await;
            }
            handler.recall(0);
            let (later, running_later) = start(&handler, &slow_first);
            for (recorder, running) in [(recorder, running), (later, running_later)] {
                finish(running).await;
                let ended = recorder.ended();
                assert_eq!(ended.len(), quick.len(), "{}, round {round}", subject.name);
                returned += ended.values().filter(|ended| **ended == Ended::Returned).count();
            }
        }
        println!(
            "{}: {ROUNDS} recalls, {returned} of {} jobs came back",
            subject.name,
            2 * ROUNDS * quick.len()
        );
    }
}
