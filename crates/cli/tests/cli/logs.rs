//! Stored and live output of jobs, with the test as the worker.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_batching::BatchStats;
use gristmill_model::{
    Completed, FailedJob, Followed, JobError, JobId, JobLog, PackedArray, Printed, Report, WorkerId,
};
use gristmill_store::{NewWorker, Store, Want};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

use crate::workspace::{Workspace, send_signal};

/// The longest wait of a test for an event.
const PATIENCE: Duration = Duration::from_secs(60);

struct Playing {
    store: Arc<SqliteStore>,
    worker: WorkerId,
}

impl Playing {
    async fn a_worker(workspace: &Workspace) -> Playing {
        let store = SqliteStore::open(workspace.path("gristmill.db"), SqliteOptions::default()).unwrap();
        let worker = NewWorker {
            name: "test".to_owned(),
            host: "here".to_owned(),
            process_id: 1,
            process_started: String::new(),
            queues: Vec::new(),
            kinds: Vec::new(),
        };
        let worker = store.register_worker(worker).await.unwrap();
        Playing {
            store: Arc::new(store),
            worker,
        }
    }

    /// Claims the only job and starts its report.
    async fn claim(&self) -> Report {
        let want = Want {
            jobs_max: 1,
            queues: vec!["default".into()],
            kinds: Vec::new(),
            priority_min: None,
        };
        let claimed = self
            .store
            .exchange(self.worker, vec![], Some(want))
            .await
            .unwrap();
        let lease = claimed.lease.unwrap();
        Report::new(lease.id, lease.slices[0].batch, lease.slices[0].attempt)
    }

    async fn commit(&self, report: Report) {
        let answer = self
            .store
            .exchange(self.worker, vec![report], None)
            .await
            .unwrap();
        assert_eq!(answer.receipts[0].accepted.len(), 1);
    }

    async fn complete(&self, mut report: Report, log: &str) {
        report.completed = Some(Completed {
            positions: "0".parse().unwrap(),
            values: PackedArray::parse("[1]").unwrap(),
            durations_us: vec![1],
        });
        report.logs = vec![JobLog {
            position: 0,
            text: log.to_owned(),
        }];
        self.commit(report).await;
    }

    async fn fail(&self, mut report: Report, log: &str) {
        report.failed = vec![FailedJob {
            position: 0,
            error: JobError::new("E", "no"),
            duration_us: 1,
        }];
        report.logs = vec![JobLog {
            position: 0,
            text: log.to_owned(),
        }];
        self.commit(report).await;
    }

    async fn print(&self, job: JobId, attempt: u32, offset: u64, text: &str) {
        let printed = Printed {
            job,
            kind: "work".into(),
            attempt,
            offset,
            text: text.to_owned(),
        };
        self.store.put_output(self.worker, vec![printed]).await.unwrap();
    }

    /// Waits until a heartbeat names these jobs as followed, or none.
    async fn learn(&self, followed: &[Followed]) {
        let until = Instant::now() + PATIENCE;
        loop {
            let heartbeat = self.store.heartbeat(self.worker, BatchStats::default()).await;
            if heartbeat.unwrap().followed == followed {
                return;
            }
            assert!(Instant::now() < until, "it is not told of {followed:?}");
            tokio::task::yield_now().await;
        }
    }
}

fn follow(workspace: &Workspace, job: JobId) -> (Child, BufReader<ChildStdout>) {
    let mut child = workspace.spawn(&format!("logs {job} --follow"), Stdio::null());
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

fn line(stdout: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    line
}

fn submitted(workspace: &Workspace) -> JobId {
    workspace
        .run("submit work 1 --retries 1 --retry-delay 0s")
        .expect(0);
    "1:0".parse().unwrap()
}

#[tokio::test]
async fn a_running_job_is_followed_to_its_end() {
    let workspace = Workspace::new();
    let job = submitted(&workspace);
    let playing = Playing::a_worker(&workspace).await;
    let first = playing.claim().await;
    playing.print(job, 1, 0, "nobody follows\n").await;
    playing.fail(first, "first try\n").await;
    let second = playing.claim().await;

    let (mut child, mut stdout) = follow(&workspace, job);
    assert_eq!(line(&mut stdout), "first try\n", "what is over comes first");
    playing.learn(&[Followed::Job(job)]).await;
    playing.print(job, 2, 0, "one\n").await;
    assert_eq!(line(&mut stdout), "one\n", "while it runs");
    playing.print(job, 2, 4, "two\n").await;
    assert_eq!(line(&mut stdout), "two\n");
    playing.complete(second, "one\ntwo\nthree\n").await;
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "three\n", "what was not shown, and nothing twice");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    playing.learn(&[]).await;

    let stored = "--- attempt 1 ---\nfirst try\n--- attempt 2 ---\none\ntwo\nthree\n";
    assert_eq!(workspace.run("logs 1:0").expect(0), stored);
    assert_eq!(
        workspace.run("logs 1:0 --follow").expect(0),
        "first try\none\ntwo\nthree\n"
    );
    assert!(workspace.run("logs 1:7").stderr.contains("there is no job 1:7"));
}

#[tokio::test]
async fn following_ends_with_an_interrupt_a_closed_pipe_and_a_job_that_dies() {
    let workspace = Workspace::new();
    let job = submitted(&workspace);
    let playing = Playing::a_worker(&workspace).await;
    let first = playing.claim().await;
    let (mut child, _stdout) = follow(&workspace, job);
    playing.learn(&[Followed::Job(job)]).await;
    send_signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    playing.learn(&[]).await;

    let (mut child, stdout) = follow(&workspace, job);
    playing.learn(&[Followed::Job(job)]).await;
    drop(stdout);
    playing.print(job, 1, 0, "nobody reads\n").await;
    assert_eq!(child.wait().unwrap().code(), Some(141));
    playing.learn(&[]).await;

    let (mut child, mut stdout) = follow(&workspace, job);
    playing.learn(&[Followed::Job(job)]).await;
    playing.fail(first, "").await;
    let second = playing.claim().await;
    playing.fail(second, "last words\n").await;
    let mut all = String::new();
    stdout.read_to_string(&mut all).unwrap();
    assert!(all.ends_with("last words\n"), "{all}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
