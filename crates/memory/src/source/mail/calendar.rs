//! Invitations (iCalendar, RFC 5545) as text.

/// Fields of an event that are written, with the words before them.
const FIELDS: [(&str, &str); 8] = [
    ("SUMMARY", ""),
    ("DTSTART", "Begins: "),
    ("DTEND", "Ends: "),
    ("RRULE", "Repeats: "),
    ("LOCATION", "Place: "),
    ("ORGANIZER", "Organizer: "),
    ("ATTENDEE", "Invited: "),
    ("DESCRIPTION", ""),
];

/// Writes the events of a calendar as text: a line for each field, an empty line between events.
pub fn to_text(calendar: &str) -> String {
    let mut events = Vec::new();
    let mut event: Option<Vec<(usize, String)>> = None;
    // Alarms and time zones within a calendar have fields of the same names.
    let mut inner: usize = 0;
    for line in unfolded(calendar) {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let (name, parameters) = name.split_once(';').unwrap_or((name, ""));
        let name = name.trim().to_uppercase();
        match (name.as_str(), value.trim().to_uppercase().as_str()) {
            ("BEGIN", "VEVENT" | "VTODO" | "VJOURNAL") => (event, inner) = (Some(Vec::new()), 0),
            ("BEGIN", _) => inner += 1,
            ("END", "VEVENT" | "VTODO" | "VJOURNAL") => events.extend(event.take().map(written)),
            ("END", _) => inner = inner.saturating_sub(1),
            _ => {
                let field = FIELDS.iter().position(|(field, _)| *field == name);
                if let (Some(event), Some(field), 0) = (&mut event, field, inner) {
                    event.push((field, value_of(&name, parameters, value)));
                }
            }
        }
    }
    events.join("\n\n")
}

fn written(mut fields: Vec<(usize, String)>) -> String {
    fields.sort_by_key(|(field, _)| *field);
    let lines = fields.into_iter().filter(|(_, value)| !value.is_empty());
    let lines: Vec<String> = lines
        .map(|(field, value)| format!("{}{value}", FIELDS[field].1))
        .collect();
    lines.join("\n")
}

/// The lines, with those that were folded joined again.
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

fn value_of(name: &str, parameters: &str, value: &str) -> String {
    let parameter = |wanted: &str| {
        let mut parameters = parameters
            .split(';')
            .filter_map(|parameter| parameter.split_once('='));
        let found = parameters.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim_matches('"').to_owned())
    };
    match name {
        "DTSTART" | "DTEND" => match (time(value), parameter("TZID")) {
            (Some(time), Some(zone)) => format!("{time} ({zone})"),
            (Some(time), None) => time,
            (None, _) => value.to_owned(),
        },
        "ORGANIZER" | "ATTENDEE" => {
            let address = value.trim();
            let address = match address.get(..7) {
                Some(scheme) if scheme.eq_ignore_ascii_case("mailto:") => &address[7..],
                _ => address,
            };
            match parameter("CN").filter(|name| name != address) {
                Some(name) => format!("{name} <{address}>"),
                None => address.to_owned(),
            }
        }
        _ => unescaped(value),
    }
}

/// Writes `20230501T093000Z` as `2023-05-01 09:30 UTC`, and `20230501` as `2023-05-01`.
fn time(value: &str) -> Option<String> {
    let value = value.trim();
    let (date, clock) = value.split_once('T').unwrap_or((value, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if date.len() != 8 || !is_digits(date) {
        return None;
    }
    let date = format!("{}-{}-{}", &date[..4], &date[4..6], &date[6..]);
    let digits = clock.trim_end_matches('Z');
    match digits.len() {
        0 => Some(date),
        6 if is_digits(digits) => {
            let zone = if clock.ends_with('Z') { " UTC" } else { "" };
            Some(format!("{date} {}:{}{zone}", &digits[..2], &digits[2..4]))
        }
        _ => None,
    }
}

fn unescaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut letters = value.chars();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_written_with_their_times() {
        let calendar = "BEGIN:VCALENDAR\r\nBEGIN:VTIMEZONE\r\nDTSTART:19700101T000000\r\nEND:VTIMEZONE\r\nBEGIN:VEVENT\r\n\
            DTSTART;TZID=Europe/Berlin:20230501T093000\r\nDTEND:20230501T083000Z\r\nSUMMARY:Bees\\, and\r\n  drums\r\n\
            ORGANIZER;CN=\"Ada King\":MAILTO:ada@bees.example\r\nDESCRIPTION:Hum\\nloud\r\nBEGIN:VALARM\r\n\
            DESCRIPTION:Reminder\r\nEND:VALARM\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n";
        assert_eq!(
            to_text(calendar),
            "Bees, and drums\nBegins: 2023-05-01 09:30 (Europe/Berlin)\nEnds: 2023-05-01 08:30 UTC\n\
             Organizer: Ada King <ada@bees.example>\nHum\nloud"
        );
        assert_eq!(to_text("END:X\nEND:VEVENT\nDTSTART:x"), "");
    }
}
