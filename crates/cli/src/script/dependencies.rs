//! Python scripts with inline dependencies (PEP 723). `uv` makes their environment, if it is on the PATH.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// The metadata must begin within this many bytes of a script.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// The first line of the metadata.
const BEGIN: &str = "# /// script";

/// The number of lines of uv's messages that an error shows.
const MESSAGE_LINES_MAX: usize = 5;

/// The interpreter of the environment of a Python script with inline dependencies. The environment is created if
/// needed. `None` for other scripts, and without `uv`.
pub fn interpreter_for(script: &Path) -> anyhow::Result<Option<PathBuf>> {
    let is_python = script.extension().is_some_and(|extension| extension == "py");
    if !is_python || !has_metadata(script) {
        return Ok(None);
    }
    let Some(_) = uv(&["sync", "--quiet", "--script"], script)? else {
        say!(
            "gristmill: warning: {} lists its dependencies, and uv is not on the PATH: its Python must have them",
            script.display()
        );
        return Ok(None);
    };
    let Some(found) = uv(&["python", "find", "--script"], script)? else {
        return Ok(None);
    };
    Ok(Some(PathBuf::from(found.trim())))
}

/// The output of uv. `None` without uv.
fn uv(arguments: &[&str], script: &Path) -> anyhow::Result<Option<String>> {
    let ran = Command::new("uv")
        .args(arguments)
        .arg(script)
        .stdin(Stdio::null())
        .output();
    let output = match ran {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("uv cannot be started"),
    };
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = message.trim().lines().take(MESSAGE_LINES_MAX).collect();
        bail!(
            "uv cannot make the environment of {}: {}",
            script.display(),
            lines.join("; ")
        );
    }
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn has_metadata(script: &Path) -> bool {
    let mut head = Vec::new();
    let read = std::fs::File::open(script).and_then(|file| file.take(HEAD_BYTES_MAX).read_to_end(&mut head));
    read.is_ok()
        && String::from_utf8_lossy(&head)
            .lines()
            .any(|line| line.trim_end() == BEGIN)
}
