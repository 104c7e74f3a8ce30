//! The request of an event for a flow.

use gristmill_model::JobId;
use gristmill_model::batch::check_name;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::read::read_job;
use crate::refused::Refused;
use crate::submit::even_null;

/// An event for one flow, which is named by its id or by its deduplication key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEventRequest<'a> {
    /// The flow's id, as in `42:7`.
    #[serde(default)]
    job: Option<String>,
    /// The flow's deduplication key.
    #[serde(default)]
    key: Option<String>,
    /// With `key`: the kind of the flow.
    #[serde(default)]
    kind: Option<String>,
    /// The name of the event.
    name: String,
    /// The value of the event: any JSON; `null` by default.
    #[serde(default, borrow, deserialize_with = "even_null")]
    value: Option<&'a RawValue>,
}

/// The flow of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowAddress {
    /// This job.
    Job(JobId),
    /// The open job with a deduplication key.
    Key {
        /// The key.
        key: String,
        /// The kind of the job, if it is named.
        kind: Option<String>,
    },
}

/// An event whose flow, name and value are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressedEvent {
    /// Its flow.
    pub flow: FlowAddress,
    /// Its name.
    pub name: String,
    /// Its value, as JSON.
    pub value_json: String,
}

impl FlowEventRequest<'_> {
    /// Checks the request.
    pub fn check(self) -> Result<AddressedEvent, Refused> {
        let flow = match (self.job, self.key, self.kind) {
            (Some(job), None, None) => FlowAddress::Job(read_job(&job)?),
            (None, Some(key), kind) => FlowAddress::Key { key, kind },
            (Some(_), None, Some(_)) => {
                return Err(Refused::invalid(
                    "the event has `kind` with `job`",
                    "give `kind` with `key` only: an id names one job of any kind",
                ));
            }
            (Some(_), Some(_), _) => {
                return Err(Refused::invalid(
                    "the event has both `job` and `key`",
                    "name the flow by one of them",
                ));
            }
            (None, None, _) => {
                return Err(Refused::invalid(
                    "the event names no flow",
                    "give `job`, as in \"42:7\", or `key`",
                ));
            }
        };
        Ok(AddressedEvent {
            flow,
            name: checked_event_name(self.name)?,
            value_json: self.value.map_or("null", RawValue::get).to_owned(),
        })
    }
}

/// Checks the name of an event.
pub fn checked_event_name(name: String) -> Result<String, Refused> {
    match check_name("event", &name) {
        Ok(()) => Ok(name),
        Err(error) => Err(Refused::invalid(
            error.to_string(),
            "give the name that the flow awaits",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(json: &str) -> Result<AddressedEvent, String> {
        let request: FlowEventRequest<'_> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        request.check().map_err(|refused| refused.told())
    }

    #[test]
    fn an_event_names_its_flow_by_id_or_key() {
        let event = checked(r#"{"job":"42:7","name":"approve","value":{"by":"Ada"}}"#).unwrap();
        assert_eq!(event.flow, FlowAddress::Job("42:7".parse().unwrap()));
        assert_eq!(
            (event.name.as_str(), event.value_json.as_str()),
            ("approve", r#"{"by":"Ada"}"#)
        );
        let event = checked(r#"{"key":"order 17","kind":"ship","name":"paid"}"#).unwrap();
        let (key, kind) = ("order 17".to_owned(), Some("ship".to_owned()));
        assert_eq!(event.flow, FlowAddress::Key { key, kind });
        assert_eq!(event.value_json, "null");
    }

    #[test]
    fn an_event_that_cannot_be_says_why() {
        for (json, error) in [
            (r#"{"name":"a"}"#, "names no flow"),
            (r#"{"job":"1:0","key":"k","name":"a"}"#, "both `job` and `key`"),
            (r#"{"job":"1:0","kind":"k","name":"a"}"#, "`kind` with `job`"),
            (r#"{"job":"1","name":"a"}"#, "as in 42:7"),
            (r#"{"job":"1:0","name":""}"#, "event"),
            (r#"{"job":"1:0"}"#, "missing field `name`"),
            (
                r#"{"job":"1:0","name":"a","payload":1}"#,
                "unknown field `payload`",
            ),
        ] {
            let refused = checked(json).unwrap_err();
            assert!(refused.contains(error), "{json}: {refused}");
        }
    }
}
