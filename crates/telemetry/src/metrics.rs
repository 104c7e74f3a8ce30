//! The server's metrics as OTLP, from Prometheus's text format
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>), so that both always show the same.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::limits::METRICS_MAX;
use crate::otlp::{attribute, text};
use crate::settings::Signal;
use crate::shared::Shared;

/// Sums since the start: the aggregation temporality of all of Prometheus's counters.
const CUMULATIVE: u8 = 2;

/// The records that were lost, as one more metric.
pub fn dropped(shared: &Shared) -> String {
    let name = "gristmill_telemetry_dropped_total";
    let mut lines =
        format!("# HELP {name} Records for OpenTelemetry that no receiver took\n# TYPE {name} counter\n");
    for signal in Signal::ALL {
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            "{name}{{signal=\"{}\"}} {}",
            signal.name(),
            shared.queue(signal).dropped()
        );
    }
    lines
}

/// A family in the making.
#[derive(Debug, Default)]
struct Family<'t> {
    name: &'t str,
    help: &'t str,
    kind: &'t str,
    rows: Vec<Row<'t>>,
}

/// One line with a number.
#[derive(Debug)]
struct Row<'t> {
    name: &'t str,
    labels: Vec<(&'t str, String)>,
    value: f64,
}

/// The metrics as JSON, with commas between them, and how many there are. Lines that cannot be read, and families that are
/// neither counters, gauges nor histograms, are left out.
pub fn encode(exposition: &str, now_ns: u64) -> (String, u64) {
    let families = families(exposition);
    let metrics = families.iter().filter_map(|family| family.encode(now_ns));
    let encoded: Vec<String> = metrics
        .take(METRICS_MAX)
        .map(|metric| metric.to_string())
        .collect();
    (encoded.join(","), encoded.len() as u64)
}

fn families(exposition: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in exposition.lines() {
        if let Some(declared) = line.strip_prefix("# ") {
            let mut words = declared.splitn(3, ' ');
            let (Some(what), Some(name)) = (words.next(), words.next()) else {
                continue;
            };
            if families.last().is_none_or(|family| family.name != name) {
                families.push(Family {
                    name,
                    ..Family::default()
                });
            }
            if let Some(family) = families.last_mut() {
                let rest = words.next().unwrap_or_default();
                match what {
                    "HELP" => family.help = rest,
                    "TYPE" => family.kind = rest,
                    _ => {}
                }
            }
        } else if let Some((family, row)) = families.last_mut().zip(row(line))
            && row.name.starts_with(family.name)
        {
            family.rows.push(row);
        }
    }
    families
}

fn row(line: &str) -> Option<Row<'_>> {
    let name_end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = Vec::new();
    if let Some(mut inner) = rest.strip_prefix('{') {
        while !inner.starts_with('}') {
            let (label, after) = inner.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label, value));
            inner = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &inner[1..];
    }
    // A time may follow the number.
    let value = rest.trim_start().split(' ').next()?.parse().ok()?;
    Some(Row { name, labels, value })
}

/// A label's value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[place + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

fn attributes<'l>(labels: impl IntoIterator<Item = &'l (&'l str, String)>) -> Vec<Value> {
    let labels = labels.into_iter();
    labels.map(|(name, value)| attribute(name, text(value))).collect()
}

impl Family<'_> {
    fn encode(&self, now_ns: u64) -> Option<Value> {
        let time = now_ns.to_string();
        let points = || -> Vec<Value> {
            let rows = self.rows.iter().filter(|row| row.value.is_finite());
            rows.map(|row| {
                json!({"attributes": attributes(&row.labels), "timeUnixNano": time, "asDouble": row.value})
            })
            .collect()
        };
        let (kind, data) = match self.kind {
            "counter" => (
                "sum",
                json!({"dataPoints": points(), "aggregationTemporality": CUMULATIVE, "isMonotonic": true}),
            ),
            "gauge" => ("gauge", json!({"dataPoints": points()})),
            "histogram" => (
                "histogram",
                json!({"dataPoints": self.histograms(&time), "aggregationTemporality": CUMULATIVE}),
            ),
            _ => return None,
        };
        let is_empty = data["dataPoints"].as_array().is_none_or(Vec::is_empty);
        (!is_empty).then(|| json!({"name": self.name, "description": self.help, kind: data}))
    }

    /// One point for each set of labels but `le`. Prometheus's buckets count all that is below their bound; OTLP's do not
    /// overlap.
    fn histograms(&self, time: &str) -> Vec<Value> {
        let mut by_labels: BTreeMap<Vec<(&str, String)>, Histogram> = BTreeMap::new();
        for row in &self.rows {
            let (le, labels): (Vec<_>, Vec<_>) =
                row.labels.iter().cloned().partition(|(name, _)| *name == "le");
            let histogram = by_labels.entry(labels).or_default();
            match row.name.strip_prefix(self.name) {
                Some("_sum") => histogram.sum = row.value,
                Some("_count") => histogram.count = row.value as u64,
                Some("_bucket") => {
                    let bound = le.first().map_or(f64::NAN, |(_, bound)| match bound.as_str() {
                        "+Inf" => f64::INFINITY,
                        bound => bound.parse().unwrap_or(f64::NAN),
                    });
                    if !bound.is_nan() {
                        histogram.buckets.push((bound, row.value as u64));
                    }
                }
                _ => {}
            }
        }
        let points = by_labels.into_iter().map(|(labels, mut histogram)| {
            histogram.buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            let mut below = 0;
            let counts: Vec<String> = histogram
                .buckets
                .iter()
                .map(|(_, count)| {
                    let here = count.saturating_sub(below);
                    below = *count;
                    here.to_string()
                })
                .collect();
            let bounds = histogram.buckets.iter().map(|(bound, _)| *bound);
            let bounds: Vec<f64> = bounds.filter(|bound| bound.is_finite()).collect();
            json!({
                "attributes": attributes(&labels),
                "timeUnixNano": time,
                "count": histogram.count.to_string(),
                "sum": histogram.sum,
                "bucketCounts": counts,
                "explicitBounds": bounds,
            })
        });
        points.collect()
    }
}

#[derive(Debug, Default)]
struct Histogram {
    sum: f64,
    count: u64,
    /// Bounds, and how many are at most so large.
    buckets: Vec<(f64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_become_metrics() {
        let exposition = concat!(
            "# HELP jobs_total Jobs that ended\n# TYPE jobs_total counter\n",
            "jobs_total{kind=\"a \\\"b\\\\ \\nc,}\",queue=\"q\"} 3\n",
            "\n# TYPE depth gauge\ndepth 1.5 1700000000\n",
            "# HELP took How long\n# TYPE took histogram\n",
            "took_bucket{le=\"0.1\"} 2\ntook_bucket{le=\"1\"} 5\ntook_bucket{le=\"+Inf\"} 6\ntook_sum 7.5\ntook_count 6\n",
            "# TYPE quantiles summary\nquantiles{quantile=\"0.5\"} 1\n",
            "# TYPE none counter\n",
            "broken{a=\"\n",
        );
        let (records, count) = encode(exposition, 42);
        let metrics: Value = serde_json::from_str(&format!("[{records}]")).unwrap();
        assert_eq!((count, metrics.as_array().unwrap().len()), (3, 3), "{records}");
        assert_eq!(
            metrics[0],
            json!({"name": "jobs_total", "description": "Jobs that ended", "sum": {
                "dataPoints": [{"attributes": [
                    {"key": "kind", "value": {"stringValue": "a \"b\\ \nc,}"}},
                    {"key": "queue", "value": {"stringValue": "q"}}
                ], "timeUnixNano": "42", "asDouble": 3.0}],
                "aggregationTemporality": 2, "isMonotonic": true
            }})
        );
        assert_eq!(metrics[1]["gauge"]["dataPoints"][0]["asDouble"], 1.5);
        let histogram = &metrics[2]["histogram"]["dataPoints"][0];
        assert_eq!(histogram["bucketCounts"], json!(["2", "3", "1"]));
        assert_eq!(histogram["explicitBounds"], json!([0.1, 1.0]));
        assert_eq!(
            (&histogram["count"], &histogram["sum"]),
            (&json!("6"), &json!(7.5))
        );
    }
}
