//! Scripts and programs as handlers.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use gristmill_engine::Handler;
use gristmill_runtime::{DetectOptions, Runtime, RuntimeOptions, Script, ScriptHandler};

use crate::arguments::shared::ScriptConcurrency;

/// The script, or the program and its arguments, that a command line names.
pub fn detect(script: Option<&Path>, program: &[String]) -> anyhow::Result<Script> {
    let options = DetectOptions::default();
    match script {
        Some(path) => Ok(Script::detect(path, &options)?),
        None if !program.is_empty() => Ok(Script::program(
            program.iter().map(OsString::from).collect(),
            &options,
        )?),
        None => bail!("name a script, or write a program after --"),
    }
}

/// Refuses options that have no effect on any of these scripts.
pub fn check_concurrency<'s>(
    scripts: impl Iterator<Item = &'s Script> + Clone,
    concurrency: &ScriptConcurrency,
) -> anyhow::Result<()> {
    let runs = |wanted: fn(Runtime) -> bool| scripts.clone().any(|script| wanted(script.runtime()));
    if concurrency.threads > 1 && !runs(|runtime| runtime == Runtime::Python) {
        bail!(
            "--threads is for Python scripts: JavaScript and TypeScript run asynchronous jobs at once (--concurrency), and \
             all run as many processes as -j says"
        );
    }
    if concurrency.is_concurrency_given && !runs(|runtime| runtime != Runtime::Program) {
        bail!(
            "--concurrency needs an asynchronous script: a program runs one job at a time, in -j processes"
        );
    }
    Ok(())
}

/// Starts the script's processes, and sees that it can be run.
pub async fn start(script: Script, concurrency: ScriptConcurrency) -> anyhow::Result<Arc<dyn Handler>> {
    let options = RuntimeOptions {
        processes: concurrency.processes,
        concurrency: concurrency.concurrency,
        threads: concurrency.threads,
        ..RuntimeOptions::default()
    };
    let handler = ScriptHandler::new(script, &options)?;
    handler.check().await?;
    Ok(Arc::new(handler))
}
