//! Cuts the power at random moments of four workloads. `POWER_LOSS_IMAGES` sets the number of images, and
//! `POWER_LOSS_SEED` chooses other images. A failure saves its recording, and prints the command that replays its
//! image.

use std::mem::discriminant;
use std::path::PathBuf;

use gristmill_power_loss::check::Fault;
use gristmill_power_loss::{Recording, Syncs, Tried, Workload, replay, try_images};
use gristmill_store_sqlite::Synchronous;

/// The number of images without `POWER_LOSS_IMAGES`.
const IMAGES: u64 = 1_000;

/// The largest number of images of one recording.
const IMAGES_PER_RECORDING_MAX: u64 = 2_500;

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

fn record(workload: Workload, syncs: Syncs, synchronous: Synchronous, seed: u64) -> Recording {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(workload.record(syncs, synchronous, seed))
        .unwrap()
}

/// Writes a recording to the folder in `POWER_LOSS_FOLDER`, or to the folder of temporary files.
fn save(recording: &Recording, seed: u64) -> PathBuf {
    let folder = std::env::var_os("POWER_LOSS_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("power-loss-{:?}-{seed}.json", recording.workload));
    std::fs::write(&path, serde_json::to_vec(recording).unwrap()).unwrap();
    path
}

#[test]
fn acknowledged_data_survives_a_cut_at_any_moment() {
    let (images, first_seed) = (number("POWER_LOSS_IMAGES", IMAGES), number("POWER_LOSS_SEED", 1));
    let each = images.div_ceil(Workload::ALL.len() as u64);
    let mut total = Tried::default();
    let mut failures = Vec::new();
    for workload in Workload::ALL {
        let mut of_workload = Tried::default();
        let mut seed = first_seed;
        while of_workload.images < each {
            let recording = record(workload, Syncs::Kept, Synchronous::Full, seed);
            let images = (each - of_workload.images).min(IMAGES_PER_RECORDING_MAX);
            let seeds = seed * IMAGES_PER_RECORDING_MAX..seed * IMAGES_PER_RECORDING_MAX + images;
            let tried = try_images(&recording, seeds);
            if let Some((image, fault)) = tried.faults.first() {
                let path = save(&recording, seed);
                failures.push(format!(
                    "{fault}\n  make power-loss-replay RECORDING={} SEED={image}",
                    path.display()
                ));
            }
            of_workload.add(tried);
            seed += 1;
        }
        println!(
            "{workload:?}: {} images of {} recordings, {} different contents, {} failed",
            of_workload.images,
            seed - first_seed,
            of_workload.contents.len(),
            of_workload.failed
        );
        assert!(
            of_workload.contents.len() as u64 > each / 4,
            "almost all images are the same"
        );
        total.add(of_workload);
    }
    println!(
        "power loss: {} images, {} different contents, {} failed, seed {first_seed}",
        total.images,
        total.contents.len(),
        total.failed
    );
    assert_eq!(total.failed, 0, "{}", failures.join("\n"));
}

/// Shows that the check can fail: a disk that ignores syncs loses data of each workload. The same seed makes the same fault.
#[test]
fn a_disk_that_ignores_syncs_is_detected() {
    for workload in Workload::ALL {
        let recording = record(workload, Syncs::Swallowed, Synchronous::Full, 1);
        let tried = try_images(&recording, 0..40);
        assert!(
            tried.failed > 10,
            "{workload:?}: {} of {} failed",
            tried.failed,
            tried.images
        );
        let (seed, fault) = &tried.faults[0];
        let again = replay(&recording, *seed).unwrap_err();
        assert_eq!(discriminant(&again), discriminant(fault), "{again}, {fault}");
    }
}

/// Shows that `synchronous=NORMAL` keeps the promises of its documentation.
#[test]
fn synchronous_normal_loses_the_latest_commits_but_keeps_files_sound() {
    for workload in [Workload::Submit, Workload::Run, Workload::Worker] {
        let recording = record(workload, Syncs::Kept, Synchronous::Normal, 1);
        let tried = try_images(&recording, 0..60);
        assert!(
            tried.failed > 10,
            "{workload:?}: {} of {} failed",
            tried.failed,
            tried.images
        );
        for (seed, fault) in &tried.faults {
            assert!(
                matches!(fault, Fault::Lost(_)),
                "{workload:?}, seed {seed}: {fault}"
            );
        }
    }
}
