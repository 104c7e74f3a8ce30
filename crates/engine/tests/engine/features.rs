//! The dependencies that an embedding program compiles.

use std::process::Command;

/// The crates that a crate of the workspace is built from with these options.
fn crates_of(package: &str, options: &[&str]) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "--locked", "--offline", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}", "--package", package])
        .args(options)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

const OF_POSTGRES: [&str; 5] = [
    "deadpool-postgres",
    "rustls",
    "rustls-native-certs",
    "tokio-postgres",
    "tokio-postgres-rustls",
];

#[test]
fn a_store_in_sqlite_needs_no_driver_of_postgres_and_no_tls() {
    for (package, has_sqlite) in [
        ("gristmill-store", false),
        ("gristmill-worker", false),
        ("gristmill-runtime", false),
        ("gristmill-store-sqlite", true),
        ("gristmill-engine", true),
    ] {
        let crates = crates_of(package, &["--no-default-features"]);
        assert_eq!(
            crates.iter().any(|name| name == "rusqlite"),
            has_sqlite,
            "{package}: {crates:?}"
        );
        for unwanted in OF_POSTGRES
            .iter()
            .chain(&["ring", "webpki-roots", "native-tls", "openssl-sys"])
        {
            assert!(
                !crates.iter().any(|name| name == unwanted),
                "{package} compiles {unwanted}"
            );
        }
    }
}

#[test]
fn both_stores_are_available_by_default() {
    let crates = crates_of("gristmill-engine", &[]);
    for wanted in OF_POSTGRES.iter().chain(&["rusqlite"]) {
        assert!(crates.iter().any(|name| name == wanted), "{wanted} is missing");
    }
}
