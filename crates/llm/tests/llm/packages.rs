//! The providers' own packages for Python against the stand-in, so that it speaks as the providers do.

use std::process::Command;

use gristmill_test_tools::provider::StandInProvider;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Python with openai and anthropic in PACKAGES_PYTHON: packaging/neighbours/run provider-packages"]
async fn the_packages_of_the_providers_drive_the_stand_in() {
    let python = std::env::var("PACKAGES_PYTHON").expect("PACKAGES_PYTHON names a Python with the packages");
    let stand_in = StandInProvider::start().await;
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/llm/packages.py"))
        .arg(&stand_in.base_url)
        .output()
        .expect("Python starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "all is well",
        "{errors}"
    );
    let billed = stand_in.billed();
    assert_eq!(
        billed.iter().filter(|billed| billed.custom_id.is_none()).count(),
        2
    );
    // Two batches of three are done, of two that expired one each, and of two that were cancelled one each.
    assert_eq!(
        billed.iter().filter(|billed| billed.custom_id.is_some()).count(),
        10
    );
}
