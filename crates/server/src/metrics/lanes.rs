//! The metrics of jobs by kind and queue. The store keeps the counts.

use gristmill_model::Timestamp;
use gristmill_protocol::metric::{MetricFamily, MetricKind, MetricRow, MetricValue};
use gristmill_store::LaneMetrics;
use gristmill_store::metrics::DURATION_BOUNDS_SECONDS;

use crate::limits::METRIC_LANES_MAX;

/// The value of both labels of the row of all kinds and queues beyond the limit.
const OTHER: &str = "other";

/// The prefix of the queues of `gristmill run`.
const RUN_QUEUE_PREFIX: &str = "run:";

const WAITING: &str = "gristmill_jobs_waiting";
const DUE: &str = "gristmill_jobs_due";
const RUNNING: &str = "gristmill_jobs_running";
const OLDEST_DUE: &str = "gristmill_jobs_oldest_due_seconds";
const COMPLETED: &str = "gristmill_jobs_completed_total";
const FAILED: &str = "gristmill_jobs_failed_total";
const DURATION: &str = "gristmill_job_duration_seconds";

/// The lanes with a row of their own, and one row for all others.
fn bounded(lanes: &[LaneMetrics]) -> Vec<LaneMetrics> {
    let mut lanes = lanes.to_vec();
    // Each run has its own queue, and nobody asks about it after the run's end.
    lanes.sort_by_key(|lane| lane.queue.starts_with(RUN_QUEUE_PREFIX) && lane.waiting + lane.running == 0);
    let (named, others) = lanes.split_at(lanes.len().min(METRIC_LANES_MAX));
    let mut rows = named.to_vec();
    if !others.is_empty() {
        let mut other = LaneMetrics {
            kind: OTHER.into(),
            queue: OTHER.into(),
            ..LaneMetrics::default()
        };
        others.iter().for_each(|lane| other.add(lane));
        match rows
            .iter_mut()
            .find(|row| *row.kind == *OTHER && *row.queue == *OTHER)
        {
            Some(row) => row.add(&other),
            None => rows.push(other),
        }
    }
    rows
}

/// The families of all lanes. Each is there even while there are no jobs, so that no rule names a missing metric.
pub fn families(lanes: &[LaneMetrics], now: Timestamp) -> Vec<MetricFamily> {
    let lanes = bounded(lanes);
    let labels =
        |lane: &LaneMetrics| vec![("kind", lane.kind.to_string()), ("queue", lane.queue.to_string())];
    let counts = |name, help, kind, count: fn(&LaneMetrics) -> u64| {
        let rows = lanes.iter().map(|lane| (labels(lane), count(lane)));
        MetricFamily::counts(name, help, kind, rows)
    };
    let rows = |value: &dyn Fn(&LaneMetrics) -> MetricValue| {
        let row = |lane| MetricRow {
            labels: labels(lane),
            value: value(lane),
        };
        lanes.iter().map(row).collect()
    };
    #[allow(clippy::cast_precision_loss, reason = "both formats know only such numbers")]
    let (age, durations) = (
        rows(&|lane| {
            let age_ms = lane.oldest_due_at.map_or(0, |since| now.since_ms(since).max(0));
            MetricValue::Number(age_ms as f64 / 1e3)
        }),
        rows(&|lane| MetricValue::Histogram {
            bounds: &DURATION_BOUNDS_SECONDS,
            counts: lane.ended.duration_counts.to_vec(),
            sum: lane.ended.duration_sum_us as f64 / 1e6,
        }),
    );
    vec![
        counts(
            WAITING,
            "Jobs that wait: due, scheduled, blocked or paused",
            MetricKind::Gauge,
            |lane| lane.waiting,
        ),
        counts(
            DUE,
            "Jobs that a worker could claim now",
            MetricKind::Gauge,
            |lane| lane.due,
        ),
        counts(RUNNING, "Jobs that workers hold", MetricKind::Gauge, |lane| {
            lane.running
        }),
        MetricFamily {
            name: OLDEST_DUE,
            help: "How long the oldest due job has been due",
            kind: MetricKind::Gauge,
            rows: age,
        },
        counts(
            COMPLETED,
            "Jobs that completed, since the store was made",
            MetricKind::Counter,
            |lane| lane.ended.completed,
        ),
        counts(
            FAILED,
            "Jobs that were dead after their last attempt, since the store was made",
            MetricKind::Counter,
            |lane| lane.ended.dead,
        ),
        MetricFamily {
            name: DURATION,
            help: "How long the last attempts of completed jobs took",
            kind: MetricKind::Histogram,
            rows: durations,
        },
    ]
}

#[cfg(test)]
mod tests {
    use gristmill_protocol::metric::prometheus_text;

    use super::*;

    fn render(lanes: &[LaneMetrics], now: Timestamp) -> String {
        prometheus_text(&families(lanes, now))
    }

    fn lane(kind: &str, completed: u64) -> LaneMetrics {
        let mut lane = LaneMetrics {
            kind: kind.into(),
            queue: "default".into(),
            waiting: 1,
            ..LaneMetrics::default()
        };
        (0..completed).for_each(|_| lane.ended.complete(2_000_000));
        lane
    }

    /// The lines that are not comments, as name, labels and value.
    fn samples(text: &str) -> Vec<(&str, &str, f64)> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = lines.map(|line| {
            let (name, rest) = line.split_once('{').unwrap();
            let (labels, value) = rest.rsplit_once("} ").unwrap();
            (name, labels, value.parse().unwrap())
        });
        sample.collect()
    }

    #[test]
    fn every_family_is_declared_once_even_without_jobs() {
        let text = render(&[], Timestamp(0));
        assert!(samples(&text).is_empty());
        let full = render(&[lane("a", 1), lane("b", 0)], Timestamp(0));
        for name in [WAITING, DUE, RUNNING, OLDEST_DUE, COMPLETED, FAILED, DURATION] {
            for text in [&text, &full] {
                assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
                assert_eq!(text.matches(&format!("# HELP {name} ")).count(), 1, "{name}");
            }
        }
    }

    #[test]
    fn histograms_grow_up_to_their_count() {
        let mut lane = lane("a", 2);
        lane.ended.complete(500);
        lane.ended.complete(u32::MAX);
        let text = render(&[lane], Timestamp(0));
        let all = samples(&text);
        let of = |suffix: &str| -> Vec<f64> {
            let name = format!("{DURATION}{suffix}");
            all.iter()
                .filter(|sample| sample.0 == name)
                .map(|sample| sample.2)
                .collect()
        };
        let buckets = of("_bucket");
        assert_eq!(buckets.len(), DURATION_BOUNDS_SECONDS.len() + 1);
        assert!(buckets.is_sorted());
        assert_eq!((buckets[0], buckets[7], buckets[14]), (1.0, 3.0, 4.0));
        assert_eq!(of("_count"), [4.0]);
        assert_eq!(of("_sum"), [4_298.967_795]);
        assert!(all.iter().any(|sample| sample.1.ends_with("le=\"+Inf\"")));
    }

    #[test]
    fn rows_are_bounded_and_lose_no_job() {
        let lanes: Vec<LaneMetrics> = (0..METRIC_LANES_MAX + 3)
            .map(|n| lane(&format!("k{n}"), 1))
            .collect();
        let text = render(&lanes, Timestamp(0));
        let all = samples(&text);
        let completed: Vec<_> = all.iter().filter(|sample| sample.0 == COMPLETED).collect();
        assert_eq!(completed.len(), METRIC_LANES_MAX + 1);
        let other = completed.last().unwrap();
        assert_eq!((other.1, other.2), ("kind=\"other\",queue=\"other\"", 3.0));
    }

    #[test]
    fn ended_runs_leave_the_rows_to_others() {
        let mut lanes: Vec<LaneMetrics> = (0..METRIC_LANES_MAX + 3)
            .map(|n| LaneMetrics {
                queue: format!("run:{n}").as_str().into(),
                waiting: 0,
                ..lane("a", 1)
            })
            .collect();
        lanes[5].running = 1;
        lanes.push(lane("late", 7));
        let text = render(&lanes, Timestamp(0));
        let completed: Vec<_> = samples(&text)
            .into_iter()
            .filter(|sample| sample.0 == COMPLETED)
            .collect();
        assert_eq!(completed[0].1, "kind=\"a\",queue=\"run:5\"");
        assert_eq!(
            (completed[1].1, completed[1].2),
            ("kind=\"late\",queue=\"default\"", 7.0)
        );
        assert_eq!(completed.len(), METRIC_LANES_MAX + 1);
    }

    #[test]
    fn labels_are_escaped() {
        let text = render(&[lane("a\"b\\c", 0)], Timestamp(0));
        assert!(
            text.contains(r#"gristmill_jobs_waiting{kind="a\"b\\c",queue="default"} 1"#),
            "{text}"
        );
    }

    #[test]
    fn the_oldest_due_job_shows_its_age() {
        let mut lane = lane("a", 0);
        lane.oldest_due_at = Some(Timestamp(1_000));
        let text = render(&[lane], Timestamp(3_500));
        assert!(
            text.contains("gristmill_jobs_oldest_due_seconds{kind=\"a\",queue=\"default\"} 2.5"),
            "{text}"
        );
    }
}
