//! Coverage-guided fuzzing of the readers of untrusted bytes: `make fuzz`, or `fuzz/run`.
//!
//! One program has all targets; the variable `FUZZ_TARGET` names the one that it runs. A target panics if a promise is
//! broken.

#![no_main]

mod exchange;
mod http;
mod packed;
mod positions;
mod queries;
mod readers;
mod script;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

type Target = fn(&[u8]);

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    match name.as_str() {
        "exchange" => exchange::read,
        "http" => http::request,
        "packed" => packed::read,
        "positions" => positions::compute,
        "queries" => queries::ask,
        "readers" => readers::read,
        "script" => script::read,
        name if name.starts_with("reader-") => readers::read_one,
        _ => panic!("FUZZ_TARGET={name} is not a target"),
    }
});

fuzz_target!(|data: &[u8]| TARGET(data));
