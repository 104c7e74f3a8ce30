//! Suggestions for misspelt names.

/// Finds the known name nearest to `name`, if one is near: all but a few letters are equal, or one is a prefix of the other.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // Nobody misspells a name of a hundred letters.
    let letters: Vec<char> = name.chars().take(100).collect();
    let distances = known.into_iter().map(|known| {
        let begins =
            name.len() > 2 && (known.starts_with(name) || (known.len() > 2 && name.starts_with(known)));
        let distance = if begins {
            1
        } else {
            distance(&letters, &known.chars().collect::<Vec<_>>())
        };
        (distance, known)
    });
    let near = distances.min_by_key(|(distance, _)| *distance)?;
    (near.0 <= (letters.len() / 3).max(1)).then_some(near.1)
}

/// Adds the nearest known name to the message of `serde` about an unknown name, before its list of names.
pub fn with_near_name(message: &str) -> String {
    let named = ["unknown field `", "unknown variant `"]
        .iter()
        .find_map(|start| Some(message.find(start)? + start.len()));
    let improved = named.and_then(|start| {
        let (name, _) = message[start..].split_once('`')?;
        let end = start + name.len() + 1;
        let list = message[end..].strip_prefix(", expected ")?;
        let known = list.split('`').skip(1).step_by(2);
        let near = nearest(name, known)?;
        Some(format!(
            "{}: did you mean `{near}`? Known is {list}",
            &message[..end]
        ))
    });
    improved.unwrap_or_else(|| message.to_owned())
}

/// Counts the letters to add, omit, change or swap with their neighbour.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, known) in other.iter().enumerate() {
            let change = last[j] + usize::from(letter != known);
            let mut least = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *known {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_has_a_near_one() {
        let known = ["priority", "timeout_ms", "retry", "group"];
        for (name, near) in [
            ("priorty", Some("priority")),
            ("proirity", Some("priority")),
            ("timeout", Some("timeout_ms")),
            ("rety", Some("retry")),
            ("groups", Some("group")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), near, "{name}");
        }
    }

    #[test]
    fn messages_suggest_the_nearest_name() {
        for (message, expected) in [
            (
                "unknown field `priorty`, expected one of `priority`, `retry`, `group` at line 1 column 9",
                "unknown field `priorty`: did you mean `priority`? Known is one of `priority`, `retry`, `group` at line 1 column 9",
            ),
            (
                "x: unknown variant `colect`, expected `fail` or `collect`",
                "x: unknown variant `colect`: did you mean `collect`? Known is `fail` or `collect`",
            ),
            (
                "unknown field `shoe`, expected `kind`",
                "unknown field `shoe`, expected `kind`",
            ),
            (
                "unknown field `a`, there are no fields",
                "unknown field `a`, there are no fields",
            ),
            ("invalid type: null", "invalid type: null"),
        ] {
            assert_eq!(with_near_name(message), expected);
        }
    }
}
