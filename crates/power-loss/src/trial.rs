//! Trials: many images of one trace, each with a check.

use std::collections::BTreeSet;
use std::ops::Range;

use gristmill_model::{Rng, SplitMix64};

use crate::check::Fault;
use crate::disk::{Disk, Image};
use crate::limits::FAULTS_KEPT_MAX;
use crate::note::Promises;
use crate::trace::Event;
use crate::vfs;
use crate::volume::Volume;
use crate::workload::Recording;

/// The result of several trials.
#[derive(Debug, Default)]
pub struct Tried {
    /// The number of checked images.
    pub images: u64,
    /// The CRC-32 of each different content.
    pub contents: BTreeSet<u32>,
    /// The number of images with a fault.
    pub failed: u64,
    /// The first faults, and the seeds that make their images again from the same recording.
    pub faults: Vec<(u64, Fault)>,
}

impl Tried {
    /// Adds the results of other trials.
    pub fn add(&mut self, other: Tried) {
        self.images += other.images;
        self.contents.extend(other.contents);
        self.failed += other.failed;
        self.faults.extend(other.faults);
        assert!(
            self.contents.len() as u64 <= self.images && self.failed <= self.images,
            "{} images cannot have {} contents and {} faults",
            self.images,
            self.contents.len(),
            self.failed
        );
        self.faults.truncate(FAULTS_KEPT_MAX);
    }

    fn add_one(&mut self, seed: u64, content: u32, result: Result<(), Fault>) {
        self.images += 1;
        self.contents.insert(content);
        if let Err(fault) = result {
            self.failed += 1;
            if self.faults.len() < FAULTS_KEPT_MAX {
                self.faults.push((seed, fault));
            }
        }
    }
}

/// Makes and checks one image for each seed, on all processors.
pub fn try_images(recording: &Recording, seeds: Range<u64>) -> Tried {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let each = (seeds.end - seeds.start).div_ceil(threads).max(1);
    let mut tried = Tried::default();
    std::thread::scope(|scope| {
        let parts = (0..threads).map(|thread| {
            let start = (seeds.start + thread * each).min(seeds.end);
            start..(start + each).min(seeds.end)
        });
        let parts: Vec<_> = parts
            .map(|part| scope.spawn(move || try_in_order(recording, part)))
            .collect();
        for part in parts {
            match part.join() {
                Ok(part) => tried.add(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    assert_eq!(
        tried.images,
        seeds.end.saturating_sub(seeds.start),
        "each seed has one image"
    );
    tried
}

/// Makes and checks the image of one seed.
pub fn replay(recording: &Recording, seed: u64) -> Result<(), Fault> {
    let mut tried = try_in_order(recording, seed..seed + 1);
    tried.faults.pop().map_or(Ok(()), |(_, fault)| Err(fault))
}

/// Walks through the trace once, and makes the images at their cuts.
fn try_in_order(recording: &Recording, seeds: Range<u64>) -> Tried {
    vfs::register();
    let edges: Vec<usize> = (0..recording.events.len())
        .filter(|at| recording.events[*at].is_edge())
        .collect();
    let mut cuts: Vec<(usize, u64)> = seeds
        .map(|seed| {
            (
                cut(recording.events.len(), &edges, &mut SplitMix64::new(seed)),
                seed,
            )
        })
        .collect();
    cuts.sort_unstable();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    let (mut disk, mut promises, mut tried) = (Disk::default(), Promises::default(), Tried::default());
    let mut events = recording.events.iter();
    for (cut, seed) in cuts {
        while recording.events.len() - events.len() < cut {
            let Some(event) = events.next() else { break };
            disk.apply(event);
            if let Event::Note(note) = event {
                promises.add(note);
            }
        }
        debug_assert!(
            recording.events.len() - events.len() == cut,
            "the disk of an image stands exactly at the cut"
        );
        let image = disk.image(&mut SplitMix64::new(!seed));
        let content = checksum(&image);
        let volume = Volume::of(image);
        let result = runtime.block_on(recording.workload.check(&volume, &promises, seed));
        tried.add_one(seed, content, result);
    }
    tried
}

/// Draws the number of events before a cut. Half of the cuts are anywhere. The other cuts are next to syncs and
/// acknowledgements.
pub(crate) fn cut(events: usize, edges: &[usize], rng: &mut SplitMix64) -> usize {
    if edges.is_empty() || rng.below(2) == 0 {
        return rng.below(events as u64 + 1) as usize;
    }
    let cut = edges[rng.below(edges.len() as u64) as usize] + rng.below(2) as usize;
    assert!(
        cut <= events,
        "a cut at {cut} is behind the {events} events of its trace"
    );
    cut
}

fn checksum(image: &Image) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for (name, bytes) in image {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    hasher.finalize()
}
