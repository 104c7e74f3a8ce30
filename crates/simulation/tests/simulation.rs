//! Short simulations of a fleet under faults, each in its own process.

use std::process::Command;

use serde_json::Value;

/// The finding of one simulation.
fn simulate(seed: u64, minutes: u32) -> Value {
    let hours = (f64::from(minutes) / 60.0).to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_gristmill-simulate"))
        .args(["--alone", "--seed", &seed.to_string(), "--hours", &hours])
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("seed {seed}: {error}: {said}"))
}

#[test]
fn promises_hold_under_faults() {
    for seed in 1..=2 {
        let finding = simulate(seed, 6);
        assert_eq!(finding["violation"], Value::Null, "seed {seed}");
        assert!(finding["jobs"].as_u64() > Some(100), "{finding}");
        assert!(finding["flows"].as_u64() > Some(10), "{finding}");
        assert!(finding["faults"].as_u64() > Some(5), "{finding}");
    }
}

#[test]
fn a_seed_determines_the_whole_simulation() {
    let (one, again, other) = (simulate(7, 2), simulate(7, 2), simulate(8, 2));
    assert_eq!(one, again);
    assert_ne!(one["trace"], other["trace"]);
}

/// The bugs of `mutations/` are patches of the code as it is.
#[test]
fn each_mutation_applies() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/mutations");
    let patches = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut tried = 0;
    for patch in patches.filter(|path| path.extension().is_some_and(|end| end == "patch")) {
        let output = Command::new("git")
            .args(["apply", "--check"])
            .arg(&patch)
            .current_dir(root)
            .output();
        let output = output.expect("git starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", patch.display());
        tried += 1;
    }
    assert!(tried > 0, "{folder} has no patch");
}
