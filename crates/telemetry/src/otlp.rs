//! OTLP as JSON (<https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>). Ids are hexadecimal texts.
//! Numbers of 64 bits are also texts.

use serde_json::{Map, Value, json};

use crate::limits::TEXT_BYTES_MAX;
use crate::settings::Signal;

/// A name and its value in the format of attributes.
pub fn attribute(name: &str, value: Value) -> Value {
    json!({"key": name, "value": value})
}

/// A text as an attribute's value, cut to its limit.
pub fn text(text: &str) -> Value {
    json!({"stringValue": &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]})
}

/// A whole number as an attribute's value.
pub fn whole(number: impl ToString) -> Value {
    json!({"intValue": number.to_string()})
}

/// An ended span.
#[derive(Debug)]
pub struct Span {
    /// The id of the trace.
    pub trace_id: u128,
    /// The id of the span.
    pub span_id: u64,
    /// The id of the parent span, or 0 if there is none.
    pub parent_id: u64,
    /// The name of the span.
    pub name: String,
    /// The kind of the span: 1 for internal, 4 for a producer, 5 for a consumer.
    pub kind: u8,
    /// The start, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The end, in nanoseconds since 1970.
    pub end_ns: u64,
    /// The error of a failed span.
    pub error: Option<String>,
    /// The attributes, as made by [`attribute`].
    pub attributes: Vec<Value>,
}

/// The status code of a failed span.
const STATUS_ERROR: u8 = 2;

impl Span {
    /// Encodes the span as JSON.
    pub fn encode(&self) -> String {
        assert!(self.start_ns <= self.end_ns, "a span starts before it ends");
        let mut span = json!({
            "traceId": format!("{:032x}", self.trace_id),
            "spanId": format!("{:016x}", self.span_id),
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": self.start_ns.to_string(),
            "endTimeUnixNano": self.end_ns.to_string(),
            "attributes": self.attributes,
        });
        if self.parent_id != 0 {
            span["parentSpanId"] = format!("{:016x}", self.parent_id).into();
        }
        if let Some(error) = &self.error {
            span["status"] = json!({"code": STATUS_ERROR, "message": text(error)["stringValue"]});
        }
        span.to_string()
    }
}

/// One line of the log.
#[derive(Debug)]
pub struct Log {
    /// The time, in nanoseconds since 1970.
    pub at_ns: u64,
    /// The line is an error. Otherwise it is a warning.
    pub is_error: bool,
    /// The text of the line.
    pub message: String,
    /// The attributes, as made by [`attribute`].
    pub attributes: Vec<Value>,
}

impl Log {
    /// Encodes the line as JSON.
    pub fn encode(&self) -> String {
        let (number, name) = if self.is_error {
            (17, "ERROR")
        } else {
            (13, "WARN")
        };
        let log = json!({
            "timeUnixNano": self.at_ns.to_string(),
            "observedTimeUnixNano": self.at_ns.to_string(),
            "severityNumber": number,
            "severityText": name,
            "body": text(&self.message),
            "attributes": self.attributes,
        });
        log.to_string()
    }
}

/// The resource of all records, as JSON.
pub fn resource(attributes: &[(String, String)]) -> String {
    let attributes: Vec<Value> = attributes
        .iter()
        .map(|(name, value)| attribute(name, text(value)))
        .collect();
    json!({"attributes": attributes}).to_string()
}

/// The body of a request with these encoded records, which have commas between them.
pub fn body(signal: Signal, resource: &str, records: &str) -> String {
    let (resources, scopes, list) = match signal {
        Signal::Traces => ("resourceSpans", "scopeSpans", "spans"),
        Signal::Metrics => ("resourceMetrics", "scopeMetrics", "metrics"),
        Signal::Logs => ("resourceLogs", "scopeLogs", "logRecords"),
    };
    let scope = concat!(
        r#"{"name":"gristmill","version":""#,
        env!("CARGO_PKG_VERSION"),
        r#""}"#
    );
    format!(
        r#"{{"{resources}":[{{"resource":{resource},"{scopes}":[{{"scope":{scope},"{list}":[{records}]}}]}}]}}"#
    )
}

/// The number of records that a receiver refused from a successful request, and its reason.
pub fn refused(signal: Signal, answer: &[u8]) -> Option<(u64, String)> {
    let field = match signal {
        Signal::Traces => "rejectedSpans",
        Signal::Metrics => "rejectedDataPoints",
        Signal::Logs => "rejectedLogRecords",
    };
    let answer: Map<String, Value> = serde_json::from_slice(answer).ok()?;
    let partial = answer.get("partialSuccess")?;
    let count = match partial.get(field)? {
        Value::String(text) => text.parse().ok()?,
        number => number.as_u64()?,
    };
    let reason = partial
        .get("errorMessage")
        .and_then(Value::as_str)
        .unwrap_or("no reason");
    (count > 0).then(|| (count, reason.chars().take(200).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let long = format!("{}é", "x".repeat(TEXT_BYTES_MAX - 1));
        let cut = text(&long);
        assert_eq!(cut["stringValue"].as_str().unwrap().len(), TEXT_BYTES_MAX - 1);
    }

    #[test]
    fn refused_records_are_read_from_an_answer() {
        let answer = br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
        assert_eq!(refused(Signal::Traces, answer), Some((3, "too old".to_owned())));
        assert_eq!(refused(Signal::Logs, answer), None);
        assert_eq!(refused(Signal::Traces, b"{}"), None);
        assert_eq!(refused(Signal::Traces, b"<html>"), None);
    }
}
