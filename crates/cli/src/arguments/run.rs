//! The arguments of `gristmill run`.

use std::path::{Path, PathBuf};

use clap::Args;
use gristmill_model::limits::BATCH_JOBS_MAX;

use crate::arguments::shared::{ConcurrencyArguments, LeaseArguments, RetryArguments, StoreArguments};
use crate::exit::EXIT_STATUS_HELP;
use crate::input::Format;

const RUN_HELP: &str = "\
The script has a function `main` that takes one item and returns its result: `def main(payload)` in
Python, `export function main(payload)` in JavaScript and TypeScript. A Bash script, or the program
after --, reads the item from standard input and writes the result to standard output.

Examples:
  gristmill run word_stats.py --input items.jsonl --output results.jsonl
  gristmill run resize.ts --input images.csv --output done.jsonl -j 4 --timeout 30s --retries 2
  gristmill run fetch.py --input urls.txt --output pages.jsonl --threads 16
  zcat log.gz | gristmill run parse.py --format lines --values > parsed.jsonl
  gristmill run --input words.txt --output upper.jsonl -- tr a-z A-Z

Run the same command again to resume after Ctrl-C, a crash or a reboot. An unreadable item fails
with its file and line; the other items run. The results have one line for each item, in input
order: {\"job\":\"1:7\",\"value\":…} or {\"job\":\"1:7\",\"error\":{…}}.
Blank lines of JSONL are skipped.";

/// `gristmill run`.
#[derive(Debug, Args)]
#[command(after_help = format!("{RUN_HELP}\n\n{EXIT_STATUS_HELP}"))]
pub struct RunArguments {
    /// The script: .py, .js, .mjs, .ts or .sh
    #[arg(required_unless_present = "program", conflicts_with = "program")]
    pub script: Option<PathBuf>,
    /// A program and its arguments, run once for each item
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// The items: a file, plain, .gz or .zst; - is standard input [default: standard input, if it is piped]
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// The file of results; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// The format of the items [default: by the input's name; jsonl for standard input]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The run's name; the same name resumes the run [default: the names of the script and the input]
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub store: StoreArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lease: LeaseArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub concurrency: ConcurrencyArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub retry: RetryArguments,
    /// Jobs in a batch
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=BATCH_JOBS_MAX as i64))]
    pub batch: u32,
    /// Run only the first N items; a later run without --limit runs the others
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Write bare values; null for a failed job
    #[arg(long)]
    pub values: bool,
    /// Discard the progress of an earlier run of this name, and start over
    #[arg(long, conflicts_with = "continue_run")]
    pub restart: bool,
    /// Resume although the script or the input has changed: results stay, the rest runs with the new version
    #[arg(long = "continue")]
    pub continue_run: bool,
    /// Print the summary as JSON: to standard output, or to standard error if standard output has the results
    #[arg(long)]
    pub json: bool,
    /// Print no progress and no summary
    #[arg(short, long)]
    pub quiet: bool,
}

impl RunArguments {
    /// The output's file, unless it is standard output.
    pub fn output_file(&self) -> Option<&Path> {
        Some(self.output.as_path()).filter(|path| *path != Path::new("-"))
    }
}
