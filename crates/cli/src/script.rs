//! Scripts and programs as handlers.

mod dependencies;

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use gristmill_engine::Handler;
use gristmill_runtime::limits::START_PATIENCE_MS;
use gristmill_runtime::{
    DetectOptions, ProcessListener, Runtime, RuntimeError, RuntimeOptions, Script, ScriptHandler,
};

use crate::arguments::shared::ScriptConcurrency;

/// The environment variable that names the Python interpreter of all scripts.
const PYTHON_VARIABLE: &str = "GRISTMILL_PYTHON";

/// The script or the program with its arguments that a command line names. `python` is the interpreter of a Python script.
pub fn detect(script: Option<&Path>, program: &[String], python: Option<&Path>) -> anyhow::Result<Script> {
    let of_metadata = match (script, python) {
        (Some(path), None) if std::env::var_os(PYTHON_VARIABLE).is_none() => {
            dependencies::interpreter_for(path)?
        }
        _ => None,
    };
    let options = DetectOptions {
        interpreter: python.map(Path::to_owned).or(of_metadata),
        ..DetectOptions::default()
    };
    if let Some(python) = python
        && !is_executable(python)
    {
        bail!(
            "--python {} is not a program; name an interpreter, as in .venv/bin/python",
            python.display()
        );
    }
    match script {
        Some(path) => {
            let script = Script::detect(path, &options).map_err(|error| refused_script(path, error))?;
            if python.is_some() && script.runtime() != Runtime::Python {
                bail!("--python is for Python scripts, and {} is none", path.display());
            }
            if script.runtime() == Runtime::Program && runs_itself(path) && !is_executable(path) {
                return Err(not_executable(path));
            }
            Ok(script)
        }
        None => {
            let Some(name) = program.first() else {
                bail!("name a script, or write a program after --");
            };
            let words = program.iter().map(OsString::from).collect();
            Script::program(words, &options).map_err(|error| {
                let path = Path::new(name);
                if name.contains('/') && path.is_file() && !is_executable(path) {
                    not_executable(path)
                } else {
                    once(error)
                }
            })
        }
    }
}

fn refused_script(path: &Path, error: RuntimeError) -> anyhow::Error {
    let shown = path.display();
    match &error {
        RuntimeError::NoScript { source, .. } if source.kind() == ErrorKind::NotFound => {
            anyhow!("the script {shown} does not exist; check its path, or write a program after --")
        }
        RuntimeError::NoScript { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            anyhow!("the script {shown} cannot be read; allow it with `chmod +r {shown}`")
        }
        _ if path.is_dir() => anyhow!("{shown} is a folder; name a script"),
        _ => once(error),
    }
}

/// An error whose text contains its cause. The cause is removed, so that it appears only once.
fn once(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

fn not_executable(path: &Path) -> anyhow::Error {
    let shown = path.display();
    anyhow!("{shown} is not executable; allow it with `chmod +x {shown}`")
}

/// Reports whether a script that runs as a program is started by its own path, and not by a shell.
fn runs_itself(path: &Path) -> bool {
    let is_shell = |name: &str| ["bash", "sh", "dash"].contains(&name);
    if path
        .extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(is_shell)
    {
        return false;
    }
    let mut first = [0; 128];
    let bytes = std::fs::File::open(path)
        .and_then(|mut file| file.read(&mut first))
        .unwrap_or(0);
    let first = String::from_utf8_lossy(&first[..bytes]);
    let mut words = first.lines().next().unwrap_or_default().split(['/', ' ']);
    !words.any(is_shell)
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
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

/// The settings of a script's processes.
#[derive(Debug, Clone, Copy)]
pub struct Keeping {
    /// The number of jobs that run at the same time.
    pub concurrency: ScriptConcurrency,
    ends: bool,
    reload: bool,
}

impl Keeping {
    /// Runs jobs with this concurrency. A command that `ends` by itself waits only a limited time for a process to
    /// start. With `reload`, changed code replaces the processes at once.
    pub fn new(concurrency: ScriptConcurrency, ends: bool, reload: bool) -> Keeping {
        Keeping {
            concurrency,
            ends,
            reload,
        }
    }
}

/// Starts the script's processes, and checks that it can run.
pub async fn start(script: Script, keeping: Keeping) -> anyhow::Result<Arc<dyn Handler>> {
    let concurrency = keeping.concurrency;
    let options = RuntimeOptions {
        processes: concurrency.processes,
        concurrency: concurrency.concurrency,
        threads: concurrency.threads,
        start_patience_ms: keeping.ends.then_some(START_PATIENCE_MS),
        reload: keeping.reload,
        listener: ProcessListener::new(tell),
        ..RuntimeOptions::default()
    };
    let handler = ScriptHandler::new(script, &options).map_err(once)?;
    handler.check().await.map_err(once)?;
    Ok(Arc::new(handler))
}

/// Writes a message with a script's text to standard error, without characters that could steer a terminal. Its own
/// errors have no place to go.
fn tell(words: &str) {
    let is_plain = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t');
    let plain: String = words.chars().filter(is_plain).collect();
    let _ = writeln!(std::io::stderr(), "gristmill: {plain}");
}
