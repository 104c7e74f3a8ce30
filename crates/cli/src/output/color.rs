//! The use of colours in output, by `--color` and NO_COLOR.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::{ColorChoice, ValueEnum};

static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// The colour option in the given arguments. It also counts for the help and for errors in other arguments. Wrong
/// values are refused later, with all arguments.
pub fn choose(arguments: &[OsString]) -> ColorChoice {
    let mut words = arguments.iter().map(|word| word.to_string_lossy());
    let mut choice = ColorChoice::Auto;
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        let value = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(value) => value.strip_prefix('=').map(|value| value.to_owned().into()),
            None => None,
        };
        choice = value.map_or(choice, |value| {
            ColorChoice::from_str(&value, false).unwrap_or(choice)
        });
    }
    *CHOICE.get_or_init(|| choice)
}

/// Reports whether standard error has colours.
pub fn on_stderr() -> bool {
    are_on(std::io::stderr().is_terminal())
}

/// Reports whether standard output has colours.
#[cfg(feature = "full")]
pub fn on_stdout() -> bool {
    are_on(std::io::stdout().is_terminal())
}

fn are_on(is_terminal: bool) -> bool {
    let is_unwanted = || std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty());
    match CHOICE.get().copied().unwrap_or(ColorChoice::Auto) {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => is_terminal && !is_unwanted(),
    }
}
