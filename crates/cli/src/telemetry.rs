//! The exports to OpenTelemetry that the environment asks for.

use gristmill_telemetry::settings;

pub use gristmill_telemetry::Telemetry;

/// The exports, if there are any.
pub fn from_environment() -> Option<Telemetry> {
    let read = settings::read(&|name| std::env::var(name).ok());
    for warning in &read.warnings {
        say!("gristmill: warning: {warning}");
    }
    let refused =
        |reason: &String| say!("gristmill: warning: nothing is exported to OpenTelemetry: {reason}");
    Telemetry::new(read.settings?).inspect_err(refused).ok()
}
