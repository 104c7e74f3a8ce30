//! Connection poolers before a server, from the machine's own packages: `apt-get install pgbouncer pgpool2`.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::{PORT, PostgresError, PrivatePostgres, Proxy};

/// Names the pooler's socket in its folder.
const POOLER_PORT: u16 = 6432;
/// How often a new pooler is asked whether it serves. An answer that is none takes some milliseconds.
const ATTEMPTS_MAX: u32 = 2_000;

/// A kind of pooler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolerKind {
    /// PgBouncer, which lends a server for a session.
    PgBouncerSession,
    /// PgBouncer, which lends a server for a transaction.
    PgBouncerTransaction,
    /// Pgpool-II before one server.
    Pgpool,
}

impl PoolerKind {
    /// The kind of this name: `session`, `transaction` or `pgpool`.
    pub fn of(name: &str) -> Option<PoolerKind> {
        match name {
            "session" => Some(PoolerKind::PgBouncerSession),
            "transaction" => Some(PoolerKind::PgBouncerTransaction),
            "pgpool" => Some(PoolerKind::Pgpool),
            _ => None,
        }
    }
}

/// A running pooler. It ends with this process, however that ends.
#[derive(Debug)]
pub struct Pooler {
    directory: PathBuf,
    kind: PoolerKind,
    user: String,
    program: &'static str,
    /// Asks it whether it serves.
    probe: Command,
    guard: Child,
    /// The guard stops the pooler when this closes, and kills it and starts it again for each line.
    alive: Option<ChildStdin>,
}

impl PrivatePostgres {
    /// Starts a pooler before this server.
    pub fn pooler(&self, kind: PoolerKind) -> Result<Pooler, PostgresError> {
        let directory = tempfile::Builder::new()
            .prefix("gristmill-pooler-")
            .tempdir()
            .map_err(|error| PostgresError::Missing(format!("no temporary folder can be made: {error}")))?
            .keep();
        self.account.own(&directory)?;
        let (program, arguments, settings) = match kind {
            PoolerKind::PgBouncerSession => ("pgbouncer", "-q", self.pgbouncer("session", &directory)),
            PoolerKind::PgBouncerTransaction => {
                ("pgbouncer", "-q", self.pgbouncer("transaction", &directory))
            }
            PoolerKind::Pgpool => ("pgpool", "-n -f", self.pgpool(&directory)),
        };
        let write = |name: &str, text: String| {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(|error| PostgresError::Failed {
                program: format!("writing {}", path.display()),
                output: error.to_string(),
            })
        };
        write("settings", settings)?;
        write("users", format!("\"{}\" \"\"\n", self.account.name))?;
        let (guard, alive) = self.guard_pooler(program, arguments, &directory)?;
        let mut pooler = Pooler {
            directory,
            kind,
            user: self.account.name.clone(),
            program,
            probe: self.command("psql"),
            guard,
            alive: Some(alive),
        };
        let url = pooler.plain_url("postgres");
        pooler.probe.args(["-XAtq", "-c", "SELECT 1"]).arg(url);
        pooler.await_answer()?;
        Ok(pooler)
    }

    /// A shell that runs a pooler until this process ends.
    fn guard_pooler(
        &self,
        program: &str,
        arguments: &str,
        directory: &Path,
    ) -> Result<(Child, ChildStdin), PostgresError> {
        // PgBouncer waits for its clients where it is asked to end; Pgpool-II has processes that end with it only then.
        let script = format!(
            "trap '' INT TERM HUP; PATH=$PATH:/usr/sbin; \
             begin() {{ {program} {arguments} \"$1/settings\" >>\"$1/log\" 2>&1 </dev/null & }}; begin \"$1\"; \
             while read -r _; do kill -KILL $!; wait $!; begin \"$1\"; done; \
             case {program} in pgbouncer) kill -KILL $!;; *) kill -INT $!;; esac; wait $!; rm -rf \"$1\""
        );
        let mut command = self.account.command(Path::new("/bin/sh"));
        command.args(["-c", &script, "sh"]).arg(directory);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let failed = |output: String| PostgresError::Failed {
            program: program.to_owned(),
            output,
        };
        let mut guard = command.spawn().map_err(|error| failed(error.to_string()))?;
        let alive = guard.stdin.take();
        Ok((
            guard,
            alive.ok_or_else(|| failed("it has no standard input".to_owned()))?,
        ))
    }

    fn pgbouncer(&self, mode: &str, directory: &Path) -> String {
        let (server, folder) = (self.directory.display(), directory.display());
        format!(
            "[databases]\n* = host={server} port={PORT}\n[pgbouncer]\nunix_socket_dir = {folder}\nlisten_port = {POOLER_PORT}\n\
             unix_socket_mode = 0777\nauth_type = trust\nauth_file = {folder}/users\npool_mode = {mode}\n\
             max_client_conn = 1000\ndefault_pool_size = 40\nserver_idle_timeout = 1\n"
        )
    }

    fn pgpool(&self, directory: &Path) -> String {
        let (server, folder) = (self.directory.display(), directory.display());
        format!(
            "backend_clustering_mode = 'streaming_replication'\nlisten_addresses = ''\nport = {POOLER_PORT}\n\
             socket_dir = '{folder}'\npcp_socket_dir = '{folder}'\npcp_listen_addresses = ''\n\
             pid_file_name = '{folder}/pid'\nlogdir = '{folder}'\nbackend_hostname0 = '{server}'\nbackend_port0 = {PORT}\n\
             backend_data_directory0 = '{server}/data'\nbackend_flag0 = 'ALWAYS_PRIMARY'\nnum_init_children = 200\nmax_pool = 1\n\
             load_balance_mode = off\nsr_check_period = 0\nenable_pool_hba = off\nhealth_check_period = 0\n"
        )
    }
}

impl Pooler {
    /// The connection URL of a database by way of the pooler.
    pub fn url(&self, database: &str) -> String {
        format!("{}{}", self.plain_url(database), self.option())
    }

    /// What a URL says of the pooler, at its end.
    pub fn option(&self) -> &'static str {
        match self.kind {
            PoolerKind::PgBouncerSession => "&pooler=session",
            PoolerKind::PgBouncerTransaction | PoolerKind::Pgpool => "",
        }
    }

    /// A link to the pooler that can be made to behave as bad networks do. `seed` draws the sizes of pieces.
    pub fn proxy(&self, seed: u64) -> Result<Proxy, PostgresError> {
        let socket = self.directory.join(format!(".s.PGSQL.{POOLER_PORT}"));
        Proxy::start(socket, self.user.clone(), seed)
    }

    /// Kills the pooler, which breaks its connections, starts it again, and waits until it serves.
    pub fn kill_and_start_again(&mut self) -> Result<(), PostgresError> {
        let told = self.alive.as_mut().map(|alive| alive.write_all(b"again\n"));
        match told {
            Some(Ok(())) => self.await_answer(),
            _ => Err(self.failure("its guard has ended".to_owned())),
        }
    }

    fn await_answer(&mut self) -> Result<(), PostgresError> {
        for _ in 0..ATTEMPTS_MAX {
            let asked = self.probe.stdin(Stdio::null()).output();
            if asked.is_ok_and(|asked| asked.status.success()) {
                return Ok(());
            }
        }
        Err(self.failure(std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()))
    }

    fn failure(&self, output: String) -> PostgresError {
        PostgresError::Failed {
            program: format!("{} (apt-get install pgbouncer pgpool2)", self.program),
            output,
        }
    }

    fn plain_url(&self, database: &str) -> String {
        format!(
            "postgresql:///{database}?user={}&host={}&port={POOLER_PORT}",
            self.user,
            self.directory.display()
        )
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.alive.take());
        // Waits until the pooler is gone; how the guard ended changes nothing.
        let _ = self.guard.wait();
    }
}
