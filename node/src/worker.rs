//! A worker whose jobs run in JavaScript's event loop.

use std::sync::{Arc, Mutex};

use gristmill_engine::flow_steps::step_of;
use gristmill_engine::{Engine, Stopper, WorkerSettings, WorkerSummary};
use gristmill_model::{Completed, FailedJob, JobError, JobLog, PackedArray, Positions, Progress};
use gristmill_operations::read::read_job;
use gristmill_operations::submit::spawned::read_spawn;
use gristmill_store::Store;
use gristmill_store::family::ChildReader;
use gristmill_worker::{Handler, Outcomes};
use napi::Result;
use napi::bindgen_prelude::Uint32Array;
use napi_derive::napi;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::handler::LoopHandler;
use crate::inbox::{Answer, Inbox, Message, Wake};
use crate::{refusal, store_error};

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
    store: Arc<dyn Store>,
    children: ChildReader,
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

/// A flow that waits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Suspension<'a> {
    position: u32,
    duration_us: u32,
    /// Its steps and its memo, as [`read_spawn`] reads them.
    #[serde(borrow)]
    spawn: &'a RawValue,
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
            store: engine.store().clone(),
            children: ChildReader::default(),
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
    /// their values as a JSON array. `others` is JSON with the other outcomes and the logs, and `suspended` a JSON array of the flows
    /// that wait.
    #[napi]
    pub fn answer(
        &self,
        number: u32,
        places: Uint32Array,
        durations_us: Uint32Array,
        values: String,
        others: Option<String>,
        suspended: Option<String>,
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
        let (mut waiting, mut waiting_us) = (Vec::new(), Vec::new());
        if let Some(suspended) = suspended
            && let Some(kind) = self.inbox.kind_of(number)
        {
            let suspended: Vec<Suspension<'_>> = serde_json::from_str(&suspended).map_err(store_error)?;
            for one in suspended {
                match read_spawn(one.position, one.spawn, &kind) {
                    Ok(suspended) => {
                        waiting.push(suspended);
                        waiting_us.push(one.duration_us);
                    }
                    Err(problem) => failed.push(FailedJob {
                        position: one.position,
                        error: JobError::new("children", problem).permanent(),
                        duration_us: one.duration_us,
                    }),
                }
            }
        }
        let outcomes = Outcomes {
            completed,
            failed,
            suspended: waiting,
            suspended_us: waiting_us,
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

    /// The flow that began a job as a step, as JSON; `null` for other jobs.
    #[napi]
    pub async fn step(&self, job: String) -> Result<String> {
        let job = read_job(&job).map_err(refusal)?;
        let step = step_of(&*self.store, job).await.map_err(store_error)?;
        serde_json::to_string(&step).map_err(store_error)
    }

    /// The outcomes of the jobs for which a job waited, as JSON.
    #[napi]
    pub async fn prerequisites(&self, job: String) -> Result<String> {
        let job = read_job(&job).map_err(refusal)?;
        let read = self.children.prerequisites(&*self.store, job).await;
        let outcomes = read.map_err(store_error)?.map_err(store_error)?;
        serde_json::to_string(&outcomes).map_err(store_error)
    }

    /// Ends the worker with this reason: all slots of a kind are held for good.
    #[napi]
    pub fn fail(&self, kind: u32, reason: String) {
        if let Some(handler) = self.handlers.get(kind as usize) {
            handler.fail(reason);
        }
    }
}
