//! Made-up messages, answered by the stand-in.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use gristmill_model::{Rng, SplitMix64};
use serde_json::json;

use crate::vocabulary::Vocabulary;
use crate::work::{Cost, Work};
use crate::{Arguments, Overlap, greedy};
use gristmill_test_tools::stand_in::{Answer, StandIn, knowledge};

/// The deviations from the mean that one normal variable of a hundred exceeds.
const ONE_OF_A_HUNDRED: f64 = 2.326;

/// Prints a table with a row for each size, concurrency and way to commit.
pub fn measure(arguments: &Arguments) {
    println!(
        "Made-up messages; a call takes {} ms (median), one of a hundred over {} ms; medians of {} runs (least to most).",
        arguments.latency_ms, arguments.slowest_ms, arguments.rounds
    );
    println!();
    println!(
        "| messages | calls at once | overlap | seconds | bound | ratio | messages/s | CPU ms a message |"
    );
    println!("| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    let batches = match arguments.overlap {
        Overlap::On => vec![None],
        Overlap::Off => vec![Some(arguments.batch as usize)],
        Overlap::Both => vec![None, Some(arguments.batch as usize)],
    };
    for &messages in &arguments.messages {
        let lines = lines(messages);
        for &concurrency in &arguments.concurrency {
            for &batch in &batches {
                print_row(arguments, &lines, messages, concurrency as usize, batch);
            }
        }
    }
}

fn print_row(arguments: &Arguments, lines: &str, messages: u32, concurrency: usize, batch: Option<usize>) {
    let mut runs: Vec<(Cost, f64)> = (0..arguments.rounds)
        .map(|_| run(arguments, lines, concurrency, batch))
        .collect();
    runs.sort_by(|left, right| left.0.seconds.total_cmp(&right.0.seconds));
    for (cost, _) in &runs {
        assert_eq!(
            (cost.messages, cost.failures),
            (u64::from(messages), 0),
            "each message is stored"
        );
    }
    let (median, bound) = runs[runs.len() / 2];
    let overlap = match batch {
        None => "on".to_owned(),
        Some(batch) => format!("off, batches of {batch}"),
    };
    println!(
        "| {messages} | {concurrency} | {overlap} | {:.2} ({:.2} to {:.2}) | {bound:.2} | {:.3} | {:.0} | {:.2} |",
        median.seconds,
        runs[0].0.seconds,
        runs[runs.len() - 1].0.seconds,
        median.seconds / bound,
        f64::from(messages) / median.seconds,
        median.cpu_seconds * 1_000.0 / f64::from(messages),
    );
}

/// One ingestion, and its bound: the latencies in the order that the calls came in.
fn run(arguments: &Arguments, lines: &str, concurrency: usize, batch: Option<usize>) -> (Cost, f64) {
    let (median_ms, slowest_ms) = (f64::from(arguments.latency_ms), f64::from(arguments.slowest_ms));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let service = runtime.block_on(StandIn::start(move |text, _| Answer {
        latency: latency(text, median_ms, slowest_ms),
        ..Answer::content(knowledge(text))
    }));
    let work = Work {
        base_url: service.base_url.clone(),
        concurrency,
        tokens_per_minute: None,
        batch,
    };
    let cost = work.run(lines);
    let latencies: Vec<f64> = service.latencies().iter().map(Duration::as_secs_f64).collect();
    (cost, greedy::end(&latencies, concurrency))
}

/// A latency of this text, the same in each run: log-normal, by the method of Box and Muller.
fn latency(text: &str, median_ms: f64, slowest_ms: f64) -> Duration {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let mut rng = SplitMix64::new(hasher.finish());
    let mut uniform = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * uniform()).cos();
    let deviation = (slowest_ms / median_ms).ln().max(0.0) / ONE_OF_A_HUNDRED;
    Duration::from_secs_f64(median_ms / 1_000.0 * (deviation * normal).exp())
}

/// Messages as JSON lines, each of three sentences with some capitalised names.
fn lines(messages: u32) -> String {
    let mut rng = SplitMix64::new(1603);
    let vocabulary = Vocabulary::new(5_000, &mut rng);
    let mut lines = String::new();
    for number in 0..messages {
        let sentences: Vec<String> = (0..3)
            .map(|_| {
                let name = capitalised(vocabulary.word(&mut rng));
                let place = capitalised(vocabulary.word(&mut rng));
                format!("{name} {} in {place}.", vocabulary.sentence(12, &mut rng))
            })
            .collect();
        let line = json!({"text": format!("{} Message {number}.", sentences.join(" ")), "speaker": "Ada"});
        lines.push_str(&format!("{line}\n"));
    }
    lines
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}
