//! The entries of calendars (iCalendar, RFC 5545): events, tasks and notes, with their properties.

/// The kinds of entries that are read.
const ENTRIES: [&str; 3] = ["VEVENT", "VTODO", "VJOURNAL"];

/// A property of an entry: `DTSTART;TZID=Europe/Berlin:20230501T093000`.
#[derive(Debug)]
pub struct Property {
    /// The name, in capitals.
    pub name: String,
    parameters: String,
    /// The value as it is written, without spaces around it.
    pub value: String,
}

impl Property {
    fn read(line: &str) -> Option<Property> {
        // A colon within quotation marks belongs to a parameter.
        let mut is_quoted = false;
        let (colon, _) = line.char_indices().find(|&(_, letter)| {
            is_quoted ^= letter == '"';
            letter == ':' && !is_quoted
        })?;
        let (head, value) = (&line[..colon], &line[colon + 1..]);
        let (name, parameters) = head.split_once(';').unwrap_or((head, ""));
        Some(Property {
            name: name.trim().to_uppercase(),
            parameters: parameters.to_owned(),
            value: value.trim().to_owned(),
        })
    }

    /// The value of a parameter, such as `TZID`, without quotation marks.
    pub fn parameter(&self, wanted: &str) -> Option<&str> {
        let mut parameters = self
            .parameters
            .split(';')
            .filter_map(|parameter| parameter.split_once('='));
        let found = parameters.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim_matches('"'))
    }

    /// The value as text, without escapes.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.value.len());
        let mut letters = self.value.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => match letters.next() {
                    Some('n' | 'N') => text.push('\n'),
                    Some(other) => text.push(other),
                    None => text.push('\\'),
                },
                _ => text.push(letter),
            }
        }
        text.trim().to_owned()
    }

    /// A person with an address: `ORGANIZER;CN=Ada King:mailto:ada@bees.example`.
    pub fn person(&self) -> String {
        let address = match self.value.get(..7) {
            Some(scheme) if scheme.eq_ignore_ascii_case("mailto:") => &self.value[7..],
            _ => &self.value,
        };
        match self
            .parameter("CN")
            .filter(|name| !name.is_empty() && *name != address)
        {
            Some(name) => format!("{name} <{address}>"),
            None => address.to_owned(),
        }
    }
}

/// Reads the properties of each entry, in their order. Alarms within an entry, and time zones, have properties of the same
/// names, and are left out.
pub fn entries(calendar: &str) -> Vec<Vec<Property>> {
    let (mut entries, mut open, mut inner) = (Vec::new(), None::<Vec<Property>>, 0_usize);
    for property in unfolded(calendar).iter().filter_map(|line| Property::read(line)) {
        let is_entry = ENTRIES
            .iter()
            .any(|entry| property.value.eq_ignore_ascii_case(entry));
        match (property.name.as_str(), &mut open) {
            // An entry that has no end does not swallow the next one.
            ("BEGIN", _) if is_entry => (open, inner) = (Some(Vec::new()), 0),
            ("BEGIN", _) => inner += 1,
            ("END", _) if is_entry => entries.extend(open.take()),
            ("END", _) => inner = inner.saturating_sub(1),
            (_, Some(properties)) if inner == 0 => properties.push(property),
            _ => {}
        }
    }
    entries
}

/// Joins folded lines.
fn unfolded(calendar: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in calendar.lines() {
        match (line.strip_prefix([' ', '\t']), lines.last_mut()) {
            (Some(rest), Some(last)) => last.push_str(rest),
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_an_end_does_not_swallow_the_next_one() {
        let calendar = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:lost\nBEGIN:VALARM\nbegin:vtodo\nSummary:a\\\\n\\,b\nEND:VTODO\n\
            END:VCALENDAR\nSUMMARY:outside\nBEGIN:VEVENT\nSUMMARY:no end";
        let texts: Vec<Vec<String>> = entries(calendar)
            .iter()
            .map(|entry| entry.iter().map(Property::text).collect())
            .collect();
        assert_eq!(texts, [["a\\n,b"]]);
    }
}
