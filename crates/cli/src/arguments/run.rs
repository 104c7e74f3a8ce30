//! The arguments of `gristmill run`.

use std::path::{Path, PathBuf};

use clap::Args;
use gristmill_model::limits::BATCH_JOBS_MAX;

use crate::arguments::hook::HookArguments;
use crate::arguments::rate::{Rate, parse_rate};
use crate::arguments::shared::{
    ConcurrencyArguments, EnvironmentArguments, LeaseArguments, RetryArguments, StopArguments, StoreArguments,
};
use crate::exit::EXIT_STATUS_HELP;
use crate::input::{DialectArguments, Format};

const RUN_HELP: &str = "\
The script has a function `main` that takes one item and returns its result: `def main(payload)` in
Python, `export function main(payload)` in JavaScript and TypeScript. A Bash script, or the program
after --, reads the item from standard input and writes the result to standard output.

Examples:
  gristmill run word_stats.py items.jsonl --output results.jsonl
  gristmill run resize.ts images.csv --output done.jsonl -j 4 --timeout 30s --retries 2
  gristmill run fetch.py 'urls/*.txt' --output pages.jsonl --threads 16 --rate 10/s --halt 5%
  zcat log.gz | gristmill run parse.py --format lines --values > parsed.jsonl
  gristmill run words.txt --output upper.jsonl -- tr a-z A-Z
  gristmill run pages.csv -- curl --fail --silent --output {name}.html {url}

Run the same command again to resume after Ctrl-C, a crash or a reboot, or to run lines that were added to the
input. After failures, correct the script or the lines, and run the same command with --retry-failed. A run of
standard input is a new one each time, unless it has a --name. An unreadable item fails with its file and
line; the other items run. The results have one line for each item, in input order, as soon as the items before it have
ended: {\"job\":\"1:7\",\"value\":…} or {\"job\":\"1:7\",\"error\":{…}}. Blank lines of JSONL are skipped.";

/// `gristmill run`.
#[derive(Debug, Args)]
#[command(after_help = format!("{RUN_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct RunArguments {
    /// The script: .py, .js, .mjs, .ts or .sh
    #[arg(required_unless_present = "program")]
    pub script: Option<PathBuf>,
    /// The items: files, plain, .gz or .zst, or patterns such as 'data/*.jsonl'; - is standard input [default: standard
    /// input, if it is piped]
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// A program and its arguments, run once for each item; {} in an argument is the item, {field} a field of it
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// The items, as INPUT; repeatable
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub more_inputs: Vec<PathBuf>,
    /// The Python interpreter of a Python script, as in .venv/bin/python; it also reads Parquet inputs
    #[arg(long, value_name = "PATH", conflicts_with = "program")]
    pub python: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub items: ItemsArguments,
    #[command(flatten, next_help_heading = "Speed")]
    #[allow(missing_docs)]
    pub concurrency: ConcurrencyArguments,
    #[command(flatten, next_help_heading = "Speed")]
    #[allow(missing_docs)]
    pub environment: EnvironmentArguments,
}

/// The arguments that runs of scripts and of models share.
#[derive(Debug, Args)]
pub struct ItemsArguments {
    /// The file of results; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// The format of the items [default: by the input's name; jsonl for standard input]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub dialect: DialectArguments,
    /// Write bare values; null for a failed job
    #[arg(long)]
    pub values: bool,
    /// Run only the first N items; a later run without --limit runs the others
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Begin at most this many attempts in a period, as in 10/s, 100/m or 1000/h
    #[arg(long, value_name = "N/UNIT", value_parser = parse_rate, help_heading = "Speed")]
    pub rate: Option<Rate>,
    /// Jobs in a batch
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=BATCH_JOBS_MAX as i64),
        help_heading = "Speed"
    )]
    pub batch: u32,
    #[command(flatten, next_help_heading = "Failures")]
    #[allow(missing_docs)]
    pub retry: RetryArguments,
    /// Stop after N failed jobs, or when more than P% of at least 20 jobs failed; jobs that have begun still end
    #[arg(long, value_name = "N|P%", value_parser = parse_halt, help_heading = "Failures")]
    pub halt: Option<Halt>,
    /// Run the failed items of an earlier run again, with the command and the lines as they are now
    #[arg(long, conflicts_with = "restart", help_heading = "Failures")]
    pub retry_failed: bool,
    /// The run's name; the same name resumes the run [default: the names of the script and the input; a new one each
    /// time for standard input]
    #[arg(long, help_heading = "Resuming")]
    pub name: Option<String>,
    /// Resume although the script or the input has changed: results stay, the rest runs with the new version
    #[arg(long = "continue", help_heading = "Resuming")]
    pub continue_run: bool,
    /// Discard the progress of an earlier run of this name, and start over
    #[arg(long, conflicts_with = "continue_run", help_heading = "Resuming")]
    pub restart: bool,
    #[command(flatten, next_help_heading = "Hooks")]
    #[allow(missing_docs)]
    pub hooks: HookArguments,
    #[command(flatten, next_help_heading = "Store")]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    #[command(flatten, next_help_heading = "Store")]
    #[allow(missing_docs)]
    pub lease: LeaseArguments,
    #[command(flatten, next_help_heading = "Resuming")]
    #[allow(missing_docs)]
    pub stop: StopArguments,
    /// Print the summary as JSON: to standard output, or to standard error if standard output has the results
    #[arg(long, help_heading = "Messages")]
    pub json: bool,
    /// Print no progress and no summary
    #[arg(short, long, help_heading = "Messages")]
    pub quiet: bool,
}

/// Failures after which a run stops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Halt {
    /// This many failed jobs.
    Jobs(u64),
    /// More than this part of the ended jobs, in per cent.
    Percent(f64),
}

/// The number of ended jobs from which a percentage of failures counts.
const HALT_PERCENT_JOBS_MIN: u64 = 20;

impl Halt {
    /// Reports whether a run with this many ended jobs should stop.
    pub fn is_reached(self, failed: u64, ended: u64) -> bool {
        match self {
            Halt::Jobs(jobs) => failed >= jobs,
            Halt::Percent(percent) => {
                ended >= HALT_PERCENT_JOBS_MIN && failed as f64 * 100.0 > percent * ended as f64
            }
        }
    }
}

fn parse_halt(text: &str) -> Result<Halt, String> {
    let refuse =
        || format!("`{text}` is not a number of failures: write a number from 1, or a percentage as in 5%");
    match text.strip_suffix('%') {
        Some(percent) => match percent.parse() {
            Ok(percent) if (0.0..100.0).contains(&percent) => Ok(Halt::Percent(percent)),
            _ => Err(refuse()),
        },
        None => match text.parse() {
            Ok(jobs) if jobs > 0 => Ok(Halt::Jobs(jobs)),
            _ => Err(refuse()),
        },
    }
}

impl ItemsArguments {
    /// The output's file, unless it is standard output.
    pub fn output_file(&self) -> Option<&Path> {
        Some(self.output.as_path()).filter(|path| *path != Path::new("-"))
    }
}

impl RunArguments {
    /// The script, unless a program is given.
    pub fn script_file(&self) -> Option<&Path> {
        self.script.as_deref().filter(|_| self.program.is_empty())
    }

    /// The named inputs: with a program, all files before it.
    pub fn input_files(&self) -> Vec<PathBuf> {
        let first = self.script.iter().filter(|_| !self.program.is_empty());
        first
            .chain(&self.inputs)
            .chain(&self.more_inputs)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_failures_are_parsed_or_refused_with_an_example() {
        for (text, jobs, period_ms) in [("10/s", 10, 1_000), ("3/m", 3, 60_000), ("5/500ms", 5, 500)] {
            assert_eq!(parse_rate(text), Ok(Rate { jobs, period_ms }));
        }
        for text in ["10", "0/s", "x/s", "10/", "10/0s", "-1/s"] {
            assert!(parse_rate(text).unwrap_err().contains("as in 10/s"), "{text}");
        }
        assert_eq!(parse_halt("3"), Ok(Halt::Jobs(3)));
        assert_eq!(parse_halt("2.5%"), Ok(Halt::Percent(2.5)));
        for text in ["0", "x", "101%", "-1%", "%"] {
            assert!(parse_halt(text).unwrap_err().contains("as in 5%"), "{text}");
        }
    }

    #[test]
    fn a_percentage_counts_from_the_twentieth_job() {
        let halt = Halt::Percent(10.0);
        assert!(!halt.is_reached(19, 19));
        assert!(!halt.is_reached(2, 20));
        assert!(halt.is_reached(3, 20));
        assert!(Halt::Jobs(1).is_reached(1, 1));
    }
}
