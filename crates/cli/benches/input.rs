//! How fast an input is read into batches, beside reading its lines alone: `cargo bench -p gristmill --bench input`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Instant;

use gristmill_cli::input::Input;
use gristmill_model::BatchLimits;

const LINES: u64 = 2_000_000;
const ROUNDS: usize = 5;

fn main() {
    // `cargo test --benches` runs this too, and wants only to know that it works.
    let lines = if std::env::args().any(|argument| argument == "--bench") {
        LINES
    } else {
        1_000
    };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let payload = "x".repeat(70);
    let jsonl: String = (0..lines)
        .map(|id| format!("{{\"id\": {id:>9}, \"text\": \"{payload}\"}}\n"))
        .collect();
    let csv: String = std::iter::once("id,text\n".to_owned())
        .chain((0..lines).map(|id| format!("{id:>9},{payload}\n")))
        .collect();
    for (name, text) in [
        ("items.jsonl", &jsonl),
        ("items.txt", &jsonl),
        ("items.csv", &csv),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the input can be written");
        let read = median(|| read_batches(&path, lines));
        let floor = median(|| read_lines(&path));
        println!(
            "{name}: {:.2} million lines/s, {:.0} MB/s; reading the lines alone {:.2} million/s: {:.2} of it",
            lines as f64 / read / 1e6,
            text.len() as f64 / read / 1e6,
            lines as f64 / floor / 1e6,
            floor / read
        );
    }
}

fn read_batches(path: &Path, lines: u64) {
    let mut reader = Input::new(path, None)
        .and_then(|input| input.open(BatchLimits::default()))
        .expect("it opens");
    while reader.next_batch().expect("it is read").is_some() {}
    assert_eq!(reader.progress().jobs, lines);
}

fn read_lines(path: &Path) {
    let file = std::fs::File::open(path).expect("it opens");
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).expect("it is read") > 0 {
        std::hint::black_box(&line);
        line.clear();
    }
}

/// The median of some rounds, in seconds, after a warm-up.
fn median(work: impl Fn()) -> f64 {
    work();
    let mut seconds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[ROUNDS / 2]
}
