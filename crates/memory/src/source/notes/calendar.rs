//! Calendars (iCalendar): a message for each event, task and note, with its time, place and people.

use chrono::NaiveDateTime;

use crate::message::{Message, Moment};
use crate::source::chunk::split_if_long;
use crate::source::{ReadOptions, moment};

/// The parts of a calendar that become messages.
const PARTS: [&str; 3] = ["VEVENT", "VTODO", "VJOURNAL"];

/// A property of a part: `DTSTART;TZID=Europe/Berlin:20230501T093000`.
struct Property<'t> {
    name: &'t str,
    parameters: &'t str,
    value: &'t str,
}

/// Reads the messages of a calendar. Alarms and time zones are left out; repetitions count once.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    let unfolded = text.replace("\r\n", "\n").replace("\n ", "").replace("\n\t", "");
    let mut messages = Vec::new();
    let mut open: Option<(usize, Vec<Property<'_>>)> = None;
    // The depth of an alarm in an event.
    let mut inner = 0;
    for (number, line) in (1..).zip(unfolded.lines()) {
        let Some(property) = property(line) else { continue };
        match (property.name, &mut open) {
            ("BEGIN", None) if PARTS.contains(&property.value) => open = Some((number, Vec::new())),
            ("BEGIN", Some(_)) => inner += 1,
            ("END", Some(_)) if inner > 0 => inner -= 1,
            ("END", Some(_)) => {
                if let Some((_, properties)) = open.take() {
                    let place = Some(format!("entry {}", messages.len() + 1));
                    messages.push(Message {
                        place,
                        ..message(&properties, options)
                    });
                }
            }
            (_, Some((_, properties))) if inner == 0 => properties.push(property),
            _ => {}
        }
    }
    messages
}

fn property(line: &str) -> Option<Property<'_>> {
    // A colon within quotation marks belongs to a parameter.
    let mut is_quoted = false;
    let colon = line.char_indices().find(|&(_, letter)| {
        is_quoted ^= letter == '"';
        letter == ':' && !is_quoted
    })?;
    let (head, value) = (&line[..colon.0], &line[colon.0 + 1..]);
    let (name, parameters) = head.split_once(';').unwrap_or((head, ""));
    Some(Property {
        name,
        parameters,
        value,
    })
}

fn message(properties: &[Property<'_>], options: &ReadOptions) -> Message {
    let find = |name: &str| properties.iter().find(|property| property.name == name);
    let text_of = |name: &str| {
        find(name)
            .map(|property| unescaped(property.value))
            .filter(|text| !text.trim().is_empty())
    };
    let begin = find("DTSTART").or_else(|| find("DUE"));
    let times = [begin, find("DTEND")].into_iter().flatten();
    let times: Vec<String> = times.map(shown_time).collect();
    let parts = [
        text_of("SUMMARY"),
        Some(times.join(" – ")).filter(|times| !times.is_empty()),
        text_of("LOCATION"),
        text_of("DESCRIPTION"),
    ];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join("\n");
    let attendees = properties.iter().filter(|property| property.name == "ATTENDEE");
    Message {
        text_chunks: split_if_long(&text, options.chunk_characters),
        speaker: find("ORGANIZER").map(person),
        recipients: attendees.map(person).collect(),
        subject: text_of("SUMMARY"),
        tags: text_of("CATEGORIES").map_or_else(Vec::new, |tags| {
            tags.split(',').map(|tag| tag.trim().to_owned()).collect()
        }),
        moment: begin.and_then(|property| moment_of(property, options)),
        id: find("UID")
            .zip(begin)
            .map(|(uid, begin)| format!("calendar/{}/{}", uid.value, begin.value)),
        ..Message::default()
    }
}

/// `ORGANIZER;CN=Ada King:mailto:ada@bees.example`.
fn person(property: &Property<'_>) -> String {
    let address = property
        .value
        .strip_prefix("mailto:")
        .or_else(|| property.value.strip_prefix("MAILTO:"));
    let address = address.unwrap_or(property.value);
    let name = property
        .parameters
        .split(';')
        .find_map(|parameter| parameter.strip_prefix("CN="));
    match name
        .map(|name| name.trim_matches('"'))
        .filter(|name| !name.is_empty() && *name != address)
    {
        Some(name) => format!("{name} <{address}>"),
        None => address.to_owned(),
    }
}

fn unescaped(value: &str) -> String {
    value
        .replace("\\n", "\n")
        .replace("\\N", "\n")
        .replace("\\,", ",")
        .replace("\\;", ";")
        .replace("\\\\", "\\")
}

/// `20230501T093000Z` is an instant; other times are local, in the zone of the options.
fn moment_of(property: &Property<'_>, options: &ReadOptions) -> Option<Moment> {
    match property.value.strip_suffix('Z') {
        Some(utc) => moment::parse(utc, Some(0)),
        None => moment::parse(property.value, options.zone_minutes),
    }
}

/// The time as people write it, with the name of its zone.
fn shown_time(property: &Property<'_>) -> String {
    let value = property.value;
    let (local, zone) = match value.strip_suffix('Z') {
        Some(local) => (local, Some("UTC")),
        None => (
            value,
            property
                .parameters
                .split(';')
                .find_map(|parameter| parameter.strip_prefix("TZID=")),
        ),
    };
    let shown = match NaiveDateTime::parse_from_str(local, "%Y%m%dT%H%M%S") {
        Ok(time) => time.format("%Y-%m-%d %H:%M").to_string(),
        Err(_) => chrono::NaiveDate::parse_from_str(local, "%Y%m%d")
            .map_or_else(|_| local.to_owned(), |date| date.to_string()),
    };
    match zone {
        Some(zone) => format!("{shown} {zone}"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_events() {
        let text = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:1@bees.example\r\n\
            DTSTART;TZID=Europe/Berlin:20230501T093000\r\nDTEND;TZID=Europe/Berlin:20230501T103000\r\nSUMMARY:Hives\\, all\r\n\
                LOCATION:Garden\r\nDESCRIPTION:Bring\r\n  honey.\\nAnd drums.\r\nORGANIZER;CN=\"King: Ada\":mailto:ada@bees.example\r\n\
                    ATTENDEE;CN=Bob:mailto:bob@bees.example\r\nBEGIN:VALARM\r\nDESCRIPTION:Beep\r\nEND:VALARM\r\nEND:VEVENT\r\n\
                        BEGIN:VTODO\r\nSUMMARY:Feed\r\nDUE:20230502T070000Z\r\nEND:VTODO\r\nEND:VCALENDAR\r\n";
        let found = read(text, &ReadOptions::default());
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(
            found[0].text(),
            "Hives, all\n2023-05-01 09:30 Europe/Berlin – 2023-05-01 10:30 Europe/Berlin\nGarden\nBring honey.\nAnd drums."
        );
        assert_eq!(found[0].speaker.as_deref(), Some("King: Ada <ada@bees.example>"));
        assert_eq!(found[0].recipients, ["Bob <bob@bees.example>"]);
        assert_eq!(
            found[1].moment.expect("a time").at.to_string(),
            "2023-05-02T07:00:00.000Z"
        );
    }
}
