//! Makes one image of a saved recording again, and checks it. A failed test prints the command `replay RECORDING SEED`.
//! The exit status is 0 without a fault, 1 with a fault, and 2 if the recording is unreadable.

use std::process::ExitCode;

use gristmill_power_loss::{Recording, replay};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, seed] = &arguments[..] else {
        eprintln!("give two arguments: the file of a recording, and a seed");
        return ExitCode::from(2);
    };
    let Ok(seed) = seed.parse() else {
        eprintln!("the seed `{seed}` is not a number; give the seed that the failed test printed");
        return ExitCode::from(2);
    };
    let read = || -> Result<Recording, Box<dyn std::error::Error>> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    };
    match read().map(|recording| replay(&recording, seed)) {
        Ok(Ok(())) => {
            println!("no fault");
            ExitCode::SUCCESS
        }
        Ok(Err(fault)) => {
            println!("{fault}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{path}: {error}; name a file that a failed run of `make power-loss` wrote");
            ExitCode::from(2)
        }
    }
}
