//! Index writes alone: 500 chunks with 3,000 refs into a knowledge base on disk, every commit synced.
//!
//! `cargo bench -p gristmill-memory --bench index_writes [-- FOLDER]`. The folder decides the disk; the default is the
//! target folder's. Prints the median and all times, for one commit and for commits of 50 chunks. With the Python of the
//! peer's environment in `PEER_PYTHON`, the peer writes as much beside it, in one commit.

#[path = "support/made_up.rs"]
mod made_up;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gristmill_memory::store::{Change, KnowledgeStore, NewMessage, NewSource, SqliteKnowledge};
use gristmill_memory::{Message, SqliteKnowledgeOptions};
use gristmill_model::{SplitMix64, Timestamp};

const CHUNKS: u32 = 500;
const REFS_PER_CHUNK: u32 = 6;
const ROUNDS: usize = 9;
const PEER_ROUNDS: usize = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let folder = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with("--"));
    let folder = folder.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").to_owned());
    let mut medians = Vec::new();
    for commit_chunks in [CHUNKS, 50] {
        let mut times = Vec::new();
        for round in 0..=ROUNDS {
            let took = write(Path::new(&folder), commit_chunks, round as u64).await;
            // The first one warms up.
            if round > 0 {
                times.push(took);
            }
        }
        times.sort();
        medians.push(millis(times[times.len() / 2]));
        println!(
            "500 chunks, 3,000 refs, commits of {commit_chunks} chunks: median {:.1} ms ({})",
            millis(times[times.len() / 2]),
            times
                .iter()
                .map(|&time| format!("{:.1}", millis(time)))
                .collect::<Vec<_>>()
                .join(" ")
        );
    }
    let Some(python) = std::env::var_os("PEER_PYTHON") else {
        return;
    };
    match peer(&python, Path::new(&folder)) {
        Ok(times) => {
            let median = times[times.len() / 2];
            println!(
                "the peer, one commit: median {median:.0} ms ({:.0} to {:.0}); ours takes {:.3} of it in one commit, {:.3} \
                 in commits of 50",
                times[0],
                times[times.len() - 1],
                medians[0] / median,
                medians[1] / median
            );
        }
        Err(reason) => println!("the peer: {reason}"),
    }
}

/// The peer's milliseconds for the same, sorted, or why there are none.
fn peer(python: &OsStr, folder: &Path) -> Result<Vec<f64>, String> {
    let folder = tempfile::tempdir_in(folder).map_err(|error| error.to_string())?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peer_index_writes.py");
    let output = Command::new(python)
        .arg(script)
        .arg(folder.path())
        .arg(PEER_ROUNDS.to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('['));
    let times: Option<Vec<f64>> = line.and_then(|line| serde_json::from_str(line).ok());
    let mut times = times
        .filter(|times| !times.is_empty())
        .ok_or("its runner failed")?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

async fn write(folder: &Path, commit_chunks: u32, seed: u64) -> Duration {
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    let store =
        SqliteKnowledge::open(folder.path().join("kb.db"), SqliteKnowledgeOptions::default()).expect("opens");
    let mut rng = SplitMix64::new(seed);
    let vocabulary = made_up::Vocabulary::new(2_000, &mut rng);
    let mut first_position = 0;
    let mut commits = Vec::new();
    while first_position < CHUNKS {
        let messages = (0..commit_chunks)
            .map(|_| NewMessage {
                message: Message::new(vocabulary.sentence(40, &mut rng)),
                knowledge: vec![(0, vocabulary.knowledge(REFS_PER_CHUNK, &mut rng))],
                failures: Vec::new(),
            })
            .collect();
        commits.push(vec![Change::Append {
            source: "made up".to_owned(),
            first_position,
            messages,
        }]);
        first_position += commit_chunks;
    }
    let source = NewSource {
        name: "made up".to_owned(),
        ingested_at: Timestamp(0),
        ..NewSource::default()
    };
    store.apply(vec![Change::Begin(source)]).await.expect("begins");
    let begun = Instant::now();
    let mut refs = 0;
    for changes in commits {
        refs += store.apply(changes).await.expect("commits").refs;
    }
    let took = begun.elapsed();
    assert_eq!(refs, CHUNKS * REFS_PER_CHUNK);
    took
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
