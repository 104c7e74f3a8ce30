//! The metrics of a server as OTLP.

use std::collections::HashMap;

use gristmill_protocol::metric::{MetricFamily, MetricKind, MetricRow, MetricValue};
use serde_json::{Value, json};

use crate::limits::METRICS_MAX;
use crate::otlp::{attribute, text};
use crate::settings::Signal;
use crate::shared::Shared;

/// The aggregation temporality of all of Prometheus's counters: sums since the start.
const CUMULATIVE: u8 = 2;

/// The numbers of lost records, as an additional metric.
pub fn dropped(shared: &Shared) -> MetricFamily {
    let of_signal = |signal: Signal| {
        let labels = vec![("signal", signal.name().to_owned())];
        (labels, shared.queue(signal).dropped())
    };
    MetricFamily::counts(
        "gristmill_telemetry_dropped_total",
        "Records for OpenTelemetry that no receiver took",
        MetricKind::Counter,
        Signal::ALL.map(of_signal),
    )
}

/// The start time of each cumulative series. The program also exports counts of the store, and does not know when they
/// started. Such a series starts at the first export. A series that appears later, or falls, starts at the export
/// before.
#[derive(Debug)]
pub struct Starts {
    exported_ns: u64,
    series: HashMap<String, Series>,
    next: HashMap<String, Series>,
}

#[derive(Debug, Clone, Copy)]
struct Series {
    start_ns: u64,
    value: f64,
}

impl Starts {
    /// The state before the first export.
    pub fn new(now_ns: u64) -> Starts {
        Starts {
            exported_ns: now_ns,
            series: HashMap::new(),
            next: HashMap::new(),
        }
    }

    fn of(&mut self, name: &str, labels: &[(&str, String)], value: f64) -> String {
        let key = format!("{name}{labels:?}");
        let known = self.series.get(&key).filter(|known| known.value <= value);
        let start_ns = known.map_or(self.exported_ns, |known| known.start_ns);
        self.next.insert(key, Series { start_ns, value });
        start_ns.to_string()
    }

    /// Ends an export. Forgets the series that it did not contain.
    fn exported(&mut self, now_ns: u64) {
        self.exported_ns = now_ns;
        self.series = std::mem::take(&mut self.next);
    }
}

/// The unit of a metric in UCUM (<https://ucum.org/ucum>), from the metric's name. Counted things are in braces.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    let mut words = name.rsplit('_').peekable();
    match words.peek() {
        Some(&"seconds") => return "s",
        Some(&"bytes") => return "By",
        _ => {}
    }
    let counted = words.find_map(|word| match word {
        "jobs" => Some("{job}"),
        "items" => Some("{item}"),
        "batches" => Some("{batch}"),
        "requests" => Some("{request}"),
        "workers" => Some("{worker}"),
        "dropped" => Some("{record}"),
        _ => None,
    });
    counted.unwrap_or("1")
}

/// The metrics as JSON with commas between them, and their number. Families without values are left out.
pub fn encode(families: &[MetricFamily], now_ns: u64, starts: &mut Starts) -> (String, u64) {
    let metrics = families
        .iter()
        .filter_map(|family| encode_family(family, now_ns, starts));
    let encoded: Vec<String> = metrics
        .take(METRICS_MAX)
        .map(|metric| metric.to_string())
        .collect();
    starts.exported(now_ns);
    (encoded.join(","), encoded.len() as u64)
}

fn encode_family(family: &MetricFamily, now_ns: u64, starts: &mut Starts) -> Option<Value> {
    let points: Vec<Value> = family
        .rows
        .iter()
        .filter_map(|row| point(family, row, now_ns, starts))
        .collect();
    if points.is_empty() {
        return None;
    }
    let (kind, data) = match family.kind {
        MetricKind::Counter => (
            "sum",
            json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true}),
        ),
        MetricKind::Gauge => ("gauge", json!({"dataPoints": points})),
        MetricKind::Histogram => (
            "histogram",
            json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE}),
        ),
    };
    Some(json!({"name": family.name, "description": family.help, "unit": unit(family.name), kind: data}))
}

/// A row as a data point. A number that is not finite has none.
fn point(family: &MetricFamily, row: &MetricRow, now_ns: u64, starts: &mut Starts) -> Option<Value> {
    let labels = row.labels.iter();
    let attributes: Vec<Value> = labels.map(|(name, value)| attribute(name, text(value))).collect();
    let mut point = json!({"attributes": attributes, "timeUnixNano": now_ns.to_string()});
    let cumulated = match &row.value {
        MetricValue::Number(number) => {
            if !number.is_finite() {
                return None;
            }
            point["asDouble"] = json!(number);
            *number
        }
        MetricValue::Histogram { bounds, counts, sum } => {
            let count: u64 = counts.iter().sum();
            let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
            point["count"] = json!(count.to_string());
            point["sum"] = json!(sum);
            point["bucketCounts"] = json!(counts);
            point["explicitBounds"] = json!(bounds);
            count as f64
        }
    };
    if family.kind != MetricKind::Gauge {
        point["startTimeUnixNano"] = json!(starts.of(family.name, &row.labels, cumulated));
    }
    Some(point)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(name: &'static str, value: u64) -> MetricFamily {
        MetricFamily::counts(name, "", MetricKind::Counter, [(Vec::new(), value)])
    }

    fn took(counts: [u64; 3]) -> MetricFamily {
        MetricFamily {
            name: "took",
            help: "How long",
            kind: MetricKind::Histogram,
            rows: vec![MetricRow {
                labels: Vec::new(),
                value: MetricValue::Histogram {
                    bounds: &[0.1, 1.0],
                    counts: counts.to_vec(),
                    sum: 7.5,
                },
            }],
        }
    }

    #[test]
    fn families_become_metrics() {
        let labels = vec![("kind", "a \"b\\ \nc,}".to_owned()), ("queue", "q".to_owned())];
        let gauge = |value| MetricFamily {
            name: "depth",
            help: "",
            kind: MetricKind::Gauge,
            rows: vec![MetricRow {
                labels: Vec::new(),
                value: MetricValue::Number(value),
            }],
        };
        let families = [
            MetricFamily::counts(
                "jobs_total",
                "Jobs that ended",
                MetricKind::Counter,
                [(labels, 3)],
            ),
            gauge(1.5),
            took([2, 3, 1]),
            gauge(f64::NAN),
            MetricFamily::counts("none", "", MetricKind::Counter, []),
        ];
        let (records, count) = encode(&families, 42, &mut Starts::new(41));
        let metrics: Value = serde_json::from_str(&format!("[{records}]")).unwrap();
        assert_eq!((count, metrics.as_array().unwrap().len()), (3, 3), "{records}");
        assert_eq!(
            metrics[0],
            json!({"name": "jobs_total", "description": "Jobs that ended", "unit": "{job}", "sum": {
                "dataPoints": [{"attributes": [
                    {"key": "kind", "value": {"stringValue": "a \"b\\ \nc,}"}},
                    {"key": "queue", "value": {"stringValue": "q"}}
                ], "startTimeUnixNano": "41", "timeUnixNano": "42", "asDouble": 3.0}],
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

    #[test]
    fn a_series_starts_at_its_first_export_or_its_last_fall() {
        let mut starts = Starts::new(10);
        let mut starts_at = |now_ns, families: &[MetricFamily]| -> Vec<(String, String)> {
            let (records, _) = encode(families, now_ns, &mut starts);
            let metrics: Vec<Value> = serde_json::from_str(&format!("[{records}]")).unwrap();
            let point = |metric: &Value| {
                let data = metric.get("sum").or(metric.get("histogram")).unwrap();
                let start = data["dataPoints"][0]["startTimeUnixNano"].as_str().unwrap();
                (metric["name"].as_str().unwrap().to_owned(), start.to_owned())
            };
            metrics.iter().map(point).collect()
        };
        let at = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = |(name, start): &(&str, &str)| ((*name).to_owned(), (*start).to_owned());
            pairs.iter().map(owned).collect()
        };
        let all = |a: u64, count: u64| [counter("a", a), took([0, count, 0])];
        assert_eq!(starts_at(20, &all(5, 3)), at(&[("a", "10"), ("took", "10")]));
        assert_eq!(starts_at(30, &all(5, 4)), at(&[("a", "10"), ("took", "10")]));
        let [a, b] = all(6, 1);
        assert_eq!(
            starts_at(40, &[a, b, counter("b", 1)]),
            at(&[("a", "10"), ("took", "30"), ("b", "30")])
        );
        assert_eq!(starts_at(50, &all(2, 2)), at(&[("a", "40"), ("took", "30")]));
        // The series disappears and returns.
        assert_eq!(starts_at(60, &[took([0, 2, 0])]), at(&[("took", "30")]));
        assert_eq!(starts_at(70, &all(9, 2)), at(&[("a", "60"), ("took", "30")]));
    }

    #[test]
    fn units_are_in_ucum() {
        for (name, expected) in [
            ("gristmill_job_duration_seconds", "s"),
            ("gristmill_store_bytes", "By"),
            ("gristmill_jobs_completed_total", "{job}"),
            ("gristmill_batch_items_total", "{item}"),
            ("gristmill_batches_total", "{batch}"),
            ("gristmill_http_requests_total", "{request}"),
            ("gristmill_telemetry_dropped_total", "{record}"),
            ("gristmill_workers", "{worker}"),
            ("gristmill_ready", "1"),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }
}
