//! The server's metrics as OTLP. They are made from Prometheus's text format
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>), so both formats always show the same values.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use serde_json::{Value, json};

use crate::limits::METRICS_MAX;
use crate::otlp::{attribute, text};
use crate::settings::Signal;
use crate::shared::Shared;

/// The aggregation temporality of all of Prometheus's counters: sums since the start.
const CUMULATIVE: u8 = 2;

/// The numbers of lost records, as an additional metric.
pub fn dropped(shared: &Shared) -> String {
    let name = "gristmill_telemetry_dropped_total";
    let mut lines =
        format!("# HELP {name} Records for OpenTelemetry that no receiver took\n# TYPE {name} counter\n");
    for signal in Signal::ALL {
        // A write to a string never fails.
        let _ = writeln!(
            lines,
            "{name}{{signal=\"{}\"}} {}",
            signal.name(),
            shared.queue(signal).dropped()
        );
    }
    lines
}

/// A metric family that is being read.
#[derive(Debug, Default)]
struct Family<'t> {
    name: &'t str,
    help: &'t str,
    kind: &'t str,
    rows: Vec<Row<'t>>,
}

/// One line with a value.
#[derive(Debug)]
struct Row<'t> {
    name: &'t str,
    labels: Vec<(&'t str, String)>,
    value: f64,
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

/// The metrics as JSON with commas between them, and their number. Unreadable lines are left out, and so are families
/// that are not counters, gauges or histograms.
pub fn encode(exposition: &str, now_ns: u64, starts: &mut Starts) -> (String, u64) {
    let families = families(exposition);
    let metrics = families.iter().filter_map(|family| family.encode(now_ns, starts));
    let encoded: Vec<String> = metrics
        .take(METRICS_MAX)
        .map(|metric| metric.to_string())
        .collect();
    starts.exported(now_ns);
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
    // A timestamp may follow the value.
    let value = rest.trim_start().split(' ').next()?.parse().ok()?;
    Some(Row { name, labels, value })
}

/// The value of a label up to its closing quote, and the rest of the text.
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
    fn encode(&self, now_ns: u64, starts: &mut Starts) -> Option<Value> {
        let time = now_ns.to_string();
        let rows = || self.rows.iter().filter(|row| row.value.is_finite());
        let point = |row: &Row<'_>| json!({"attributes": attributes(&row.labels), "timeUnixNano": time, "asDouble": row.value});
        let (kind, data) = match self.kind {
            "counter" => {
                let points = rows().map(|row| {
                    let mut point = point(row);
                    point["startTimeUnixNano"] = starts.of(row.name, &row.labels, row.value).into();
                    point
                });
                let points: Vec<Value> = points.collect();
                (
                    "sum",
                    json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true}),
                )
            }
            "gauge" => (
                "gauge",
                json!({"dataPoints": rows().map(point).collect::<Vec<Value>>()}),
            ),
            "histogram" => (
                "histogram",
                json!({"dataPoints": self.histograms(&time, starts), "aggregationTemporality": CUMULATIVE}),
            ),
            _ => return None,
        };
        let is_empty = data["dataPoints"].as_array().is_none_or(Vec::is_empty);
        (!is_empty).then(
            || json!({"name": self.name, "description": self.help, "unit": unit(self.name), kind: data}),
        )
    }

    /// One point for each set of labels without `le`. A bucket of Prometheus counts all values up to its bound. A
    /// bucket of OTLP counts only the values above the bound before.
    fn histograms(&self, time: &str, starts: &mut Starts) -> Vec<Value> {
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
                "startTimeUnixNano": starts.of(self.name, &labels, histogram.count as f64),
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
    /// Each bound, and the number of values up to it.
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
        let (records, count) = encode(exposition, 42, &mut Starts::new(41));
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
        let mut starts_at = |now_ns, exposition: &str| -> Vec<(String, String)> {
            let (records, _) = encode(exposition, now_ns, &mut starts);
            let metrics: Vec<Value> = serde_json::from_str(&format!("[{records}]")).unwrap();
            let point = |metric: &Value| {
                let data = metric.get("sum").or(metric.get("histogram")).unwrap();
                let start = data["dataPoints"][0]["startTimeUnixNano"].as_str().unwrap();
                (metric["name"].as_str().unwrap().to_owned(), start.to_owned())
            };
            metrics.iter().map(point).collect()
        };
        let counter = |name: &str, value: u32| format!("# TYPE {name} counter\n{name} {value}\n");
        let took = |count: u32| {
            format!(
                "# TYPE took histogram\ntook_bucket{{le=\"+Inf\"}} {count}\ntook_sum 1\ntook_count {count}\n"
            )
        };
        let at = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = |(name, start): &(&str, &str)| ((*name).to_owned(), (*start).to_owned());
            pairs.iter().map(owned).collect()
        };
        let all = |a: u32, count: u32| counter("a", a) + &took(count);
        assert_eq!(starts_at(20, &all(5, 3)), at(&[("a", "10"), ("took", "10")]));
        assert_eq!(starts_at(30, &all(5, 4)), at(&[("a", "10"), ("took", "10")]));
        assert_eq!(
            starts_at(40, &(all(6, 1) + &counter("b", 1))),
            at(&[("a", "10"), ("took", "30"), ("b", "30")])
        );
        assert_eq!(starts_at(50, &all(2, 2)), at(&[("a", "40"), ("took", "30")]));
        // The series disappears and returns.
        assert_eq!(starts_at(60, &took(2)), at(&[("took", "30")]));
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
