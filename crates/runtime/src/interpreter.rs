//! The search for installed interpreters.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::RuntimeError;

/// A program that runs scripts of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// CPython 3.8 or newer.
    Python,
    /// Node 18 or newer; TypeScript from 22.6.
    Node,
    /// Deno 2 or newer.
    Deno,
    /// Bun 1.1 or newer.
    Bun,
    /// One process for each job: a shell or any program.
    Program,
}

impl Runtime {
    /// The runtime's name in words.
    pub const fn name(self) -> &'static str {
        match self {
            Runtime::Python => "Python",
            Runtime::Node => "Node",
            Runtime::Deno => "Deno",
            Runtime::Bun => "Bun",
            Runtime::Program => "a program",
        }
    }

    /// The environment variable that names the interpreter to use.
    const fn variable(self) -> &'static str {
        match self {
            Runtime::Python => "GRISTMILL_PYTHON",
            Runtime::Node => "GRISTMILL_NODE",
            Runtime::Deno => "GRISTMILL_DENO",
            Runtime::Bun => "GRISTMILL_BUN",
            Runtime::Program => "GRISTMILL_BASH",
        }
    }

    const fn programs(self) -> &'static [&'static str] {
        match self {
            Runtime::Python => &["python3", "python"],
            Runtime::Node => &["node"],
            Runtime::Deno => &["deno"],
            Runtime::Bun => &["bun"],
            Runtime::Program => &["bash", "sh"],
        }
    }

    /// The interpreter with this name, as in a path or after `#!`.
    pub(crate) fn of_program(name: &str) -> Option<Runtime> {
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        match stem {
            "python" | "pypy" => Some(Runtime::Python),
            "node" | "nodejs" => Some(Runtime::Node),
            "deno" => Some(Runtime::Deno),
            "bun" => Some(Runtime::Bun),
            _ => None,
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Major and minor version.
pub(crate) type Version = (u32, u32);

/// A found interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub runtime: Runtime,
    pub program: PathBuf,
    pub version: Version,
}

impl Interpreter {
    /// Asks a program for its version. Returns `None` if the program does not run or prints no version, and an error if
    /// the system has no room for another process.
    pub fn probe(runtime: Runtime, program: &Path) -> Result<Option<Interpreter>, RuntimeError> {
        if runtime == Runtime::Program {
            return Ok(Some(Interpreter {
                runtime,
                program: program.to_owned(),
                version: (0, 0),
            }));
        }
        let behind = if runtime == Runtime::Python && is_version_manager_shim(program) {
            executable_behind(program)?
        } else {
            None
        };
        let program = behind.as_deref().unwrap_or(program);
        let said = said_by(program, &["--version"])?;
        let version = said.and_then(|said| parse_version(&said));
        Ok(version.map(|version| Interpreter {
            runtime,
            program: program.to_owned(),
            version,
        }))
    }

    /// The interpreter that the environment names for `runtime`, or the first one in `search_path`.
    pub fn find(runtime: Runtime, search_path: Option<&OsStr>) -> Result<Option<Interpreter>, RuntimeError> {
        if let Some(named) = std::env::var_os(runtime.variable()) {
            return Interpreter::probe(runtime, Path::new(&named));
        }
        let programs = runtime.programs().iter();
        first_found(
            runtime,
            programs.filter_map(|name| find_program(OsStr::new(name), search_path)),
        )
    }

    /// The Python of the active virtual environment, or of `.venv` beside the script.
    pub fn find_in_venv(script: &Path) -> Result<Option<Interpreter>, RuntimeError> {
        let active = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
        let beside = script.parent().map(|folder| folder.join(".venv"));
        if std::env::var_os(Runtime::Python.variable()).is_some() {
            return Ok(None);
        }
        let programs = active.into_iter().chain(beside);
        let mut programs = programs.map(|folder| folder.join("bin/python3"));
        let program = programs.find(|program| program.exists());
        first_found(Runtime::Python, program.into_iter())
    }
}

/// The first of these programs that is an interpreter.
fn first_found(
    runtime: Runtime,
    programs: impl Iterator<Item = PathBuf>,
) -> Result<Option<Interpreter>, RuntimeError> {
    for program in programs {
        if let Some(interpreter) = Interpreter::probe(runtime, &program)? {
            return Ok(Some(interpreter));
        }
    }
    Ok(None)
}

/// Reports whether a program is a shell script with which a version manager (pyenv, asdf, mise) finds the interpreter
/// at each start. This search takes longer than the start of the interpreter itself.
fn is_version_manager_shim(program: &Path) -> bool {
    let folder = program.parent().and_then(Path::file_name);
    let is_script = || {
        let mut first = [0; 2];
        let read = std::fs::File::open(program).and_then(|mut file| file.read_exact(&mut first));
        read.is_ok() && first == *b"#!"
    };
    folder == Some(OsStr::new("shims")) && is_script()
}

/// The Python that a version manager's shim stands for.
fn executable_behind(shim: &Path) -> Result<Option<PathBuf>, RuntimeError> {
    let said = said_by(shim, &["-c", "import sys; print(sys.executable)"])?;
    let program = said.map(|said| PathBuf::from(said.trim_end()));
    Ok(program.filter(|program| program.is_file()))
}

/// The output of a program. `None` if it does not run, or fails.
fn said_by(program: &Path, arguments: &[&str]) -> Result<Option<String>, RuntimeError> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => Ok(output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())),
        Err(source) => {
            let program = program.display().to_string();
            let error = RuntimeError::Spawn { program, source };
            if error.is_shortage() { Err(error) } else { Ok(None) }
        }
    }
}

/// Finds a program like a shell: a name with a slash is a path, and others are searched.
pub(crate) fn find_program(name: &OsStr, search_path: Option<&OsStr>) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file();
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(is_program);
    }
    let environment: Option<OsString> = std::env::var_os("PATH");
    let folders = search_path.or(environment.as_deref())?;
    std::env::split_paths(folders)
        .map(|folder| folder.join(name))
        .find(is_program)
}

/// The first `major.minor` in the output of `--version`.
fn parse_version(text: &str) -> Option<Version> {
    text.split_whitespace().find_map(|word| {
        let mut numbers = word.trim_start_matches('v').split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_interpreters_print_are_read() {
        assert_eq!(parse_version("Python 3.11.7\n"), Some((3, 11)));
        assert_eq!(parse_version("v22.6.0"), Some((22, 6)));
        assert_eq!(
            parse_version("deno 2.9.6 (stable, release, x86_64)\nv8 14.1\n"),
            Some((2, 9))
        );
        assert_eq!(parse_version("1.4.5\n"), Some((1, 4)));
        assert_eq!(parse_version("no number"), None);
    }

    #[test]
    fn the_interpreter_behind_the_shim_of_a_version_manager_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let python = find_program(OsStr::new("python3"), None).unwrap();
        let python = executable_behind(&python).unwrap().unwrap();
        let write = |folder: &Path| {
            std::fs::create_dir_all(folder).unwrap();
            let program = folder.join("python3");
            let text = format!("#!/bin/sh\nexec {} \"$@\"\n", python.display());
            std::fs::write(&program, text).unwrap();
            std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            program
        };
        let shim = write(&folder.path().join("shims"));
        let probed = Interpreter::probe(Runtime::Python, &shim).unwrap().unwrap();
        assert_eq!(probed.program, python);
        // Another wrapper may set up the interpreter's environment.
        let wrapper = write(&folder.path().join("bin"));
        let probed = Interpreter::probe(Runtime::Python, &wrapper).unwrap().unwrap();
        assert_eq!(probed.program, wrapper);
    }

    #[test]
    fn programs_are_recognised_by_their_names() {
        assert_eq!(Runtime::of_program("python3.12"), Some(Runtime::Python));
        assert_eq!(Runtime::of_program("node"), Some(Runtime::Node));
        assert_eq!(Runtime::of_program("perl"), None);
    }
}
