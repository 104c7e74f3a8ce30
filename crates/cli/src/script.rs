//! Scripts and programs as handlers.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use gristmill_engine::Handler;
use gristmill_runtime::{DetectOptions, RuntimeOptions, Script, ScriptHandler};

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

/// Starts the script's processes, and sees that it can be run.
pub async fn start(script: Script, processes: usize) -> anyhow::Result<Arc<dyn Handler>> {
    let options = RuntimeOptions {
        processes,
        ..RuntimeOptions::default()
    };
    let handler = ScriptHandler::new(script, &options)?;
    handler.check().await?;
    Ok(Arc::new(handler))
}
