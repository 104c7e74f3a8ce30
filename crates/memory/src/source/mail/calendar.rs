//! Invitations as text.

use crate::source::icalendar::{Property, entries};

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
    let events: Vec<String> = entries(calendar).iter().map(|event| written(event)).collect();
    events.join("\n\n")
}

fn written(event: &[Property]) -> String {
    let fields = FIELDS.iter().flat_map(|(field, words)| {
        let of_field = event.iter().filter(move |property| property.name == *field);
        of_field.map(move |property| (words, value_of(property)))
    });
    let lines = fields.filter(|(_, value)| !value.is_empty());
    let lines: Vec<String> = lines.map(|(words, value)| format!("{words}{value}")).collect();
    lines.join("\n")
}

fn value_of(property: &Property) -> String {
    match property.name.as_str() {
        "DTSTART" | "DTEND" => match (time(&property.value), property.parameter("TZID")) {
            (Some(time), Some(zone)) => format!("{time} ({zone})"),
            (Some(time), None) => time,
            (None, _) => property.value.clone(),
        },
        "ORGANIZER" | "ATTENDEE" => property.person(),
        _ => property.text(),
    }
}

/// Writes `20230501T093000Z` as `2023-05-01 09:30 UTC`, and `20230501` as `2023-05-01`.
fn time(value: &str) -> Option<String> {
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
