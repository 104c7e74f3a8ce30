//! A folder of its own for a test of the built program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Makes a test of each of these functions for each store; they take what makes a workspace.
macro_rules! on_each_store {
    ($($name:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[test] fn $name() { super::$name(crate::workspace::Workspace::new) })*
        }
        mod on_postgres {
            $(#[test] fn $name() { super::$name(crate::workspace::Workspace::on_postgres) })*
        }
    };
}

/// A folder with scripts and inputs, in which the program runs.
pub struct Workspace {
    folder: tempfile::TempDir,
    /// The database that is the store, where that is no file of the folder.
    database: Option<String>,
}

/// What a command that has ended wrote and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The standard output, where the exit status is as expected.
    #[track_caller]
    pub fn expect(self, code: i32) -> String {
        assert_eq!(
            self.code,
            Some(code),
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self.stdout
    }

    /// The standard error, where the exit status is 2 and it is one error.
    #[track_caller]
    pub fn error(self) -> String {
        assert_eq!(
            self.code,
            Some(2),
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        self.stderr
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("the output is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("the messages are UTF-8"),
        }
    }
}

impl Workspace {
    pub fn new() -> Workspace {
        Workspace {
            folder: tempfile::tempdir().expect("a folder can be made"),
            database: None,
        }
    }

    /// With a new PostgreSQL database as the store.
    pub fn on_postgres() -> Workspace {
        let server = gristmill_private_postgres::shared();
        let url = server.create_database().unwrap_or_else(|error| panic!("{error}"));
        Workspace {
            database: Some(url),
            ..Workspace::new()
        }
    }

    /// The address of its database, or where it has none this file.
    pub fn database_or(&self, file: &str) -> String {
        self.database.clone().unwrap_or_else(|| file.to_owned())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Workspace {
        fs::write(self.path(name), text).expect("a file can be written");
        self
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The program, with nothing on its standard input.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
        command
            .args(arguments.split_whitespace())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
            .env_remove("GRISTMILL_STORE")
            .env_remove("GRISTMILL_LOG")
            .env("COLUMNS", "100");
        if let Some(url) = &self.database {
            command.env("GRISTMILL_STORE", url);
        }
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &str) -> Ended {
        self.command(arguments)
            .output()
            .expect("the program starts")
            .into()
    }

    /// Runs the program to its end with `input` on its standard input.
    pub fn run_with(&self, arguments: &str, input: &[u8]) -> Ended {
        use std::io::Write;
        let mut child = self.spawn(arguments, Stdio::piped());
        // A program that refuses its input closes it early.
        let _ = child.stdin.take().expect("it has an input").write_all(input);
        child.wait_with_output().expect("it ends").into()
    }

    /// Starts the program.
    pub fn spawn(&self, arguments: &str, stdin: Stdio) -> Child {
        let mut command = self.command(arguments);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    }

    /// Makes a named pipe.
    pub fn make_pipe(&self, name: &str) {
        let made = Command::new("mkfifo")
            .arg(self.path(name))
            .status()
            .expect("mkfifo runs");
        assert!(made.success());
    }

    /// A script that notes every payload it is given in `ran.txt`, and stops at `stop_at` while there is a
    /// file `stop`: it says so through the pipe `reached` and waits for the pipe `go`.
    pub fn write_stopping_script(&self, stop_at: u32) {
        let script = format!(
            "import os\n\
             folder = os.path.dirname(os.path.abspath(__file__))\n\
             ran = os.open(folder + '/ran.txt', os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n\
             def main(payload):\n\
             \x20   os.write(ran, b'%d\\n' % payload)\n\
             \x20   if payload == {stop_at} and os.path.exists(folder + '/stop'):\n\
             \x20       open(folder + '/reached', 'w').write('x')\n\
             \x20       open(folder + '/go').read()\n\
             \x20   return payload * 2\n"
        );
        self.make_pipe("reached");
        self.make_pipe("go");
        self.write("stopping.py", script).write("stop", "");
    }

    /// How often each payload was run, by what the stopping script noted.
    pub fn ran(&self) -> std::collections::HashMap<u64, u32> {
        let mut times = std::collections::HashMap::new();
        for line in self.read("ran.txt").lines() {
            *times.entry(line.parse().expect("a number")).or_insert(0) += 1;
        }
        times
    }
}

/// Sends a signal, such as `-INT`, to a process.
pub fn send_signal(child: &Child, signal: &str) {
    let sent = Command::new("kill")
        .arg(signal)
        .arg(child.id().to_string())
        .status()
        .expect("kill runs");
    assert!(sent.success());
}

/// The lines of a JSONL text.
pub fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// The numbers from 1 to `last`, one a line.
pub fn numbers(last: u32) -> String {
    (1..=last).map(|number| format!("{number}\n")).collect()
}

/// Whether a file is there.
pub fn exists(path: &Path) -> bool {
    path.try_exists().expect("the folder can be read")
}
