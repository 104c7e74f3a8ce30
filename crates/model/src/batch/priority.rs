//! Priorities by name.

/// The names of some priorities, lowest first. Any `i16` is a priority. A higher one is claimed first.
pub const PRIORITY_LEVELS: [(&str, i16); 5] = [
    ("background", -100),
    ("low", -10),
    ("normal", 0),
    ("high", 10),
    ("urgent", 100),
];

/// The text is not a priority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a priority: give -32768 to 32767, or background, low, normal, high or urgent")]
pub struct ParsePriorityError(String);

/// Reads a priority: a number, or the name of a level.
pub fn parse_priority(text: &str) -> Result<i16, ParsePriorityError> {
    let named = PRIORITY_LEVELS.into_iter().find(|(name, _)| *name == text);
    match named {
        Some((_, priority)) => Ok(priority),
        None => text
            .parse()
            .map_err(|_| ParsePriorityError(text.chars().take(40).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_numbers_are_read() {
        for (name, priority) in PRIORITY_LEVELS {
            assert_eq!(parse_priority(name), Ok(priority));
        }
        assert!(PRIORITY_LEVELS.is_sorted_by_key(|(_, priority)| *priority));
        assert_eq!(parse_priority("-32768"), Ok(i16::MIN));
        for wrong in ["", "higher", "32768", "1.5", "Urgent"] {
            let error = parse_priority(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
