//! JSON lines with times in the form that people and most programs read: RFC 3339 in UTC.

use std::collections::BTreeMap;

use gristmill_model::Timestamp;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::print_line;

/// Fields that hold a time.
const TIMES: [&str; 17] = [
    "at",
    "claimed_at",
    "created_at",
    "deadline",
    "expires_at",
    "failed_at",
    "finished_at",
    "heartbeat_at",
    "last_at",
    "next_at",
    "paused_until",
    "revoked_at",
    "run_at",
    "since",
    "started_at",
    "submitted_at",
    "until",
];

/// Fields whose contents belong to the user and do not change.
const OF_USERS: [&str; 4] = ["payload", "value", "tags", "log"];

/// The latest moment of RFC 3339.
const LATEST: Timestamp = Timestamp(253_402_300_799_999);

/// Prints one line of JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(print_line(with_times(&to_raw_value(value)?)?.get())?)
}

/// The same JSON, with its times as text.
fn with_times(json: &RawValue) -> serde_json::Result<Box<RawValue>> {
    match json.get().as_bytes().first() {
        Some(b'{') => {
            let mut object: BTreeMap<String, Box<RawValue>> = serde_json::from_str(json.get())?;
            for (name, value) in &mut object {
                if OF_USERS.contains(&name.as_str()) {
                    continue;
                }
                *value = match value.get().parse::<i64>() {
                    Ok(milliseconds) if TIMES.contains(&name.as_str()) => time(Timestamp(milliseconds))?,
                    _ => with_times(value)?,
                };
            }
            to_raw_value(&object)
        }
        Some(b'[') => {
            let list: Vec<Box<RawValue>> = serde_json::from_str(json.get())?;
            let list: Vec<_> = list
                .iter()
                .map(|item| with_times(item))
                .collect::<Result<_, _>>()?;
            to_raw_value(&list)
        }
        _ => Ok(json.to_owned()),
    }
}

/// A time. RFC 3339 ends with the year 9999, which also stands for later times, such as the end of an endless pause.
fn time(at: Timestamp) -> serde_json::Result<Box<RawValue>> {
    to_raw_value(&at.min(LATEST).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_texts_and_payloads_do_not_change() {
        let json = r#"{"submitted_at":0,"run_at":null,"until":9223372036854775807,"n":7,
            "payload":{"run_at":1,"big":123456789012345678901234567890},"pauses":[{"until":1000}]}"#;
        let json: Box<RawValue> = serde_json::from_str(json).unwrap();
        assert_eq!(
            with_times(&json).unwrap().get(),
            concat!(
                r#"{"n":7,"pauses":[{"until":"1970-01-01T00:00:01.000Z"}],"#,
                r#""payload":{"run_at":1,"big":123456789012345678901234567890},"#,
                r#""run_at":null,"submitted_at":"1970-01-01T00:00:00.000Z","until":"9999-12-31T23:59:59.999Z"}"#
            )
        );
    }
}
