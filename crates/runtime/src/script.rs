//! A script and its interpreter, or a program.

pub(crate) mod environment;
#[cfg(fuzzing)]
pub mod fuzzing;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::RuntimeError;
use crate::interpreter::{Interpreter, Runtime, Version, find_program};
use crate::script::environment::withhold_secrets;

/// One program for each language, cut into files by subject.
const PYTHON_SHIM: &str = concat!(
    include_str!("shims/python/protocol.py"),
    include_str!("shims/python/spawning.py"),
    include_str!("shims/python/jobs.py"),
    include_str!("shims/python/flows.py"),
    "FLOW_MODULES = {'_spans': r'''",
    include_str!("../../../python/gristmill/_spans.py"),
    "''', '_flow.memo': r'''",
    include_str!("../../../python/gristmill/_flow/memo.py"),
    "''', '_flow.replay': r'''",
    include_str!("../../../python/gristmill/_flow/replay.py"),
    "''', '_flow.kept': r'''",
    include_str!("../../../python/gristmill/_flow/kept.py"),
    "''', '_flow.loop': r'''",
    include_str!("../../../python/gristmill/_flow/loop.py"),
    "''', '_flow.script': r'''",
    include_str!("../../../python/gristmill/_flow/script.py"),
    "'''}\n",
    include_str!("shims/python/requests.py"),
    include_str!("shims/python/values.py"),
    include_str!("shims/python/outbox.py"),
    include_str!("shims/python/ending.py"),
    include_str!("shims/python/process.py"),
    include_str!("shims/python/asynchronous.py"),
    include_str!("shims/python/fork_server.py"),
    include_str!("shims/python/start.py"),
);
const JAVASCRIPT_SHIM: &str = concat!(
    include_str!("shims/javascript/outcomes.js"),
    include_str!("shims/javascript/numbers.js"),
    include_str!("shims/javascript/requests.js"),
    include_str!("shims/javascript/flow-scripts.js"),
    include_str!("shims/javascript/memo.js"),
    include_str!("shims/javascript/flow.js"),
    include_str!("shims/javascript/printing.js"),
    include_str!("shims/javascript/running.js"),
    include_str!("shims/javascript/serving.js"),
    include_str!("shims/javascript/starting.js"),
);

/// Reads the shim from its file in memory, so that no file stays on disk and no argument shows it.
const PYTHON_START: &str = "exec(compile(open('/dev/fd/6', encoding='utf-8').read(), '<gristmill>', 'exec'), \
                            {'__name__': '<gristmill>'})";
const JAVASCRIPT_START: &str = "import('node:fs').then((fs) => new Function('fs', 'load', \
                                fs.readFileSync('/dev/fd/6', 'utf8') + '\\n//# sourceURL=gristmill-shim.js')\
                                (fs, (url) => import(url)))";

/// The versions from which a runtime has a feature.
const PYTHON_MIN: Version = (3, 8);
const NODE_MIN: Version = (18, 0);
const NODE_TYPESCRIPT_MIN: Version = (22, 6);

/// The places where interpreters are searched.
#[derive(Debug, Clone, Default)]
pub struct DetectOptions {
    /// Use this interpreter, whatever is installed.
    pub interpreter: Option<PathBuf>,
    /// Search these folders, written as in `PATH`, instead of those in `PATH`.
    pub search_path: Option<OsString>,
}

/// A script or program that can run jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    path: PathBuf,
    runtime: Runtime,
    command: Vec<OsString>,
    /// The secrets of the environment that it gets.
    passed: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    JavaScript,
    TypeScript,
    Shell,
    /// A file that the kernel executes by its first line.
    Executable,
}

impl Script {
    /// Detects the language and the interpreter of a script by its first line (`#!/usr/bin/env deno`) and its extension.
    ///
    /// Python is `$GRISTMILL_PYTHON`, the Python of the active virtual environment or of a `.venv` beside the script,
    /// or `python3`. JavaScript runs on Node, Deno or Bun, in this order, and TypeScript on Deno, Bun or Node 22.6 and
    /// newer. `$GRISTMILL_NODE`, `$GRISTMILL_DENO`, `$GRISTMILL_BUN` and `$GRISTMILL_BASH` name other interpreters than
    /// those in `PATH`.
    pub fn detect(path: &Path, options: &DetectOptions) -> Result<Script, RuntimeError> {
        let no_script = |source| RuntimeError::NoScript {
            path: path.to_owned(),
            source,
        };
        let absolute = path.canonicalize().map_err(no_script)?;
        let first_line = first_line(&absolute).map_err(no_script)?;
        let shebang = shebang_program(&first_line);
        let language =
            language(&absolute, shebang.as_deref()).ok_or_else(|| RuntimeError::UnknownLanguage {
                path: path.to_owned(),
            })?;
        if language == Language::Executable {
            return Ok(Script {
                command: vec![absolute.clone().into()],
                path: absolute,
                runtime: Runtime::Program,
                passed: Vec::new(),
            });
        }
        let interpreter = find_interpreter(&absolute, language, shebang.as_deref(), options)?;
        Ok(Script {
            command: command_line(&interpreter, language, &absolute),
            path: absolute,
            runtime: interpreter.runtime,
            passed: Vec::new(),
        })
    }

    /// A program with arguments, which runs once for each job: the payload is on its standard input, and the value on
    /// its standard output.
    pub fn program(argv: Vec<OsString>, options: &DetectOptions) -> Result<Script, RuntimeError> {
        let name = argv.first().ok_or(RuntimeError::NoProgram)?;
        let path = find_program(name, options.search_path.as_deref()).ok_or_else(|| RuntimeError::Spawn {
            program: name.to_string_lossy().into_owned(),
            source: std::io::Error::new(
                std::io::ErrorKind::NotFound,
                "no such program; write its path, or add its folder to PATH",
            ),
        })?;
        Ok(Script {
            path,
            runtime: Runtime::Program,
            command: argv,
            passed: Vec::new(),
        })
    }

    /// Adds these variables of the environment. Without this, a script gets all variables except the [secrets of
    /// Gristmill](crate::SECRET_VARIABLES) and the names of stores that are databases.
    pub fn passing<Name: AsRef<OsStr>>(mut self, names: &[Name]) -> Script {
        self.passed
            .extend(names.iter().map(|name| name.as_ref().to_owned()));
        self
    }

    /// The absolute path of the script or program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of its file.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Its interpreter.
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// The name of the started interpreter or program.
    pub fn program_name(&self) -> String {
        self.command
            .first()
            .map_or_else(String::new, |program| program.to_string_lossy().into_owned())
    }

    /// The command to start: once for a warm process, and once for each job of a program.
    pub(crate) fn command(&self) -> Command {
        let mut words = self.command.iter();
        let mut command = Command::new(words.next().map_or_else(|| "".as_ref(), OsString::as_os_str));
        command.args(words);
        withhold_secrets(&mut command, &self.passed);
        command
    }

    /// The command of a process that forks the warm ones, if the runtime can fork.
    pub(crate) fn fork_server_command(&self) -> Option<Command> {
        (self.runtime == Runtime::Python).then(|| {
            let mut command = self.command();
            command.arg("fork-server").arg(&self.path);
            command
        })
    }

    /// Gristmill's side of a warm process.
    pub(crate) fn shim(&self) -> &'static str {
        match self.runtime {
            Runtime::Python => PYTHON_SHIM,
            _ => JAVASCRIPT_SHIM,
        }
    }
}

pub(crate) fn first_line(path: &Path) -> std::io::Result<String> {
    let mut line = Vec::new();
    let file = std::fs::File::open(path)?;
    BufReader::new(file.take(256)).read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// The program in a first line such as `#!/usr/bin/env -S deno run`.
fn shebang_program(first_line: &str) -> Option<String> {
    let mut words = first_line.strip_prefix("#!")?.split_whitespace();
    let name = |word: &str| word.rsplit('/').next().map(str::to_owned);
    let program = name(words.next()?)?;
    if program == "env" {
        return words
            .find(|word| !word.starts_with('-') && !word.contains('='))
            .and_then(name);
    }
    Some(program)
}

fn language(path: &Path, shebang: Option<&str>) -> Option<Language> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("py") => return Some(Language::Python),
        Some("js" | "mjs" | "cjs") => return Some(Language::JavaScript),
        Some("ts" | "mts" | "cts" | "tsx") => return Some(Language::TypeScript),
        Some("sh" | "bash") => return Some(Language::Shell),
        _ => {}
    }
    match Runtime::of_program(shebang?) {
        Some(Runtime::Python) => Some(Language::Python),
        Some(_) => Some(Language::JavaScript),
        None if matches!(shebang, Some("bash" | "sh" | "dash")) => Some(Language::Shell),
        None => Some(Language::Executable),
    }
}

fn find_interpreter(
    path: &Path,
    language: Language,
    shebang: Option<&str>,
    options: &DetectOptions,
) -> Result<Interpreter, RuntimeError> {
    let (candidates, needs, remedy): (&[Runtime], _, _) = match language {
        Language::Python => (
            &[Runtime::Python],
            "Python 3.8 or newer",
            "install python3, or set GRISTMILL_PYTHON to an interpreter",
        ),
        Language::JavaScript => (
            &[Runtime::Node, Runtime::Deno, Runtime::Bun],
            "Node 18 or newer, Deno or Bun",
            "install one of them, or set GRISTMILL_NODE, GRISTMILL_DENO or GRISTMILL_BUN to it",
        ),
        Language::TypeScript => (
            &[Runtime::Deno, Runtime::Bun, Runtime::Node],
            "Deno, Bun or Node 22.6 or newer",
            "install one of them (`npm install -g deno` does), or set GRISTMILL_DENO, GRISTMILL_BUN or \
             GRISTMILL_NODE to it",
        ),
        Language::Shell | Language::Executable => (
            &[Runtime::Program],
            "bash",
            "install bash, or set GRISTMILL_BASH to a shell",
        ),
    };
    let mut found = Vec::new();
    if let Some(program) = &options.interpreter {
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let runtime = Runtime::of_program(&name).unwrap_or(candidates[0]);
        found.extend(Interpreter::probe(runtime, program)?);
    } else {
        let asked = shebang.and_then(Runtime::of_program);
        if language == Language::Python {
            found.extend(Interpreter::find_in_venv(path)?);
        }
        let mut order: Vec<Runtime> = candidates.to_vec();
        order.sort_by_key(|runtime| Some(*runtime) != asked);
        for runtime in order {
            // The first suitable one ends the search, because each is asked for its version.
            if found.iter().any(|interpreter| will_do(interpreter, language)) {
                break;
            }
            found.extend(Interpreter::find(runtime, options.search_path.as_deref())?);
        }
    }
    let described = found.iter().map(|interpreter| {
        let (major, minor) = interpreter.version;
        format!(
            "{} is {} {major}.{minor}",
            interpreter.program.display(),
            interpreter.runtime
        )
    });
    let described: Vec<String> = described.collect();
    found
        .into_iter()
        .find(|interpreter| will_do(interpreter, language))
        .ok_or_else(|| RuntimeError::NoInterpreter {
            path: path.to_owned(),
            needs,
            found: if described.is_empty() {
                "none was found".to_owned()
            } else {
                described.join(", ")
            },
            remedy,
        })
}

fn will_do(interpreter: &Interpreter, language: Language) -> bool {
    match (interpreter.runtime, language) {
        (Runtime::Python, _) => interpreter.version >= PYTHON_MIN,
        (Runtime::Node, Language::TypeScript) => interpreter.version >= NODE_TYPESCRIPT_MIN,
        (Runtime::Node, _) => interpreter.version >= NODE_MIN,
        (Runtime::Deno | Runtime::Bun | Runtime::Program, _) => true,
    }
}

fn command_line(interpreter: &Interpreter, language: Language, script: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![interpreter.program.clone().into()];
    let version = interpreter.version;
    match interpreter.runtime {
        Runtime::Python => words.extend(["-c", PYTHON_START].map(OsString::from)),
        Runtime::Node => {
            // `export` in a .js file without a package.json: recognised by its syntax from 22.7 on, and with a flag
            // from 20.10 on.
            if ((20, 10)..(22, 7)).contains(&version) && version.0 != 21 {
                words.push("--experimental-detect-module".into());
            }
            if language == Language::TypeScript && version < (23, 6) {
                words.push("--experimental-strip-types".into());
            }
            if version >= (20, 11) {
                words.push("--disable-warning=ExperimentalWarning".into());
            }
            words.extend(["-e", JAVASCRIPT_START].map(OsString::from));
        }
        Runtime::Deno => words.extend(["eval", "--no-check", JAVASCRIPT_START].map(OsString::from)),
        Runtime::Bun => words.extend(["-e", JAVASCRIPT_START].map(OsString::from)),
        Runtime::Program => words.push(script.into()),
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_language_is_recognised_by_extension_or_first_line() {
        for (name, text, expected) in [
            ("a.py", "", Some(Language::Python)),
            ("a.mjs", "", Some(Language::JavaScript)),
            ("a.ts", "", Some(Language::TypeScript)),
            ("a.sh", "", Some(Language::Shell)),
            ("a", "#!/usr/bin/env -S python3 -u\n", Some(Language::Python)),
            ("a", "#!/usr/bin/env deno", Some(Language::JavaScript)),
            ("a", "#!/bin/sh", Some(Language::Shell)),
            ("a", "#!/usr/bin/perl -w", Some(Language::Executable)),
            ("a.txt", "hello", None),
        ] {
            let (_folder, path) = script(name, text);
            let shebang = shebang_program(&first_line(&path).unwrap());
            assert_eq!(language(&path, shebang.as_deref()), expected, "{name} {text:?}");
        }
    }

    #[test]
    fn an_error_names_the_missing_interpreter_and_the_remedy() {
        let nowhere = DetectOptions {
            search_path: Some("/nonexistent".into()),
            ..DetectOptions::default()
        };
        let (_folder, path) = script("a.ts", "");
        let error = Script::detect(&path, &nowhere).unwrap_err().to_string();
        assert!(
            error.contains("needs Deno, Bun or Node 22.6 or newer, and none was found"),
            "{error}"
        );
        assert!(error.contains("npm install -g deno"), "{error}");

        let missing = Script::detect(Path::new("/nonexistent/a.py"), &nowhere).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("cannot open the script /nonexistent/a.py"),
            "{missing}"
        );

        let (_folder, path) = script("notes.txt", "hello");
        let unknown = Script::detect(&path, &nowhere).unwrap_err().to_string();
        assert!(unknown.contains("unknown language"), "{unknown}");
        let program = Script::program(vec!["no-such-program".into()], &nowhere)
            .unwrap_err()
            .to_string();
        assert!(program.contains("cannot start no-such-program"), "{program}");
    }

    #[test]
    fn an_interpreter_that_is_too_old_is_named() {
        let (_folder, path) = script("a.ts", "");
        let fake = path.with_file_name("node");
        std::fs::write(&fake, "#!/bin/sh\necho v20.1.0\n").unwrap();
        std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let options = DetectOptions {
            interpreter: Some(fake.clone()),
            ..DetectOptions::default()
        };
        let error = Script::detect(&path, &options).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{} is Node 20.1", fake.display())),
            "{error}"
        );
    }
}
