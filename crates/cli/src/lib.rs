//! The `gristmill` program: the command line over the engine.
//!
//! [`main`] reads the [arguments] and passes them to the module of the command. `run` is the main one.

// These macros panic if standard output or standard error is closed or full. Use `say!` and `print_line` instead.
#![deny(clippy::print_stderr, clippy::print_stdout)]

// All modules below use its macro `say!`.
#[macro_use]
mod output;

pub mod arguments;

mod control;
mod exit;
mod fleet;
pub mod input;
mod interrupt;
mod jobs;
#[cfg(not(feature = "full"))]
mod left_out;
#[cfg(feature = "full")]
mod memory;
mod pauses;
mod run;
mod schedule;
mod script;
mod shell;
mod span;
mod store;
#[cfg(feature = "full")]
mod telemetry;
#[cfg(not(feature = "full"))]
#[path = "left_out/telemetry.rs"]
mod telemetry;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::FromArgMatches;
use gristmill_store::Change;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use arguments::{Arguments, Command, help};
use exit::Exit;
use jobs::change::change_jobs;
use output::terminal::StandardError;
use output::{OutputError, color};
use telemetry::Telemetry;

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    gristmill_runtime::reap_as_first_process();
    let arguments = match written_arguments() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    #[cfg(not(feature = "full"))]
    if let Some(error) = left_out::refused(&arguments) {
        return refuse(&error);
    }
    let color = color::choose(&arguments);
    let known = arguments::container::without_empty_variables(help::program()).color(color);
    let matches = known.clone().get_matches_from(arguments);
    let arguments =
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut known.clone()).exit());
    end_where_no_thread_can_start();
    let telemetry = telemetry::from_environment();
    log(telemetry.as_ref());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(reason) => {
            return refuse(&anyhow::Error::new(reason).context("the program cannot start its threads"));
        }
    };
    let ended = runtime.block_on(async {
        let Some(telemetry) = telemetry else {
            return command(arguments.command, None).await;
        };
        telemetry.start(runtime.handle());
        let ended = command(arguments.command, Some(&telemetry)).await;
        telemetry.finish().await;
        ended
    });
    // A thread that waits for standard input would wait forever.
    runtime.shutdown_background();
    store::checkpoint::checkpoint_opened();
    match ended {
        Ok(exit) => exit.into(),
        Err(error) if is_closed_pipe(&error) => Exit::PipeClosed.into(),
        Err(error) => refuse(&error),
    }
}

/// The arguments. If they name no command, the environment's command comes first.
fn written_arguments() -> anyhow::Result<Vec<OsString>> {
    let known = help::program();
    let is_command = |word: &str| {
        ["help", "-h", "--help", "-V", "--version"].contains(&word) || known.find_subcommand(word).is_some()
    };
    arguments::container::with_command(
        std::env::args_os().collect(),
        arguments::container::variable,
        is_command,
    )
}

/// Ends the program if the system lets it start no further thread. Libraries panic then, and whatever waits for the
/// thread would wait forever. The store has all acknowledged data, and the jobs of this program run again.
fn end_where_no_thread_can_start() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        let is_thread = NO_THREAD_PANICS.iter().any(|start| text.starts_with(start));
        if !is_thread {
            return before(panic);
        }
        let _ = writeln!(
            std::io::stderr(),
            "error: the system lets this program start no further thread ({text}): raise the limit of processes and threads \
             (ulimit -u, TasksMax of systemd, pids.max of a container), or ask for fewer processes (-j)"
        );
        std::process::exit(i32::from(Exit::Refused.code()));
    }));
}

/// The first words of the panics with which tokio and the standard library report that a thread cannot start.
const NO_THREAD_PANICS: [&str; 2] = ["OS can't spawn worker thread", "failed to spawn thread"];

/// Writes the log to standard error, and exports it if telemetry is on.
fn log(telemetry: Option<&Telemetry>) {
    let shown = tracing_subscriber::EnvFilter::try_from_env("GRISTMILL_LOG")
        .unwrap_or_else(|_| format!("error,{}=info", gristmill_store::NEWS).into());
    let Some(telemetry) = telemetry else {
        let subscriber = tracing_subscriber::fmt().with_writer(|| StandardError);
        return subscriber
            .with_ansi(color::on_stderr())
            .with_env_filter(shown)
            .init();
    };
    // Each layer has its own filter, which costs a little.
    let writer = tracing_subscriber::fmt::layer()
        .with_writer(|| StandardError)
        .with_ansi(color::on_stderr());
    tracing_subscriber::registry()
        .with(writer.with_filter(shown))
        .with(telemetry.layer())
        .init();
}

#[cfg_attr(not(feature = "full"), allow(unused_variables))]
async fn command(command: Command, telemetry: Option<&Telemetry>) -> anyhow::Result<Exit> {
    match command {
        Command::Run(arguments) => run::run(arguments).await,
        #[cfg(feature = "full")]
        Command::Llm(arguments) => fleet::llm::llm(arguments).await,
        Command::Submit(arguments) => jobs::submit::submit(arguments).await,
        Command::Worker(arguments) => fleet::worker::worker(arguments).await,
        Command::Pause(arguments) => control::pause(arguments).await,
        Command::Resume(arguments) => control::resume(arguments).await,
        Command::Pauses(arguments) => control::pauses(arguments).await,
        Command::Limit(arguments) => control::limit(arguments).await,
        Command::Flow(arguments) => jobs::flow::flow(arguments).await,
        Command::Schedule(arguments) => schedule::schedule(arguments).await,
        #[cfg(feature = "full")]
        Command::Fleet(command) => fleet::execute(command, telemetry).await,
        Command::Jobs(arguments) => jobs::list::jobs(arguments).await,
        Command::Wait(arguments) => jobs::wait::wait(arguments).await,
        Command::Queues(arguments) => store::queues::queues(arguments).await,
        Command::Workers(arguments) => store::queues::workers(arguments).await,
        Command::Drain(arguments) => store::queues::drain(arguments).await,
        Command::Tags(arguments) => jobs::tags::tags(arguments).await,
        Command::Show(arguments) => jobs::show::show(arguments).await,
        Command::Logs(arguments) => jobs::logs::logs(arguments).await,
        Command::Events(arguments) => jobs::events::events(arguments).await,
        Command::Retry(arguments) => change_jobs(arguments, Change::Retry).await,
        Command::Cancel(arguments) => change_jobs(arguments, Change::Cancel).await,
        Command::Discard(arguments) => change_jobs(arguments, Change::Discard).await,
        Command::Priority(priority) => {
            change_jobs(priority.change, Change::Prioritise(priority.priority)).await
        }
        Command::Results(arguments) => jobs::results::results(arguments).await,
        Command::Runs(arguments) => store::runs::runs(arguments).await,
        Command::Stats(arguments) => store::stats::stats(arguments).await,
        Command::History(arguments) => store::history::history(arguments).await,
        Command::Prune(arguments) => store::prune::prune(arguments).await,
        Command::Backup(arguments) => store::backup::backup(arguments).await,
        Command::Check(arguments) => store::check::check(arguments).await,
        #[cfg(feature = "full")]
        Command::Knowledge(command) => memory::execute(command).await,
        Command::Completions(arguments) => shell::completions::completions(&arguments),
        Command::Man(arguments) => shell::man::man(&arguments),
    }
}

fn refuse(error: &anyhow::Error) -> ExitCode {
    say!("error: {error:#}");
    Exit::of_error(error).into()
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(OutputError::PipeClosed)))
}
