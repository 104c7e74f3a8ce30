//! Recordings of a real model service, replayed. With the Python of the peer's environment in `PEER_PYTHON`, the peer
//! ingests the same beside it, once.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::greedy;
use crate::work::{Cost, Work};
use gristmill_test_tools::replayed::{Service, lines};

/// A case of the table.
struct Case {
    name: &'static str,
    /// Copies of the transcript, of 106 chunks each.
    copies: u32,
    concurrency: usize,
    /// The limit that the client keeps; 0 for none.
    tokens_per_minute: u32,
    /// Arguments of the service.
    service: &'static [&'static str],
    /// Further arguments of the peer's runner.
    peer: &'static [&'static str],
    /// The target, in words.
    reach: &'static str,
}

const CASES: [Case; 7] = [
    Case {
        name: "106 chunks, C=20",
        copies: 1,
        concurrency: 20,
        tokens_per_minute: 0,
        service: &[],
        peer: &[],
        reach: "1.05 x the bound",
    },
    Case {
        name: "1,060 chunks, C=20",
        copies: 10,
        concurrency: 20,
        tokens_per_minute: 0,
        service: &[],
        peer: &[],
        reach: "1.05 x the bound",
    },
    Case {
        name: "530 chunks, C=64",
        copies: 5,
        concurrency: 64,
        tokens_per_minute: 0,
        service: &[],
        peer: &[],
        reach: "1.10 x the bound",
    },
    Case {
        name: "1,060 chunks, C=200",
        copies: 10,
        concurrency: 200,
        tokens_per_minute: 0,
        service: &[],
        peer: &[],
        reach: "1.10 x the bound",
    },
    Case {
        name: "106 chunks, 400,000 tokens a minute",
        copies: 1,
        concurrency: 20,
        tokens_per_minute: 400_000,
        service: &["--tpm", "400000"],
        peer: &["--tpm", "400000"],
        reach: "1.03 x the bound, 5 rejected",
    },
    Case {
        name: "106 chunks, 429 with p=0.3",
        copies: 1,
        concurrency: 20,
        tokens_per_minute: 0,
        service: &["--p429", "0.3"],
        peer: &["--p429", "0.3"],
        reach: "0.6 x the peer",
    },
    Case {
        name: "106 chunks, 20% broken JSON",
        copies: 1,
        concurrency: 20,
        tokens_per_minute: 0,
        service: &["--p-bad", "0.2"],
        peer: &["--p-bad", "0.2", "--skip-failed"],
        reach: "all others stored",
    },
];

/// Prints a table with a row for each case, or for those whose names contain one of the words.
pub fn measure(replay: &Path, words: &[String], rounds: u32) {
    let peer = std::env::var_os("PEER_PYTHON").map(PathBuf::from);
    println!(
        "| work | to reach | seconds | bound | ratio | rejected | failed chunks | CPU ms a chunk | peer, seconds | of the peer |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for case in CASES {
        if words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str())) {
            let mut runs: Vec<Measured> = (0..rounds).map(|_| measure_case(&case, replay)).collect();
            runs.sort_by(|left, right| left.cost.seconds.total_cmp(&right.cost.seconds));
            let peer = peer.as_ref().map(|python| run_peer(&case, replay, python));
            print(&case, &runs, peer);
        }
    }
}

/// One ingestion.
struct Measured {
    cost: Cost,
    bound: f64,
    rejected: u64,
}

fn print(case: &Case, runs: &[Measured], peer: Option<Result<f64, String>>) {
    let median = &runs[runs.len() / 2];
    let (told, share) = match peer {
        Some(Ok(seconds)) => (
            format!("{seconds:.2}"),
            format!("{:.2}", median.cost.seconds / seconds),
        ),
        Some(Err(reason)) => (reason, "–".to_owned()),
        None => ("not run".to_owned(), "–".to_owned()),
    };
    println!(
        "| {} | {} | {:.2} ({:.2} to {:.2}) | {:.2} | {:.3} | {} | {} | {:.2} | {told} | {share} |",
        case.name,
        case.reach,
        median.cost.seconds,
        runs[0].cost.seconds,
        runs[runs.len() - 1].cost.seconds,
        median.bound,
        median.cost.seconds / median.bound,
        median.rejected,
        median.cost.failures,
        median.cost.cpu_seconds * 1_000.0 / (106.0 * f64::from(case.copies)),
    );
}

fn measure_case(case: &Case, replay: &Path) -> Measured {
    let service = Service::start(replay, case.service);
    let work = Work {
        base_url: format!("http://127.0.0.1:{}/v1", service.port),
        concurrency: case.concurrency,
        tokens_per_minute: (case.tokens_per_minute > 0).then_some(f64::from(case.tokens_per_minute)),
        batch: None,
    };
    let cost = work.run(&lines(replay, case.copies));
    let stats = service.stats();
    let answered: Vec<&Value> = stats["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["kind"] == "chat" && event["status"] == 200)
        .collect();
    let mut begun: Vec<(f64, f64)> = answered
        .iter()
        .filter_map(|event| Some((event["t0"].as_f64()?, event["lat"].as_f64()?)))
        .collect();
    begun.sort_by(|left, right| left.0.total_cmp(&right.0));
    let latencies: Vec<f64> = begun.into_iter().map(|(_, latency)| latency).collect();
    let mut bound = greedy::end(&latencies, case.concurrency);
    if case.tokens_per_minute > 0 {
        let used: f64 = answered.iter().filter_map(|event| event["tok"].as_f64()).sum();
        bound = bound.max(60.0 * used / f64::from(case.tokens_per_minute));
    }
    Measured {
        cost,
        bound,
        rejected: stats["chat"]["rejected_429"].as_u64().unwrap_or(0),
    }
}

/// The peer's seconds for the same work, by the runner of the recordings' folder, or why there are none.
fn run_peer(case: &Case, replay: &Path, python: &Path) -> Result<f64, String> {
    let output = Command::new(python)
        .arg(replay.join("run_typeagent.py"))
        .args(["--concurrency", &case.concurrency.to_string()])
        .args(["--repeat", &case.copies.to_string()])
        .args(case.peer)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{'));
    let told: Value = line
        .and_then(|line| serde_json::from_str(line).ok())
        .ok_or("its runner failed")?;
    match told["error"].as_str() {
        Some(_) => Err("it ends with an error".to_owned()),
        None => told["total_s"]
            .as_f64()
            .ok_or_else(|| "it tells no time".to_owned()),
    }
}
