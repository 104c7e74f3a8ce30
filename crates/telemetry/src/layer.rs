//! The layer of `tracing` that turns events into OTLP spans and logs.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gristmill_worker::spans::TARGET;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;

use crate::limits::FIELDS_MAX;
use crate::otlp::{Log, Span, attribute, text, whole};
use crate::shared::Shared;

/// The crates that carry the exports. Their own events are not exported, because each export could cause more of them.
const CARRIERS: [&str; 6] = [
    "gristmill_telemetry",
    "reqwest",
    "hyper",
    "hyper_util",
    "h2",
    "rustls",
];

/// A layer that encodes events into the queues.
pub struct OtlpLayer(pub Arc<Shared>);

/// The filter of the exported events.
pub fn exported(shared: &Shared) -> Targets {
    let level = |is_on, level| if is_on { level } else { LevelFilter::OFF };
    let settings = &shared.settings;
    let carriers = CARRIERS.map(|name| (name, LevelFilter::OFF));
    Targets::new()
        .with_default(level(settings.logs.is_some(), LevelFilter::WARN))
        .with_targets(carriers)
        .with_target(TARGET, level(settings.traces.is_some(), LevelFilter::TRACE))
}

/// The nanoseconds since 1970 by the system's clock. Spans of several machines are shown side by side, so they need
/// this clock.
#[allow(
    clippy::disallowed_methods,
    reason = "the clocks of tests stand still, and these times decide nothing"
)]
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl<S: Subscriber> Layer<S> for OtlpLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        if metadata.target() == TARGET {
            if self.0.settings.sampler.takes(fields.trace_id, fields.is_remote) {
                self.0.spans.put(fields.span(now_ns()).encode());
            }
            return;
        }
        let mut attributes = fields.attributes;
        attributes.push(attribute("target", text(metadata.target())));
        let log = Log {
            at_ns: now_ns(),
            is_error: *metadata.level() == Level::ERROR,
            message: fields.message,
            attributes,
        };
        self.0.logs.put(log.encode());
    }
}

/// The fields of an event.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    name: String,
    trace_id: u128,
    span_id: u64,
    parent_id: u64,
    is_remote: bool,
    duration_us: u64,
    kind: String,
    error: Option<String>,
    attributes: Vec<Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        if self.attributes.len() < FIELDS_MAX {
            let name = match field.name() {
                // OpenTelemetry's conventions name this attribute.
                "error_type" => "error.type".to_owned(),
                name => format!("gristmill.{name}"),
            };
            self.attributes.push(attribute(&name, value));
        }
    }

    /// The span that ends now.
    fn span(self, now_ns: u64) -> Span {
        let kind = match self.name.as_str() {
            "submit" => 4,
            "run" => 5,
            _ => 1,
        };
        let name = match self.kind.as_str() {
            "" => self.name,
            kind => format!("{} {kind}", self.name),
        };
        Span {
            trace_id: self.trace_id,
            span_id: self.span_id,
            parent_id: self.parent_id,
            name,
            kind,
            start_ns: now_ns.saturating_sub(self.duration_us.saturating_mul(1_000)),
            end_ns: now_ns,
            error: self.error,
            attributes: self.attributes,
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "span" => value.clone_into(&mut self.name),
            name => {
                match name {
                    "kind" => value.clone_into(&mut self.kind),
                    "error" => self.error = Some(value.to_owned()),
                    _ => {}
                }
                self.add(field, text(value));
            }
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "span_id" => self.span_id = value,
            "parent_id" => self.parent_id = value,
            "duration_us" => self.duration_us = value,
            _ => self.add(field, whole(value)),
        }
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        match field.name() {
            "trace_id" => self.trace_id = value,
            _ => self.add(field, text(&value.to_string())),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, whole(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, json!({"doubleValue": value}));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "is_remote" => self.is_remote = value,
            _ => self.add(field, json!({"boolValue": value})),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let written = format!("{value:?}");
        match field.name() {
            "message" => self.message = written,
            _ => self.add(field, text(&written)),
        }
    }
}
