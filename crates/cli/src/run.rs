//! `gristmill run`: a script over every item of an input, durably.
//!
//! Three tasks run at once, connected by the store. The feeder submits the input in batches, only a limited distance
//! ahead. The worker runs the submitted jobs. The writer follows in the input's order and writes each batch after its
//! end. Each task can stop at any time, because its work is in the store.

mod backlog;
mod corrections;
mod feeder;
mod halt;
mod hook;
mod identity;
mod lock;
#[cfg(feature = "full")]
mod model;
mod placeholders;
mod plan;
mod rate;
mod retry_failed;
mod work;
mod writer;

pub use corrections::Corrections;
pub use identity::{Description, is_of_run};
pub use lock::RunLock;
#[cfg(feature = "full")]
pub use model::ModelWork;
pub use work::Work;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, anyhow};
use gristmill_engine::{Engine, Handler, RunningWorker, WorkerSettings};
use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_operations::feeder::Feeder;
use gristmill_store::RunState;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::arguments::run::{ItemsArguments, RunArguments};
use crate::exit::Exit;
use crate::input::{BatchReader, Format};
use crate::interrupt::{CLOSE_MAX, Interrupt, how_it_ends, summary_of};
use crate::output::progress::{Progress, Snapshot};
use crate::output::summary::{Again, Standing, Summary};
use crate::output::{LineForm, Output, OutputError, OutputStatistics, print_line};
use crate::script::{Keeping, check_concurrency, detect};
use crate::span::show_number_of;
use crate::store::location::StoreLocation;
use crate::store::open::engine_over;
use backlog::Backlog;
use feeder::{FeedError, Held, read_in_background};
use halt::{GatedHandler, HaltGate};
use hook::hook_of;
use identity::queue_of;
use plan::{Plan, Request};
use writer::{Stage, WriteError, Writer, Written};

/// Runs the command.
pub async fn run(arguments: RunArguments) -> anyhow::Result<Exit> {
    let script = detect(
        arguments.script_file(),
        &arguments.program,
        arguments.python.as_deref(),
    )?
    .passing(&arguments.environment.passed);
    let keeping = Keeping::new(arguments.concurrency.of_scripts(), true, false);
    check_concurrency(std::iter::once(&script), &keeping.concurrency)?;
    let inputs = arguments.input_files();
    let work = Work::Script {
        arguments: arguments.program.iter().skip(1).cloned().collect(),
        file: arguments.script_file().map(std::path::Path::to_owned),
        script,
        keeping,
    };
    run_items(arguments.items, inputs, work).await
}

/// Does this work for every item of the inputs.
pub async fn run_items(arguments: ItemsArguments, inputs: Vec<PathBuf>, work: Work) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen_with_grace(arguments.stop.grace)?;
    let request = Request::new(&arguments, inputs, work)?;
    let begun = tokio::select! {
        begun = begin(&arguments, &request) => begun?,
        exit = interrupt.wait() => return Ok(exit),
    };
    let Begun {
        engine,
        lock,
        plan,
        handler,
        output,
    } = begun;
    let ended = Run {
        arguments: &arguments,
        request: &request,
        engine: &engine,
        lock: &lock,
        interrupt,
    }
    .go(plan, handler, output)
    .await;
    if arguments.rate.is_some() {
        rate::lift(engine.store(), &queue_of(&request.name)).await?;
    }
    engine.close().await?;
    ended
}

/// A run that is ready to start.
struct Begun {
    engine: Engine,
    lock: RunLock,
    plan: Plan,
    /// The started script, if it is certain to be needed.
    handler: Option<Arc<dyn Handler>>,
    output: Output,
}

/// Opens the store, takes the run, and plans its remaining work.
async fn begin(arguments: &ItemsArguments, request: &Request) -> anyhow::Result<Begun> {
    // An unusable script is reported before a store is created, a run starts or an old run is forgotten.
    let is_new = arguments.store.store.file().is_some_and(|file| !file.exists());
    let mut handler = if is_new {
        Some(request.work.start().await?)
    } else {
        None
    };
    let store = arguments.store.open_when_reachable(true).await?;
    let lock = RunLock::take(&arguments.store.store, &request.name).await?;
    if handler.is_none() && (arguments.restart || store.run(&request.name).await?.is_none()) {
        handler = Some(request.work.start().await?);
    }
    let plan = Plan::make(&store, request, arguments).await?;
    let form = if arguments.values {
        LineForm::Value
    } else {
        LineForm::Outcome
    };
    let output = Output::create(arguments.output_file(), form)?.counting(request.work.tally());
    let engine = engine_over(store, &arguments.lease).await?;
    let queue = queue_of(&request.name);
    if plan.was_rated {
        rate::lift(engine.store(), &queue).await?;
    }
    if let Some(rate) = arguments.rate {
        rate::set(engine.store(), &queue, rate).await?;
    }
    Ok(Begun {
        engine,
        lock,
        plan,
        handler,
        output,
    })
}

/// A run in this process.
struct Run<'a> {
    arguments: &'a ItemsArguments,
    request: &'a Request,
    engine: &'a Engine,
    lock: &'a RunLock,
    interrupt: Interrupt,
}

/// The results of the three tasks.
#[derive(Default)]
struct Outcome {
    written: Option<Written>,
    /// The input was submitted to its end or limit.
    fed: bool,
    /// The first error.
    problem: Option<anyhow::Error>,
    pipe_closed: bool,
    /// The failed jobs have reached the limit of `--halt`.
    is_halted: bool,
}

/// Further data of the summary.
struct Ending {
    ended_before: u64,
    ended_here: u64,
    children: u64,
    blank_lines: u64,
    seconds: f64,
    was_finished: bool,
    is_limited: bool,
}

impl Outcome {
    fn note(&mut self, problem: anyhow::Error) {
        if matches!(
            problem.downcast_ref(),
            Some(WriteError::Output(OutputError::PipeClosed))
        ) {
            self.pipe_closed = true;
        } else if self.problem.is_none() {
            self.problem = Some(problem);
        }
    }
}

impl Run<'_> {
    async fn go(
        self,
        mut plan: Plan,
        handler: Option<Arc<dyn Handler>>,
        output: Output,
    ) -> anyhow::Result<Exit> {
        let begun_at = Instant::now();
        let backlog = Arc::new(Backlog::new(self.arguments.batch));
        if plan.is_resumed && !plan.is_finished() {
            self.note_earlier_batches(&plan, &backlog).await?;
        }
        self.say_how_it_begins(&plan);
        let was_finished = plan.is_finished();
        let halt = self.arguments.halt;
        let gate = halt.map(|halt| Arc::new(HaltGate::new(halt, backlog.clone())));
        let reader = plan.reader.take();
        let (stage, stages) = watch::channel(Stage {
            all_fed: reader.is_none(),
            all_run: was_finished,
        });
        let writer = Writer {
            store: self.engine.store().clone(),
            run: plan.run,
            corrections: std::mem::take(&mut plan.corrections),
            backlog: backlog.clone(),
            stage: stages,
        };
        let worker = if was_finished {
            None
        } else {
            Some(self.start_worker(&plan, handler, &backlog, gate.as_ref()).await?)
        };
        let writing = tokio::spawn(writer.write(output));
        let reads_further = reader.is_some();
        let feeding = reader.map(|reader| tokio::spawn(self.feed(&plan, &backlog, reader)));
        let mut outcome = {
            let progress = Progress::new(self.arguments.quiet, self.arguments.output_file().is_none());
            let look = || self.look(&plan, &backlog, stage.borrow().all_fed);
            tokio::select! {
                outcome = self.conduct(feeding, worker, writing, (&stage, &backlog, gate.as_deref())) => outcome,
                _ = progress.show(look) => Outcome::default(),
            }
        };
        let is_limited = reads_further && self.stands_at_limit(&plan, &backlog);
        if let Err(error) = self.note_state(&plan, &outcome, is_limited).await {
            outcome.note(error);
        }
        let counts = backlog.counts();
        let ending = Ending {
            ended_before: plan.counts.ended(),
            ended_here: counts.completed.load(Ordering::Relaxed) + counts.failed.load(Ordering::Relaxed),
            children: counts.children.load(Ordering::Relaxed),
            blank_lines: self.blank_lines().await?,
            seconds: begun_at.elapsed().as_secs_f64(),
            was_finished,
            is_limited,
        };
        self.end(outcome, &ending)
    }

    /// Tells the backlog about the batches of earlier processes, so that their jobs count as items.
    async fn note_earlier_batches(&self, plan: &Plan, backlog: &Backlog) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let page = self
                .engine
                .store()
                .run_batches(plan.run, after, PAGE_ROWS_MAX)
                .await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.batch);
            backlog.note_earlier(page.iter().map(|row| row.batch));
        }
    }

    fn say_how_it_begins(&self, plan: &Plan) {
        if self.arguments.quiet || !plan.is_resumed || plan.is_finished() {
            return;
        }
        if let Some(retried) = plan.retried {
            say!("gristmill: run `{}`: {retried}", self.request.name);
            return;
        }
        if plan.has_new_items {
            say!(
                "gristmill: run `{}` goes on with the new items of {}; {} done before",
                self.request.name,
                self.request.input.name(),
                show_number_of(plan.counts.ended(), "job")
            );
            return;
        }
        let (ended, left) = (plan.counts.ended(), plan.counts.total() - plan.counts.ended());
        say!(
            "gristmill: resuming run `{}`: {} done before, {} submitted and not done",
            self.request.name,
            show_number_of(ended, "job"),
            crate::span::show_count(left)
        );
    }

    async fn start_worker(
        &self,
        plan: &Plan,
        handler: Option<Arc<dyn Handler>>,
        backlog: &Arc<Backlog>,
        gate: Option<&Arc<HaltGate>>,
    ) -> anyhow::Result<RunningWorker> {
        let handler = match handler {
            Some(handler) => handler,
            None => self.request.work.start().await?,
        };
        let concurrency = handler.capacity().runners.unwrap_or(1);
        let mut settings = WorkerSettings {
            concurrency,
            grace: self.arguments.stop.grace,
            ..WorkerSettings::default()
        };
        let handler = match gate {
            None => handler,
            Some(gate) => {
                // The gate admits only single jobs.
                settings.micro_batch_jobs_max = 1;
                Arc::new(GatedHandler::new(handler, gate.clone()))
            }
        };
        let mut worker = self.engine.worker();
        worker.settings(settings);
        worker
            .name(format!("run:{}", self.request.name))
            .queues([queue_of(&self.request.name)]);
        worker
            .handler(plan.kind.as_str(), handler)
            .observer(backlog.clone());
        Ok(worker.start())
    }

    /// Submits the batches of the input until it ends, or the program is interrupted: `false`.
    fn feed(
        &self,
        plan: &Plan,
        backlog: &Arc<Backlog>,
        reader: BatchReader,
    ) -> impl Future<Output = Result<bool, FeedError>> + Send + 'static {
        let mut feeder = Feeder {
            engine: self.engine.clone(),
            run: plan.run,
            progress: reader.progress(),
            kind: plan.kind.clone(),
            queue: queue_of(&self.request.name),
            options: plan::batch_options(self.arguments),
        };
        let held = Held {
            store: self.engine.store().clone(),
            backlog: backlog.clone(),
        };
        let mut interrupt = self.interrupt.clone();
        async move {
            let stop = async {
                interrupt.wait().await;
            };
            feeder.feed(read_in_background(reader), &held, stop).await
        }
    }

    /// Runs the three tasks to their ends. If one fails or the program is interrupted, stops the others.
    async fn conduct(
        &self,
        mut feeding: Option<JoinHandle<Result<bool, FeedError>>>,
        worker: Option<RunningWorker>,
        mut writing: JoinHandle<Result<Written, WriteError>>,
        (stage, backlog, gate): (&watch::Sender<Stage>, &Backlog, Option<&HaltGate>),
    ) -> Outcome {
        let mut outcome = Outcome {
            fed: feeding.is_none(),
            ..Outcome::default()
        };
        let mut interrupt = self.interrupt.clone();
        let stopper = worker.as_ref().map(RunningWorker::stopper);
        let stop = || stopper.iter().for_each(gristmill_engine::Stopper::stop);
        let mut running = worker.map(|worker| tokio::spawn(worker.join()));
        let (mut writes, mut asked, mut is_lost, mut is_denied) = (true, false, false, false);
        let mut changes = backlog.changes();
        while feeding.is_some() || running.is_some() || writes {
            tokio::select! {
                fed = join(&mut feeding), if feeding.is_some() => {
                    feeding = None;
                    match fed {
                        Ok(Ok(is_whole)) => outcome.fed = is_whole,
                        Err(error) if error.is_cancelled() => {}
                        Err(error) => outcome.note(error.into()),
                        // Jobs that were already read run to their end. An error of the store ends everything.
                        Ok(Err(FeedError::Input(error))) => outcome.note(error.into()),
                        Ok(Err(FeedError::Store(error))) => {
                            outcome.note(error.into());
                            stop();
                        }
                    }
                    stage.send_modify(|stage| stage.all_fed = true);
                }
                ran = join(&mut running), if running.is_some() => {
                    running = None;
                    if let Err(error) = ran.map_err(Into::into).and_then(|ran| summary_of(ran, &interrupt)) {
                        outcome.note(error);
                    }
                    interrupt.end_within(CLOSE_MAX);
                    feeding.iter().for_each(JoinHandle::abort);
                    stage.send_modify(|stage| stage.all_run = true);
                }
                written = &mut writing, if writes => {
                    writes = false;
                    match written {
                        Ok(Ok(written)) => outcome.written = Some(written),
                        Ok(Err(error)) => outcome.note(error.into()),
                        Err(error) => outcome.note(error.into()),
                    }
                    feeding.iter().for_each(JoinHandle::abort);
                    stop();
                }
                _ = changes.next(), if gate.is_some() && !outcome.is_halted => {
                    if gate.is_some_and(HaltGate::is_reached) {
                        outcome.is_halted = true;
                        feeding.iter().for_each(JoinHandle::abort);
                        stop();
                    }
                }
                reason = self.request.work.denied(), if !is_denied => {
                    is_denied = true;
                    outcome.note(stopped_by_denial(&reason));
                    feeding.iter().for_each(JoinHandle::abort);
                    stop();
                }
                () = self.lock.lost(), if !is_lost => {
                    is_lost = true;
                    outcome.note(taken_over(&self.request.name));
                    feeding.iter().for_each(JoinHandle::abort);
                    stop();
                }
                _ = interrupt.wait(), if !asked => {
                    asked = true;
                    if !self.arguments.quiet {
                        say!(
                            "\ngristmill: {}; press Ctrl-C again to exit immediately (commits are not lost)",
                            how_it_ends(self.arguments.stop)
                        );
                    }
                    stop();
                    if running.is_none() {
                        interrupt.end_within(CLOSE_MAX);
                    }
                }
            }
        }
        outcome
    }

    /// The progress of the run.
    fn look(&self, plan: &Plan, backlog: &Backlog, all_fed: bool) -> Snapshot {
        let counts = backlog.counts();
        let [
            submitted,
            completed,
            failed,
            children,
            children_failed,
            retried,
            input_bytes,
            input_jobs,
        ] = [
            &counts.submitted,
            &counts.completed,
            &counts.failed,
            &counts.children,
            &counts.children_failed,
            &counts.retried,
            &counts.input_bytes,
            &counts.input_jobs,
        ]
        .map(|count| count.load(Ordering::Relaxed));
        let guessed = match self.request.input.plain_size_bytes() {
            Some(bytes) if input_bytes > 0 => {
                Some((bytes as f64 / input_bytes as f64 * input_jobs as f64) as u64)
            }
            _ => None,
        };
        let (total, total_is_guessed) = match (all_fed, guessed) {
            (true, _) => (Some(plan.counts.total() + submitted), false),
            (false, guessed) => (guessed, true),
        };
        let limit = self.arguments.limit.unwrap_or(u64::MAX);
        Snapshot {
            completed: plan.counts.completed + completed,
            failed: plan.counts.ended() - plan.counts.completed + failed,
            retried,
            children,
            children_failed,
            total: total.map(|total| total.min(limit.max(plan.counts.total()))),
            total_is_guessed,
        }
    }

    fn stands_at_limit(&self, plan: &Plan, backlog: &Backlog) -> bool {
        let read = backlog
            .counts()
            .input_jobs
            .load(Ordering::Relaxed)
            .max(plan.progress.jobs);
        self.arguments.limit.is_some_and(|limit| read >= limit)
    }

    /// Stores that the input is submitted to its end, and that the run is finished.
    async fn note_state(&self, plan: &Plan, outcome: &Outcome, is_limited: bool) -> anyhow::Result<()> {
        let is_finished = outcome.fed
            && !is_limited
            && outcome.problem.is_none()
            && outcome.written.as_ref().is_some_and(|written| written.is_whole);
        if outcome.is_halted && !is_finished {
            let state = if outcome.fed && !is_limited {
                RunState::Submitted
            } else {
                RunState::Submitting
            };
            let halted = plan.halted()?;
            let noted = self.engine.store().update_run(plan.run, halted, state).await;
            return noted.context("the halt of the run cannot be stored");
        }
        if !outcome.fed || is_limited {
            return Ok(());
        }
        let state = if is_finished {
            RunState::Finished
        } else {
            RunState::Submitted
        };
        let store = self.engine.store();
        let remember = plan.remember.clone();
        let hook = if is_finished {
            let hooks = self.arguments.hooks.hooks();
            hook_of(&**store, plan, &self.request.name, hooks.as_deref()).await?
        } else {
            None
        };
        let noted = match hook {
            Some(hook) => store.finish_run(plan.run, remember, hook).await,
            None => store.update_run(plan.run, remember, state).await,
        };
        noted.context("the end of the run cannot be stored")
    }

    /// The number of blank lines in a JSONL input.
    async fn blank_lines(&self) -> anyhow::Result<u64> {
        if self.request.description.input.format != Format::Jsonl.name() {
            return Ok(0);
        }
        let run = self.engine.store().run(&self.request.name).await?;
        Ok(run.map_or(0, |run| run.progress.lines.saturating_sub(run.progress.jobs)))
    }

    fn end(&self, outcome: Outcome, ending: &Ending) -> anyhow::Result<Exit> {
        let is_whole = outcome.fed && outcome.written.as_ref().is_some_and(|written| written.is_whole);
        let standing = match (is_whole, ending.was_finished, ending.is_limited) {
            (true, true, _) => Standing::FinishedBefore,
            (true, false, true) => Standing::Limited,
            (true, false, false) => Standing::Finished,
            (false, ..) => Standing::Stopped {
                ended: ending.ended_before + ending.ended_here,
                is_halted: outcome.is_halted,
            },
        };
        if let Some(written) = &outcome.written {
            let summary = Summary {
                name: &self.request.name,
                store_option: self.store_option(),
                statistics: &written.statistics,
                blank_lines: ending.blank_lines,
                again: Again::of(self.request.input.is_stdin(), self.arguments.name.is_some()),
                ended_here: ending.ended_here,
                children: ending.children,
                seconds: ending.seconds,
                standing,
            };
            self.tell(&summary)?;
        }
        if let Some(problem) = outcome.problem {
            return Err(problem);
        }
        let all_completed = |statistics: &OutputStatistics| statistics.failed == 0;
        Ok(
            match (outcome.pipe_closed, self.interrupt.asked(), &outcome.written) {
                (true, ..) => Exit::PipeClosed,
                (false, Some(exit), _) if !is_whole => exit,
                (false, _, Some(written)) if is_whole && all_completed(&written.statistics) => Exit::Done,
                _ => Exit::SomeFailed,
            },
        )
    }

    fn tell(&self, summary: &Summary<'_>) -> anyhow::Result<()> {
        if self.arguments.json {
            let json = summary.json().to_string();
            match self.arguments.output_file() {
                Some(_) => print_line(&json)?,
                None => say!("{json}"),
            }
        } else if !self.arguments.quiet {
            say!("{}", summary.text());
        }
        Ok(())
    }

    /// The option that names the store in suggested commands.
    fn store_option(&self) -> String {
        match &self.arguments.store.store {
            StoreLocation::File(path) if path.as_os_str() == "gristmill.db" => String::new(),
            // The address may hold a password, which belongs in the environment.
            StoreLocation::Postgres(url) if url.has_password() => String::new(),
            location => format!(" --store '{location}'"),
        }
    }
}

fn stopped_by_denial(reason: &str) -> anyhow::Error {
    anyhow!("{reason}; the run stopped, and no job failed for it: run it again when that is mended")
}

fn taken_over(name: &str) -> anyhow::Error {
    anyhow!("another process took over run `{name}` while the database was unreachable; nothing is lost")
}

async fn join<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, tokio::task::JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}
