//! Messages for people on standard error. All commands print them here, because standard error can be closed or full,
//! and a terminal obeys control characters.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Prints a line to standard error. `eprintln!` would panic if standard error is closed or full.
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::output::terminal::say_line(format_args!($($argument)*))
    };
}

/// Writes a line to standard error.
pub fn say_line(line: fmt::Arguments<'_>) {
    say_part(&format!("{line}\n"));
}

/// Writes text without a line end to standard error.
pub fn say_part(text: &str) {
    let text = if io::stderr().is_terminal() {
        harmless(text)
    } else {
        Cow::Borrowed(text)
    };
    // Standard error is the last place for errors, so its own errors have no place.
    let _ = StandardError.write_all(text.as_bytes());
}

/// Standard error that ignores its own errors. The log's writer would otherwise report an error to standard error, and panic.
pub struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text with symbols instead of control characters, which could take over the terminal: `␛` for escape.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let shown = |letter: char| match u32::from(letter) {
        _ if !is_harmful(letter) => letter,
        0x7f => '\u{2421}',
        code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        _ => char::REPLACEMENT_CHARACTER,
    };
    Cow::Owned(text.chars().map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_symbols_for_control_characters() {
        assert_eq!(harmless("tab\tand\nline é"), "tab\tand\nline é");
        let hostile = "\u{1b}]0;title\u{7}\u{1b}[2J\r\u{8}\u{7f}\u{9b}31m\0";
        assert_eq!(harmless(hostile), "␛]0;title␇␛[2J␍␈␡\u{fffd}31m␀");
    }
}
