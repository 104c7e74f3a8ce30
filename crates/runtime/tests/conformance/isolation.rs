//! A job that kills its process, hangs or runs too long is detected, and only this job is charged.

use gristmill_runtime::Runtime;
use serde_json::{Value, json};

use crate::harness::{Ended, run, subjects, warm_subjects};

const TIMEOUT_MS: u64 = 1_500;

fn completed(value: impl Into<Value>) -> Ended {
    Ended::Completed(value.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn killers_among_many_jobs_are_charged_and_nobody_else() {
    for subject in subjects() {
        let handler = subject.handler("actions");
        let mut payloads: Vec<Value> = (0..60).map(Value::from).collect();
        for killer in [0, 31, 32, 59] {
            payloads[killer] = json!({"do": if killer % 2 == 0 { "exit" } else { "segfault" }});
        }
        let (ended, _) = run(&handler, &payloads, None).await;
        for (index, ended) in ended.iter().enumerate() {
            match index {
                // An exit status is an answer of a program, not a crash.
                0 | 32 if subject.runtime == Runtime::Program => assert_eq!(ended.error().error_type, "exit"),
                0 | 31 | 32 | 59 => {
                    let error = ended.error();
                    assert_eq!(error.error_type, "crash", "{}", subject.name);
                    assert!(
                        error.message.contains("exited with status")
                            || error.message.contains("killed by signal"),
                        "{error:?}"
                    );
                }
                _ => assert_eq!(ended, &completed(index), "{}", subject.name),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_every_job_kills_its_process_each_is_charged_and_it_ends() {
    for subject in warm_subjects() {
        let (ended, _) = run(
            &subject.handler("actions"),
            &vec![json!({"do": "segfault"}); 5],
            None,
        )
        .await;
        assert!(
            ended.iter().all(|ended| ended.error().error_type == "crash"),
            "{}: {ended:?}",
            subject.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segmentation_fault_of_python_says_where() {
    for subject in subjects()
        .into_iter()
        .filter(|subject| subject.runtime == Runtime::Python)
    {
        let (ended, recorder) = run(&subject.handler("actions"), &[json!({"do": "segfault"})], None).await;
        let traceback = ended[0].error().traceback.clone().unwrap_or_default();
        assert!(
            traceback.contains("Segmentation fault") && traceback.contains("do_segfault"),
            "{traceback}"
        );
        assert!(recorder.log(0).contains("Segmentation fault"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_hangs_is_killed_at_its_timeout_and_the_others_run() {
    for subject in subjects() {
        let hangs: &[&str] = match subject.runtime {
            Runtime::Program => &["hang"],
            // Its regular expressions give up instead.
            Runtime::Bun => &["hang"],
            _ => &["hang", "hang_in_native_code"],
        };
        for hang in hangs {
            let payloads = [
                json!(1),
                json!(2),
                json!({"do": hang}),
                json!(3),
                json!({"do": hang}),
                json!(4),
            ];
            let (ended, _) = run(&subject.handler("actions"), &payloads, Some(TIMEOUT_MS)).await;
            for (index, value) in [(0, 1), (1, 2), (3, 3), (5, 4)] {
                assert_eq!(ended[index], completed(value), "{} {hang}", subject.name);
            }
            for index in [2, 4] {
                let error = ended[index].error();
                assert_eq!(error.error_type, "timeout", "{} {hang}", subject.name);
                assert!(error.message.contains("1500 ms"), "{error:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_jobs_that_hang_or_kill_are_charged_alone() {
    for subject in warm_subjects() {
        let payloads = [
            json!(1),
            json!({"do": "hang"}),
            json!(2),
            json!({"do": "exit"}),
            json!(3),
        ];
        let (ended, _) = run(&subject.handler("actions_async"), &payloads, Some(TIMEOUT_MS)).await;
        for (index, value) in [(0, 1), (2, 2), (4, 3)] {
            assert_eq!(ended[index], completed(value), "{}", subject.name);
        }
        assert_eq!(ended[1].error().error_type, "timeout", "{}", subject.name);
        assert_eq!(ended[3].error().error_type, "crash", "{}", subject.name);
    }
}
