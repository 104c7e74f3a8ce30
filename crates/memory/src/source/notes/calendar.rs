//! Calendars (iCalendar): a message for each event, task and note, with its time, place and people.

use chrono::NaiveDateTime;

use crate::message::{Message, Moment};
use crate::source::chunk::split_if_long;
use crate::source::icalendar::{Property, entries};
use crate::source::{ReadOptions, moment};

/// Reads the messages of a calendar. Alarms and time zones are left out; repetitions count once.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    let numbered = (1..).zip(entries(text));
    let messages = numbered.map(|(number, properties)| Message {
        place: Some(format!("entry {number}")),
        ..message(&properties, options)
    });
    messages.collect()
}

fn message(properties: &[Property], options: &ReadOptions) -> Message {
    let find = |name: &str| properties.iter().find(|property| property.name == name);
    let text_of = |name: &str| {
        find(name)
            .map(Property::text)
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
        speaker: find("ORGANIZER").map(Property::person),
        recipients: attendees.map(Property::person).collect(),
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

/// `20230501T093000Z` is an instant; other times are local, in the zone of the options.
fn moment_of(property: &Property, options: &ReadOptions) -> Option<Moment> {
    match property.value.strip_suffix('Z') {
        Some(utc) => moment::parse(utc, Some(0)),
        None => moment::parse(&property.value, options.zone_minutes),
    }
}

/// The time as people write it, with the name of its zone.
fn shown_time(property: &Property) -> String {
    let value = property.value.as_str();
    let (local, zone) = match value.strip_suffix('Z') {
        Some(local) => (local, Some("UTC")),
        None => (value, property.parameter("TZID")),
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
