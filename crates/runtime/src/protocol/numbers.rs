//! Searches packed JSON for numbers that a double may not hold, before a script's language reads them.

/// The number of digits from which a double may not hold an integer: 2^53 has 16.
const LONG_DIGITS: usize = 16;

/// The number of digits before the point, or of the exponent, from which a number may exceed 1.8e308.
const FAR_DIGITS: usize = 309;
const FAR_EXPONENT_DIGITS: usize = 3;

/// Large numbers. A shim checks them one by one. Some are inside of texts, or fit after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outstanding {
    /// An integer with many digits.
    pub long: bool,
    /// A number beyond the largest double.
    pub far: bool,
}

impl Outstanding {
    /// The large numbers in a JSON text. Reads one byte in sixteen, and each letter e.
    pub fn find(text: &str) -> Outstanding {
        let text = text.as_bytes();
        let far_exponent = memchr::memchr2_iter(b'e', b'E', text).any(|at| is_far_exponent(text, at));
        let mut found = Outstanding {
            long: false,
            far: far_exponent,
        };
        let mut probe = LONG_DIGITS - 1;
        while let Some(byte) = text.get(probe) {
            if !byte.is_ascii_digit() {
                probe += LONG_DIGITS;
                continue;
            }
            let before = text[..probe]
                .iter()
                .rev()
                .take_while(|byte| byte.is_ascii_digit());
            let start = probe - before.count();
            let behind = text[probe..].iter().take_while(|byte| byte.is_ascii_digit());
            let end = probe + behind.count();
            found.far |= end - start >= FAR_DIGITS;
            found.long |= end - start >= LONG_DIGITS && may_begin_number(text, start);
            probe = end + LONG_DIGITS - 1;
        }
        found
    }
}

fn is_far_exponent(text: &[u8], at: usize) -> bool {
    let is_in_number = at > 0 && text[at - 1].is_ascii_digit();
    let rest = &text[at + 1..];
    let rest = rest.strip_prefix(b"+").unwrap_or(rest);
    is_in_number
        && rest.len() >= FAR_EXPONENT_DIGITS
        && rest[..FAR_EXPONENT_DIGITS].iter().all(u8::is_ascii_digit)
}

/// Reports whether the digits from `start` on may begin a number: they do not follow a point, a quote or a letter.
fn may_begin_number(text: &[u8], start: usize) -> bool {
    let before = start.checked_sub(1).map(|at| text[at]);
    before.is_none_or(|byte| matches!(byte, b'[' | b',' | b':' | b'-' | b' ' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_integers_and_far_numbers_stand_out() {
        let digits = "1".repeat(FAR_DIGITS);
        for (text, long, far) in [
            ("[1,2.5e10]", false, false),
            ("[123456789012345]", false, false),
            ("[1234567890123456]", true, false),
            ("[{\"id\":-1234567890123456789}\n,7]", true, false),
            ("[0.1234567890123456]", false, false),
            ("[\"1234567890123456\",\"beef800\"]", false, false),
            ("[1e400]", false, true),
            ("[{\"a\":1.5E+999}]", false, true),
            ("[1e-400]", false, false),
            ("[1e99]", false, false),
            (&format!("[{digits}.5]"), true, true),
        ] {
            assert_eq!(Outstanding::find(text), Outstanding { long, far }, "{text}");
        }
    }

    #[test]
    fn no_long_integer_is_missed_wherever_it_lies() {
        for before in 0..3 * LONG_DIGITS {
            for digits in LONG_DIGITS..3 * LONG_DIGITS {
                let text = format!("[\"{}\",{}]", "x".repeat(before), "7".repeat(digits));
                assert!(Outstanding::find(&text).long, "{text}");
                let shorter = format!("[\"{}\",{}]", "x".repeat(before), "7".repeat(LONG_DIGITS - 1));
                assert!(!Outstanding::find(&shorter).long, "{shorter}");
            }
        }
    }
}
