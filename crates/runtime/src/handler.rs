//! The worker's handler that runs jobs in scripts and programs.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, available_parallelism};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_model::limits::CANCEL_GRACE_MS;
use gristmill_model::{FailedJob, JobError};
use gristmill_worker::{Capacity, Handler, JobContext, MicroBatch, OutcomeSink, Outcomes, RunnerListener};
use tokio::time::MissedTickBehavior;

use crate::child::guard::Guard;
use crate::error::RuntimeError;
use crate::fork_server::{ForkServer, ForkServers};
use crate::interpreter::Runtime;
use crate::limits::{
    CONCURRENCY_DEFAULT, CONCURRENCY_MAX, FLUSH_EVERY_MS, FLUSH_EVERY_MS_MAX, JOBS_PER_PROCESS_MAX,
    PROCESSES_FLUSHED_AT_ONCE, PROCESSES_MAX, QUESTION_MS_MAX, SIGNALS_EVERY_MS, START_MS_MAX,
};
use crate::output::PrintListener;
use crate::pool::question_pipes::About;
use crate::pool::{Pool, Ticket, Told, Wishes};
use crate::process::Recipe;
use crate::program::ProgramSlot;
use crate::script::Script;
use crate::slot::Slot;
use crate::starts::ProcessListener;
use crate::starts::reload;

/// The settings for running scripts.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// The number of processes; from 1 to [`PROCESSES_MAX`].
    pub processes: usize,
    /// The number of concurrent asynchronous jobs in one process; from 1 to [`CONCURRENCY_MAX`].
    pub concurrency: u32,
    /// The number of concurrent jobs of a synchronous Python script in one process, each in its own thread; from 1 to
    /// [`CONCURRENCY_MAX`]. Other languages run synchronous jobs one at a time.
    pub threads: u32,
    /// The number of jobs that a process gets before a new one replaces it; from 1 to [`JOBS_PER_PROCESS_MAX`].
    pub jobs_per_process_max: u32,
    /// The time limit of a script's import. Milliseconds.
    pub start_ms_max: u64,
    /// The time for which a cancelled job may continue before its process is killed. Milliseconds.
    pub cancel_grace_ms: u64,
    /// True if Python processes are forked from a prepared interpreter, unless `GRISTMILL_FORK_SERVER=off`.
    pub fork_server: bool,
    /// The fork servers that this handler shares with others, if any.
    pub fork_servers: Option<Arc<ForkServers>>,
    /// The time without any process, while starts fail, after which the worker ends with the reason. Milliseconds. With
    /// `None` it waits forever. Until a first process has started, the first failure ends the worker.
    pub start_patience_ms: Option<u64>,
    /// True if all processes are replaced as soon as the script, or a module of its own that it imported at its start,
    /// has changed and can be loaded. Otherwise they are replaced when one of them has to be replaced for another
    /// reason.
    pub reload: bool,
    /// Receives failed starts while jobs run, and changes of the code.
    pub listener: ProcessListener,
    /// Receives the output of the script's processes, in addition to the logs of the jobs. Output of programs appears
    /// only in their logs.
    pub prints: Option<PrintListener>,
}

const FORK_SERVER_VARIABLE: &str = "GRISTMILL_FORK_SERVER";

impl Default for RuntimeOptions {
    /// The default has one process.
    fn default() -> Self {
        RuntimeOptions {
            processes: 1,
            concurrency: CONCURRENCY_DEFAULT,
            threads: 1,
            jobs_per_process_max: JOBS_PER_PROCESS_MAX,
            start_ms_max: START_MS_MAX,
            cancel_grace_ms: CANCEL_GRACE_MS,
            fork_server: true,
            fork_servers: None,
            start_patience_ms: None,
            reload: false,
            listener: ProcessListener::default(),
            prints: None,
        }
    }
}

/// Runs the jobs of one kind in a pool of processes.
///
/// Processes start when there is work for them, and the first one at once. They end with [`Handler::shut_down`], or are
/// killed when the handler is dropped or Gristmill ends in any way.
#[derive(Debug)]
pub struct ScriptHandler {
    pool: Arc<Pool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    processes: usize,
    recipe: Arc<Recipe>,
    is_program: bool,
}

impl ScriptHandler {
    /// Starts the pool. [`ScriptHandler::check`] reports whether the script can be imported.
    pub fn new(script: Script, options: &RuntimeOptions) -> Result<ScriptHandler, RuntimeError> {
        let processes = options.processes.clamp(1, PROCESSES_MAX);
        let patience = options.start_patience_ms.map(Duration::from_millis);
        let pool = Pool::new(&script, processes, options.listener.clone(), patience);
        let pool = Arc::new(pool.map_err(RuntimeError::Plumbing)?);
        let is_program = script.runtime() == Runtime::Program;
        let is_off = std::env::var_os(FORK_SERVER_VARIABLE).is_some_and(|value| value == "off");
        let (guard, fork_server) = if options.fork_server && !is_off {
            guard_and_fork_server(&script, options.fork_servers.as_deref()).map_err(RuntimeError::Plumbing)?
        } else {
            (Guard::start().map_err(RuntimeError::Plumbing)?, None)
        };
        let recipe = Arc::new(Recipe {
            script,
            concurrency: options.concurrency.clamp(1, CONCURRENCY_MAX),
            threads: options.threads.clamp(1, CONCURRENCY_MAX),
            jobs_per_process_max: options.jobs_per_process_max.clamp(1, JOBS_PER_PROCESS_MAX),
            start_ms_max: options.start_ms_max,
            cancel_grace: Duration::from_millis(options.cancel_grace_ms),
            guard,
            fork_server,
            flush_every_ms: flush_every_ms(processes, available_parallelism().map_or(1, usize::from)),
            prints: options.prints.clone(),
        });
        let handler = ScriptHandler {
            pool: Arc::clone(&pool),
            threads: Mutex::new(Vec::new()),
            is_program,
            processes,
            recipe: Arc::clone(&recipe),
        };
        for number in 0..processes {
            let (pool, recipe) = (Arc::clone(&pool), Arc::clone(&recipe));
            handler.spawn(format!("script-{number}"), move || {
                if is_program {
                    ProgramSlot::new(pool, recipe, number).drive();
                } else {
                    Slot::new(pool, recipe, number).drive();
                }
            })?;
        }
        if options.reload && !is_program {
            handler.spawn("script-reload".to_owned(), move || reload::watch(&pool, &recipe))?;
        }
        Ok(handler)
    }

    fn spawn(&self, name: String, drive: impl FnOnce() + Send + 'static) -> Result<(), RuntimeError> {
        let pool = Arc::clone(&self.pool);
        let drive = move || {
            // Nobody would answer the waiting callers.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(drive)).is_err() {
                pool.panicked();
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(drive);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(thread.map_err(RuntimeError::NoThread)?);
        Ok(())
    }

    /// Waits until the first process has imported the script. Fails with the reason if it cannot be imported.
    pub async fn check(&self) -> Result<(), Arc<RuntimeError>> {
        self.pool.first_start().await
    }

    fn heed(&self, ticket: &Ticket, sink: &dyn OutcomeSink) {
        let wishes = Wishes {
            draining: sink.is_draining(),
            followed: sink.is_followed(),
            cancelled: sink.cancelled(),
        };
        let released = self.pool.signal(ticket, wishes);
        if let Some(released) = released {
            sink.answer(Outcomes {
                released,
                ..Outcomes::default()
            });
        }
    }
}

fn guard_and_fork_server(
    script: &Script,
    shared: Option<&ForkServers>,
) -> std::io::Result<(Guard, Option<Arc<ForkServer>>)> {
    if let Some(shared) = shared
        && let Some(server) = shared.of(script)?
    {
        return Ok((server.guard().clone(), Some(server)));
    }
    let guard = Guard::start()?;
    let server = ForkServer::new(script, &guard).map(Arc::new);
    Ok((guard, server))
}

/// The interval after which outcomes leave this many processes on this many processors.
fn flush_every_ms(processes: usize, processors: usize) -> u64 {
    let at_once = PROCESSES_FLUSHED_AT_ONCE * processors as u64;
    (FLUSH_EVERY_MS * processes as u64 / at_once).clamp(FLUSH_EVERY_MS, FLUSH_EVERY_MS_MAX)
}

/// What a job asks about itself, as JSON, or the reason why it is not known.
async fn answer_of(context: Option<JobContext>, about: About) -> Result<String, String> {
    let Some(context) = context else {
        return Err("the job is unknown".to_owned());
    };
    let answer = async {
        let text = match about {
            About::Flow => serde_json::to_string(&context.step().await?),
            About::Prerequisites => serde_json::to_string(&context.prerequisites().await?),
        };
        text.map_err(|error| JobError::new("answer", error.to_string()))
    };
    match tokio::time::timeout(Duration::from_millis(QUESTION_MS_MAX), answer).await {
        Ok(answer) => answer.map_err(|error| error.message),
        Err(_) => Err(format!(
            "the store did not tell it within {QUESTION_MS_MAX} ms (QUESTION_MS_MAX)"
        )),
    }
}

fn no_finalize(position: u32) -> FailedJob {
    let reason = "the children of this job have ended, and a program cannot finalize: use a script";
    FailedJob {
        position,
        error: JobError::new("children", reason),
        duration_us: 0,
    }
}

#[async_trait]
impl Handler for ScriptHandler {
    async fn run(&self, runner: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        if self.is_program && work.is_finalizing() {
            sink.answer(Outcomes {
                failed: work.indexes().iter().map(no_finalize).collect(),
                ..Outcomes::default()
            });
            return;
        }
        let jobs = work.clone();
        let mut ticket = self.pool.push(runner, work);
        let mut look = tokio::time::interval(Duration::from_millis(SIGNALS_EVERY_MS));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                told = ticket.events.recv() => match told {
                    Some(Told::Outcomes(outcomes)) => sink.answer(*outcomes),
                    Some(Told::Progress(progress)) => sink.progress(progress),
                    Some(Told::Printed(index, bytes)) => sink.printed(index, &bytes),
                    Some(Told::Asked(index, asked)) => {
                        let context = jobs.jobs().nth(index as usize).map(|job| sink.context(&job));
                        // A process has one open question. A replaced process may leave one, for QUESTION_MS_MAX at most.
                        tokio::spawn(async move {
                            let answer = answer_of(context, asked.about()).await;
                            asked.answer(answer);
                        });
                    }
                    None => return,
                },
                _ = look.tick() => self.heed(&ticket, sink),
            }
        }
    }

    /// Each process has one job at a time until [`ScriptHandler::check`] has returned, because only then it is known
    /// whether the script is asynchronous.
    fn capacity(&self) -> Capacity {
        let concurrency = match self.pool.started() {
            Some(started) if !self.is_program => self.recipe.concurrency_of(started),
            _ => 1,
        };
        Capacity {
            runners: Some(self.processes),
            concurrency,
            whole_batches: false,
            gathers_for: Duration::from_millis(self.recipe.flush_every_ms),
        }
    }

    fn recall(&self, runner: usize) {
        self.pool.recall(runner);
    }

    fn listen(&self, listener: RunnerListener) {
        self.pool.listen(listener);
    }

    fn keeps_waiting(&self) -> bool {
        !self.is_program
    }

    async fn shut_down(&self) {
        self.pool.shut_down(true);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // The threads wait for their processes, which an asynchronous task must not do.
        let joined =
            tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join())));
        let _ = joined.await;
    }
}

impl Drop for ScriptHandler {
    fn drop(&mut self) {
        self.pool.shut_down(false);
        let threads = std::mem::take(self.threads.get_mut().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_processes_on_few_processors_send_less_often() {
        for (processes, processors, expected_ms) in
            [(1, 2, 2), (8, 2, 2), (16, 2, 4), (64, 2, 8), (64, 16, 2)]
        {
            assert_eq!(
                flush_every_ms(processes, processors),
                expected_ms,
                "{processes} processes on {processors} processors"
            );
        }
    }
}
