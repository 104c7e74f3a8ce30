//! A worker whose jobs run in JavaScript's event loop.

use std::sync::{Arc, Mutex};

use gristmill_engine::{Engine, Stopper, WorkerSettings, WorkerSummary};
use gristmill_model::{Completed, FailedJob, JobError, JobLog, PackedArray, Positions, Progress};
use gristmill_worker::{Handler, Outcomes};
use napi::Result;
use napi::bindgen_prelude::Uint32Array;
use napi_derive::napi;
use serde::Deserialize;
use tokio::sync::watch;

use crate::handler::LoopHandler;
use crate::inbox::{Answer, Inbox, Message, Wake};
use crate::store_error;

/// How the jobs of one kind run.
#[napi(object)]
pub struct KindPlan {
    /// The kind.
    pub kind: String,
    /// The number of its jobs at once.
    pub concurrency: u32,
}

/// The task of a worker.
#[napi(object)]
pub struct Plan {
    /// The kinds, which messages name by their places.
    pub kinds: Vec<KindPlan>,
    /// The queues.
    pub queues: Vec<String>,
    /// Its name, for people.
    pub name: String,
    /// When it ends by itself: "stopped" (never), "idle" (nothing can be claimed now) or "empty" (now or later).
    pub until: String,
}

/// The totals of a worker at its end.
#[napi(object, object_from_js = false)]
#[derive(Clone, Copy)]
pub struct Summary {
    /// The completed jobs.
    pub completed: f64,
    /// The failed attempts.
    pub failed: f64,
}

type Ending = std::result::Result<WorkerSummary, String>;

/// A worker that runs in the background.
#[napi]
pub struct Worker {
    inbox: Arc<Inbox>,
    handlers: Vec<Arc<LoopHandler>>,
    stopper: Stopper,
    ended: watch::Receiver<Option<Ending>>,
}

/// The outcomes that are not values.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Others {
    failed: Vec<FailedJob>,
    released: Vec<u32>,
    returned: Vec<u32>,
    logs: Vec<JobLog>,
}

impl Worker {
    /// Starts a worker. Must be called within the runtime.
    pub fn start(engine: &Engine, plan: Plan, wake: Wake) -> Result<Worker> {
        let inbox = Arc::new(Inbox::new(wake));
        let mut worker = engine.worker();
        worker.name(plan.name).settings(WorkerSettings {
            queues: plan.queues.into_iter().map(Into::into).collect(),
            concurrency: plan.kinds.len().max(1),
            until_idle: plan.until == "idle",
            until_empty: plan.until == "empty",
            ..WorkerSettings::default()
        });
        let mut handlers = Vec::with_capacity(plan.kinds.len());
        for (number, kind) in (0..).zip(plan.kinds) {
            let handler = Arc::new(LoopHandler {
                inbox: inbox.clone(),
                kind: number,
                concurrency: kind.concurrency.max(1),
                listener: Mutex::default(),
            });
            worker.handler(kind.kind, handler.clone() as Arc<dyn Handler>);
            handlers.push(handler);
        }
        let started = worker.start();
        let stopper = started.stopper();
        let (sender, ended) = watch::channel(None);
        let closed = inbox.clone();
        tokio::spawn(async move {
            let ending = started.join().await.map_err(|error| error.to_string());
            closed.close();
            sender.send_replace(Some(ending));
        });
        Ok(Worker {
            inbox,
            handlers,
            stopper,
            ended,
        })
    }
}

#[napi]
impl Worker {
    /// Asks it to stop: it claims no more and finishes the running jobs.
    #[napi]
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// Waits for its end.
    #[napi]
    pub async fn ended(&self) -> Result<Summary> {
        let mut ended = self.ended.clone();
        let ending = ended.wait_for(Option::is_some).await;
        // If there is no sender, the task that joins the worker has panicked.
        let ending = ending
            .map_err(|_| store_error("the worker ended by a panic"))?
            .clone();
        match ending {
            Some(Ok(summary)) => Ok(Summary {
                completed: summary.completed as f64,
                failed: summary.failed as f64,
            }),
            Some(Err(error)) => Err(store_error(error)),
            None => Err(store_error("the worker has not ended")),
        }
    }

    /// Takes the messages since the last call.
    #[napi]
    pub fn take(&self) -> Vec<Message> {
        self.inbox.take()
    }

    /// Answers jobs of a micro-batch. The completed ones are at `places`, which ascend, with their durations in microseconds and
    /// their values as a JSON array. `others` is JSON with the other outcomes and the logs.
    #[napi]
    pub fn answer(
        &self,
        number: u32,
        places: Uint32Array,
        durations_us: Uint32Array,
        values: String,
        others: Option<String>,
    ) -> Result<()> {
        let others: Others = match others {
            Some(others) => serde_json::from_str(&others).map_err(store_error)?,
            None => Others::default(),
        };
        let failed = others.failed.into_iter().map(|failed| FailedJob {
            error: failed.error.cleaned(),
            ..failed
        });
        let mut failed: Vec<FailedJob> = failed.collect();
        let mut completed = None;
        if !places.is_empty() {
            match PackedArray::parse(&values) {
                Ok(values) if values.count() as usize == places.len() => {
                    let mut positions = Positions::new();
                    places.iter().for_each(|place| positions.insert(*place));
                    completed = Some(Completed {
                        positions,
                        values,
                        durations_us: durations_us.to_vec(),
                    });
                }
                refused => {
                    let reason = refused.err().map_or_else(
                        || "the number of values differs from that of jobs".to_owned(),
                        |error| error.to_string(),
                    );
                    let error = JobError::new("value", format!("the values cannot be stored: {reason}"));
                    failed.extend(places.iter().map(|place| FailedJob {
                        position: *place,
                        error: error.clone().permanent(),
                        duration_us: 0,
                    }));
                }
            }
        }
        let outcomes = Outcomes {
            completed,
            failed,
            released: others.released.into_iter().collect(),
            returned: others.returned.into_iter().collect(),
            logs: others.logs,
            ..Outcomes::default()
        };
        self.inbox.answer(number, Answer::Outcomes(Box::new(outcomes)));
        Ok(())
    }

    /// Passes the progress of the job in this place on, which is JSON.
    #[napi]
    pub fn progress(&self, number: u32, place: u32, progress: String) -> Result<()> {
        let progress: Progress = serde_json::from_str(&progress).map_err(store_error)?;
        self.inbox
            .answer(number, Answer::Progress(vec![(place, progress.cleaned())]));
        Ok(())
    }

    /// Ends the worker with this reason: all slots of a kind are held for good.
    #[napi]
    pub fn fail(&self, kind: u32, reason: String) {
        if let Some(handler) = self.handlers.get(kind as usize) {
            handler.fail(reason);
        }
    }
}
