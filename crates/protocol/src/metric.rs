//! Metrics as values: a server writes them as text for Prometheus, and OpenTelemetry's export as OTLP.

use std::fmt::Write;

/// The kind of a family's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Numbers that only grow.
    Counter,
    /// Numbers that grow and fall.
    Gauge,
    /// Counts of values by size.
    Histogram,
}

/// The rows of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFamily {
    /// The name of the metric.
    pub name: &'static str,
    /// The description of the metric.
    pub help: &'static str,
    /// The kind of all rows.
    pub kind: MetricKind,
    /// One row for each set of labels.
    pub rows: Vec<MetricRow>,
}

/// One value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricRow {
    /// The labels, by name.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: MetricValue,
}

/// A value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    /// The value of a counter or a gauge.
    Number(f64),
    /// The value of a histogram.
    Histogram {
        /// The upper bounds of the buckets but the last, ascending.
        bounds: &'static [f64],
        /// The number of values in each bucket: one more than there are bounds.
        counts: Vec<u64>,
        /// The sum of all values.
        sum: f64,
    },
}

impl MetricFamily {
    /// A family of numbers.
    #[allow(clippy::cast_precision_loss, reason = "both formats know only such numbers")]
    pub fn counts(
        name: &'static str,
        help: &'static str,
        kind: MetricKind,
        rows: impl IntoIterator<Item = (Vec<(&'static str, String)>, u64)>,
    ) -> MetricFamily {
        let row = |(labels, count)| MetricRow {
            labels,
            value: MetricValue::Number(count as f64),
        };
        MetricFamily {
            name,
            help,
            kind,
            rows: rows.into_iter().map(row).collect(),
        }
    }
}

/// Writes metrics in Prometheus's text format (<https://prometheus.io/docs/instrumenting/exposition_formats/>). Families without
/// rows are declared too, so that no rule names an unknown one.
pub fn prometheus_text(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for family in families {
        let (name, kind) = (family.name, family.kind.name());
        // A write to a string never fails.
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
        for row in &family.rows {
            let labels: Vec<String> = row
                .labels
                .iter()
                .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
                .collect();
            let labels = labels.join(",");
            match &row.value {
                MetricValue::Number(number) if labels.is_empty() => {
                    let _ = writeln!(text, "{name} {number}");
                }
                MetricValue::Number(number) => {
                    let _ = writeln!(text, "{name}{{{labels}}} {number}");
                }
                MetricValue::Histogram { bounds, counts, sum } => {
                    let bounds = bounds.iter().map(f64::to_string);
                    let mut up_to = 0;
                    for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
                        up_to += count;
                        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {up_to}");
                    }
                    let _ = writeln!(
                        text,
                        "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {up_to}"
                    );
                }
            }
        }
    }
    text
}

impl MetricKind {
    fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// The value of a label with the escapes of the text format.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
