//! Arguments that several commands share: the store, leases, retries and the concurrency of scripts.

use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use gristmill_model::limits::{ATTEMPTS_MAX, LEASE_LOST_AFTER_MS_MAX, LEASE_LOST_AFTER_MS_MIN};
use gristmill_model::{Backoff, RetryPolicy};

use crate::span::{milliseconds, parse_span};
use crate::store::location::StoreLocation;

/// The store of a command.
#[derive(Debug, Args)]
pub struct StoreArguments {
    /// The store: a file, or a database such as postgresql://user@host/database
    #[arg(
        long,
        value_name = "FILE|URL",
        default_value = "gristmill.db",
        env = "GRISTMILL_STORE",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().try_map(|text| StoreLocation::parse(&text))
    )]
    pub store: StoreLocation,
    /// Durability of a commit to a file: full survives a power cut, normal can lose the latest commits
    #[arg(long, value_enum, default_value_t = Synchronous::Full, value_name = "LEVEL")]
    pub synchronous: Synchronous,
}

/// The durability of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Synchronous {
    /// A commit is on disk.
    Full,
    /// The operating system has the commit: it survives a killed process, but not always a power cut.
    Normal,
}

/// The failure detection of workers.
#[derive(Debug, Args)]
pub struct LeaseArguments {
    /// Release a worker's jobs after this time without a heartbeat; use the same for all programs on a store
    #[arg(
        long,
        value_name = "SPAN",
        default_value = "15s",
        env = "GRISTMILL_LEASE",
        value_parser = parse_lease
    )]
    pub lease: Duration,
}

/// The way in which a program that runs jobs ends.
#[derive(Debug, Clone, Copy, Args)]
pub struct StopArguments {
    /// When stopped, release the jobs that still run after this time, and exit [default: wait until they have ended]
    #[arg(long, value_name = "SPAN", env = "GRISTMILL_GRACE", value_parser = parse_span)]
    pub grace: Option<Duration>,
}

fn parse_lease(text: &str) -> Result<Duration, String> {
    let lease = parse_span(text)?;
    let [least, most] =
        [LEASE_LOST_AFTER_MS_MIN, LEASE_LOST_AFTER_MS_MAX].map(|ms| Duration::from_millis(ms.unsigned_abs()));
    if lease < least || lease > most {
        return Err(format!(
            "`{text}` is out of range: give a span from {} s to {} s",
            least.as_secs(),
            most.as_secs()
        ));
    }
    Ok(lease)
}

/// The retry policy.
#[derive(Debug, Args)]
pub struct RetryArguments {
    /// Time limit of one attempt; an attempt beyond it is killed and fails [default: no limit]
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub timeout: Option<Duration>,
    /// Retries of a failed job [default: 2; 0 for run and llm]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..ATTEMPTS_MAX as i64))]
    pub retries: Option<u32>,
    /// Growth of the delay from retry to retry
    #[arg(long, value_enum, default_value_t = Backoff::Jitter)]
    pub backoff: Backoff,
    /// Delay before the first retry
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = parse_span)]
    pub retry_delay: Duration,
}

impl RetryArguments {
    /// The policy of submitted jobs.
    pub fn policy(&self) -> RetryPolicy {
        self.policy_or(RetryPolicy::default().attempts_max)
    }

    /// The policy of a run's jobs. It has one attempt by default, because a person looks at the failures.
    pub fn policy_of_run(&self) -> RetryPolicy {
        self.policy_or(1)
    }

    fn policy_or(&self, attempts_max: u32) -> RetryPolicy {
        RetryPolicy {
            attempts_max: self.retries.map_or(attempts_max, |retries| retries + 1),
            backoff: self.backoff,
            delay_ms: milliseconds(self.retry_delay),
            ..RetryPolicy::default()
        }
    }

    /// The timeout in milliseconds.
    pub fn timeout_ms(&self) -> Option<u64> {
        self.timeout.map(milliseconds)
    }
}

/// The concurrency of scripts.
#[derive(Debug, Clone, Args)]
pub struct ConcurrencyArguments {
    /// Processes of each script [default: the number of processors; 1 for an agent without --batch]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub jobs: Option<u32>,
    /// Concurrent jobs in each process of an asynchronous script; with --extractor or --llm, concurrent calls of a model
    /// [default: 32 jobs, 20 calls; 1 for an agent without --batch]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub concurrency: Option<u32>,
    /// Threads in each process of a synchronous Python script; each thread runs one job: for scripts that wait for I/O
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub threads: u32,
}

/// The default number of concurrent jobs in one process of an asynchronous script.
const CONCURRENCY_DEFAULT: u32 = 32;

impl ConcurrencyArguments {
    /// The number of a script's jobs that run at the same time.
    pub fn of_scripts(&self) -> ScriptConcurrency {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        ScriptConcurrency {
            processes: self.jobs.map_or(processors, |jobs| jobs as usize),
            concurrency: self.concurrency.unwrap_or(CONCURRENCY_DEFAULT),
            threads: self.threads,
            is_concurrency_given: self.concurrency.is_some(),
        }
    }

    /// The same settings, with one job at a time unless a number is given.
    pub fn one_at_a_time(&self) -> ConcurrencyArguments {
        ConcurrencyArguments {
            jobs: self.jobs.or(Some(1)),
            concurrency: self.concurrency.or(Some(1)),
            threads: self.threads,
        }
    }
}

/// The number of one script's jobs that run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptConcurrency {
    /// The number of processes.
    pub processes: usize,
    /// The number of concurrent asynchronous jobs in each process.
    pub concurrency: u32,
    /// The number of threads in each process that run synchronous Python.
    pub threads: u32,
    /// True if `concurrency` was given.
    pub is_concurrency_given: bool,
}

/// The environment of scripts and programs.
#[derive(Debug, Clone, Args)]
pub struct EnvironmentArguments {
    /// Pass a secret of the environment to scripts, such as OPENAI_API_KEY; they get no other tokens, passwords or
    /// keys; repeatable
    #[arg(long = "env", value_name = "NAME", value_parser = parse_variable)]
    pub passed: Vec<String>,
}

fn parse_variable(name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains('=') {
        return Err("give only the name of a variable: its value comes from the environment".to_owned());
    }
    match std::env::var_os(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err(format!(
            "the environment has no variable `{name}`: set it, or omit --env"
        )),
    }
}
