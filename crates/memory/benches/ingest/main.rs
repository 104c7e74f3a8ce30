//! The time of an ingestion, beside what the latencies of the model service allow at best.
//!
//! `make bench-memory-ingest` ingests made-up messages from a stand-in of this program: it answers each message after a
//! latency of its own, log-normal and the same in each run. `FLAGS` sets sizes, rounds and latencies (`FLAGS=--help`).
//! With `REPLAY=DIR`, recordings of a real service are replayed instead.
//!
//! The bound is the end of a greedy schedule: each free call takes the next latency at once. An ingestion that overlaps
//! its calls with its commits comes near it. Without overlap, a batch is committed before the calls of the next one begin.

mod greedy;
mod made_up;
mod recorded;
#[path = "../support/made_up.rs"]
mod vocabulary;
mod work;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// The sizes, the rounds and the service of a measurement.
#[derive(Debug, Parser)]
#[command(
    name = "ingest",
    about = "Measure ingestion beside the bound of the model service's latencies"
)]
struct Arguments {
    /// Messages of an ingestion; several sizes give several rows
    #[arg(long, value_delimiter = ',', default_value = "100,1000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    messages: Vec<u32>,
    /// Calls at once; several numbers give several rows
    #[arg(long, value_delimiter = ',', default_value = "20", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: Vec<u32>,
    /// Whether calls go on while a batch is committed
    #[arg(long, value_enum, default_value = "both")]
    overlap: Overlap,
    /// Messages of a batch without overlap
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Runs of each row; the median counts
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The median latency of a call, in milliseconds
    #[arg(long, default_value = "350", value_parser = clap::value_parser!(u32).range(1..=600_000))]
    latency_ms: u32,
    /// The latency that one call of a hundred exceeds, in milliseconds
    #[arg(long, default_value = "1200", value_parser = clap::value_parser!(u32).range(1..=600_000))]
    slowest_ms: u32,
    /// A folder of recordings, with `mock_server.py` and `data/`: replay it instead of the stand-in
    #[arg(long, value_name = "DIR")]
    replay: Option<PathBuf>,
    /// Only the replayed cases with these words in their names
    #[arg(long, requires = "replay", value_name = "WORDS")]
    case: Vec<String>,
    /// `cargo bench` adds it
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Overlap {
    On,
    Off,
    Both,
}

fn main() {
    if work::ran_in_this_process() {
        return;
    }
    let arguments = Arguments::parse();
    match &arguments.replay {
        Some(replay) => recorded::measure(replay, &arguments.case, arguments.rounds),
        None => made_up::measure(&arguments),
    }
}
