//! A worker that doubles numbers and fails some, shared by several test files.

use std::sync::Arc;

use gristmill_model::{JobError, SystemClock};
use gristmill_worker::{Job, NoObserver, Source, Worker, WorkerSettings, job_handler};

/// Doubles numbers. Numbers that end in 7 fail for good, and numbers that end in 3 fail at first.
pub fn doubling(source: Arc<dyn Source>, settings: WorkerSettings) -> Worker {
    let mut worker = Worker::new(source, settings, Arc::new(NoObserver), Arc::new(SystemClock));
    worker.handle(
        "double",
        job_handler(|job: Job<u32>| async move {
            match job.payload % 10 {
                7 => Err(JobError::new("Seven", "no sevens").permanent()),
                3 if job.attempt == 1 => Err(JobError::new("Three", "once more")),
                _ => Ok(2 * job.payload),
            }
        }),
    );
    worker
}
