//! A PostgreSQL server for tests and benchmarks: the machine's own binaries, started on a socket in a
//! temporary folder, and gone with the process that started it, however that ends.
//!
//! ```no_run
//! let server = gristmill_private_postgres::shared();
//! let url = server.create_database()?; // postgresql:///database_1?user=…&host=/tmp/…
//! # Ok::<(), gristmill_private_postgres::PostgresError>(())
//! ```

mod account;
mod installation;
mod pooler;
mod proxy;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use std::os::unix::process::CommandExt as _;

use account::Account;
use installation::Installation;
pub use pooler::{Pooler, PoolerKind};
pub use proxy::{Proxy, Silence};

/// Names the socket in the private folder; nothing listens on the network.
const PORT: u16 = 5432;
/// How long PostgreSQL may take to start or to stop: a loaded machine recovers a crashed server in less.
const CONTROL_TIMEOUT_S: u32 = 120;

/// What a server for tests is told unless a setting says otherwise. Nothing outlives the machine, so nothing
/// is synced; commits still reach the operating system, so a killed server loses nothing.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", ""),
    ("max_connections", "300"),
    ("fsync", "off"),
    ("lc_messages", "C"),
    ("log_line_prefix", "%m [%p] %d "),
];

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// PostgreSQL is not installed, or cannot be run by this user.
    #[error("{0}")]
    Missing(String),
    /// One of PostgreSQL's programs failed.
    #[error("`{program}` failed: {output}")]
    Failed {
        /// The program and what it was told.
        program: String,
        /// What it printed, or what the operating system said.
        output: String,
    },
}

/// A running server, or one that was stopped to be started again. Dropped, it is stopped and deleted.
#[derive(Debug)]
pub struct PrivatePostgres {
    installation: Installation,
    account: Account,
    directory: PathBuf,
    databases: AtomicU32,
    guard: Child,
    /// The guard stops the server when this closes.
    alive: Option<ChildStdin>,
}

/// The one server of this process, started by the first call.
///
/// # Panics
///
/// Where there is no PostgreSQL to start: the tests of a store cannot pass without it.
pub fn shared() -> &'static PrivatePostgres {
    static SHARED: OnceLock<PrivatePostgres> = OnceLock::new();
    SHARED.get_or_init(|| PrivatePostgres::start(&[]).unwrap_or_else(|error| panic!("{error}")))
}

impl PrivatePostgres {
    /// Starts a server with these settings (`("fsync", "on")`) over the defaults for tests.
    pub fn start(settings: &[(&str, &str)]) -> Result<Self, PostgresError> {
        Self::start_in(&std::env::temp_dir(), settings)
    }

    /// The same, with its data in a new folder of that one.
    pub fn start_in(folder: &Path, settings: &[(&str, &str)]) -> Result<Self, PostgresError> {
        let directory = tempfile::Builder::new()
            .prefix("gristmill-postgres-")
            .tempdir_in(folder)
            .map_err(|error| PostgresError::Missing(format!("no temporary folder can be made: {error}")))?
            .keep();
        let server = Self::of_directory(directory)?;
        server.make_cluster(settings)?;
        server.start_again()?;
        Ok(server)
    }

    /// Starts a hot standby of this server, with all that was committed there before.
    pub fn standby(&self) -> Result<Self, PostgresError> {
        let directory = tempfile::Builder::new()
            .prefix("gristmill-standby-")
            .tempdir()
            .map_err(|error| PostgresError::Missing(format!("no temporary folder can be made: {error}")))?
            .keep();
        let standby = Self::of_directory(directory)?;
        let mut copy = self.command("pg_basebackup");
        copy.args([
            "--checkpoint=fast",
            "--no-sync",
            "--write-recovery-conf",
            "--wal-method=stream",
        ])
        .arg("--username")
        .arg(&self.account.name)
        .arg("--host")
        .arg(&self.directory)
        .arg("--port")
        .arg(PORT.to_string())
        .arg("--pgdata")
        .arg(standby.data());
        run(copy)?;
        let configuration = standby.data().join("postgresql.auto.conf");
        let line = format!("unix_socket_directories = '{}'\n", standby.directory.display());
        let mut file = std::fs::OpenOptions::new().append(true).open(&configuration);
        file.as_mut()
            .map_err(|error| error.to_string())
            .and_then(|file| file.write_all(line.as_bytes()).map_err(|error| error.to_string()))
            .map_err(|output| PostgresError::Failed {
                program: format!("writing {}", configuration.display()),
                output,
            })?;
        standby.start_again()?;
        Ok(standby)
    }

    /// Starts the server whose data a crash of the machine left in this folder, which was the
    /// [directory](PrivatePostgres::directory) of that server.
    pub fn start_after_crash(directory: PathBuf) -> Result<Self, PostgresError> {
        let server = Self::of_directory(directory)?;
        let pid_file = server.data().join("postmaster.pid");
        // Another process may have that number by now.
        match std::fs::remove_file(&pid_file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(PostgresError::Failed {
                    program: format!("deleting {}", pid_file.display()),
                    output: error.to_string(),
                });
            }
            _ => server.start_again()?,
        }
        Ok(server)
    }

    fn of_directory(directory: PathBuf) -> Result<Self, PostgresError> {
        let installation = Installation::find()?;
        let account = Account::for_server()?;
        account.own(&directory)?;
        let (guard, alive) = spawn_guard(&installation, &account, &directory)?;
        Ok(PrivatePostgres {
            installation,
            account,
            directory,
            databases: AtomicU32::new(0),
            guard,
            alive: Some(alive),
        })
    }

    fn make_cluster(&self, settings: &[(&str, &str)]) -> Result<(), PostgresError> {
        let data = self.data();
        let mut command = self.command("initdb");
        command.args(["--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8"]);
        command
            .arg("--username")
            .arg(&self.account.name)
            .arg("--pgdata")
            .arg(&data);
        run(command)?;
        let mut lines = format!(
            "unix_socket_directories = '{}'\nport = {PORT}\n",
            self.directory.display()
        );
        for (name, value) in SETTINGS.iter().chain(settings) {
            lines.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        let configuration = data.join("postgresql.auto.conf");
        std::fs::write(&configuration, lines).map_err(|error| PostgresError::Failed {
            program: format!("writing {}", configuration.display()),
            output: error.to_string(),
        })
    }

    /// The folder with the server's socket, data and `log`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The connection URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgresql:///{database}?user={}&host={}",
            self.account.name,
            self.directory.display()
        )
    }

    /// Makes an empty database, and returns its URL.
    pub fn create_database(&self) -> Result<String, PostgresError> {
        let database = format!("database_{}", self.databases.fetch_add(1, Ordering::Relaxed) + 1);
        self.psql("postgres", &format!("CREATE DATABASE {database}"))?;
        Ok(self.url(&database))
    }

    /// A link to the server that can be made to behave as bad networks do. `seed` draws the sizes of pieces.
    pub fn proxy(&self, seed: u64) -> Result<Proxy, PostgresError> {
        let socket = self.directory.join(format!(".s.PGSQL.{PORT}"));
        Proxy::start(socket, self.account.name.clone(), seed)
    }

    /// Runs SQL by psql, up to the first error. Returns the rows, a line each, fields separated by `|`.
    pub fn psql(&self, database: &str, sql: &str) -> Result<String, PostgresError> {
        let mut command = self.command("psql");
        command
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .arg(self.url(database));
        run(command)
    }

    /// Stops the server as a crash would: connections break, and the next start recovers from the log.
    pub fn stop_immediately(&self) -> Result<(), PostgresError> {
        self.control(&["stop", "--mode=immediate"])
    }

    /// Stops the server with its connections, after a checkpoint.
    pub fn stop(&self) -> Result<(), PostgresError> {
        self.control(&["stop", "--mode=fast"])
    }

    /// Starts the server where it was stopped, and waits until it takes connections.
    pub fn start_again(&self) -> Result<(), PostgresError> {
        let log = self.directory.join("log");
        let log = log.to_string_lossy();
        self.control(&["start", "--log", &log])
            .map_err(|error| match error {
                PostgresError::Failed { program, .. } => PostgresError::Failed {
                    program,
                    output: std::fs::read_to_string(log.as_ref()).unwrap_or_default(),
                },
                missing => missing,
            })
    }

    fn control(&self, arguments: &[&str]) -> Result<(), PostgresError> {
        let mut command = self.command("pg_ctl");
        command.args(arguments).args(["--silent", "--wait"]);
        command.arg("--pgdata").arg(self.data());
        command.arg("--timeout").arg(CONTROL_TIMEOUT_S.to_string());
        // The server keeps the streams that it is started with, so nothing may be read from them.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let program = format!("{command:?}");
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(PostgresError::Failed {
                program,
                output: status.to_string(),
            }),
            Err(error) => Err(PostgresError::Failed {
                program,
                output: error.to_string(),
            }),
        }
    }

    fn command(&self, program: &str) -> Command {
        self.account.command(&self.installation.program(program))
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        drop(self.alive.take());
        // Waits until the server is gone; how the guard ended changes nothing.
        let _ = self.guard.wait();
    }
}

/// A shell that waits for the end of this process, by the end of its standard input, and cleans up.
fn spawn_guard(
    installation: &Installation,
    account: &Account,
    directory: &Path,
) -> Result<(Child, ChildStdin), PostgresError> {
    const SCRIPT: &str = "trap '' INT TERM HUP; read -r _; \"$1\" stop --silent --wait --mode=immediate --pgdata \"$2/data\"; \
                          rm -rf \"$2\"";
    let mut command = account.command(Path::new("/bin/sh"));
    command
        .args(["-c", SCRIPT, "sh"])
        .arg(installation.program("pg_ctl"))
        .arg(directory);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let failed = |output: String| PostgresError::Failed {
        program: "/bin/sh".to_owned(),
        output,
    };
    let mut guard = command.spawn().map_err(|error| failed(error.to_string()))?;
    let alive = guard
        .stdin
        .take()
        .ok_or_else(|| failed("it has no standard input".to_owned()))?;
    Ok((guard, alive))
}

/// Runs a program to its end. Returns what it wrote to standard output.
fn run(mut command: Command) -> Result<String, PostgresError> {
    let program = format!("{command:?}");
    let failed = |output: String| PostgresError::Failed { program, output };
    let done = match command.stdin(Stdio::null()).output() {
        Ok(done) => done,
        Err(error) => return Err(failed(error.to_string())),
    };
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(failed(String::from_utf8_lossy(&done.stderr).into_owned()))
    }
}
