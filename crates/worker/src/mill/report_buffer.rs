//! The outcomes that wait for the next exchange. They are gathered into as few reports as possible.

use std::collections::BTreeMap;

use gristmill_model::{
    BatchId, Completed, EarlierFailure, LeaseId, PackedArray, Positions, Report, ReportWrite, Siblings,
    Suspended,
};

use crate::handler::Outcomes;

/// Gathers outcomes by lease, batch, attempt and number of repeats.
#[derive(Debug, Default)]
pub struct ReportBuffer {
    parts: BTreeMap<(LeaseId, BatchId, u32, u32), Gathered>,
    weight_bytes: usize,
}

#[derive(Debug)]
struct Gathered {
    completed: Vec<Completed>,
    rest: Report,
}

impl ReportBuffer {
    /// Reports whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The approximate number of waiting bytes.
    pub fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Adds outcomes of one lease, batch and attempt with this number of repeats.
    pub fn add(&mut self, lease: LeaseId, batch: BatchId, attempt: u32, repeats: u32, outcomes: Outcomes) {
        let gathered = self
            .parts
            .entry((lease, batch, attempt, repeats))
            .or_insert_with(|| Gathered {
                completed: Vec::new(),
                rest: Report {
                    repeats,
                    ..Report::new(lease, batch, attempt)
                },
            });
        debug_assert!(
            gathered
                .positions()
                .is_disjoint(&outcomes.positions().difference(&outcomes.returned)),
            "a job is reported once under its lease and attempt"
        );
        let Outcomes {
            completed,
            failed,
            released,
            returned: _,
            suspended,
            suspended_us: _,
            siblings,
            logs,
            earlier,
            writes,
        } = outcomes;
        if let Some(completed) = completed.filter(|completed| !completed.positions.is_empty()) {
            self.weight_bytes += completed.values.as_str().len() + 4 * completed.durations_us.len();
            gathered.completed.push(completed);
        }
        self.weight_bytes += failed
            .iter()
            .map(|failed| 100 + failed.error.message.len())
            .sum::<usize>();
        self.weight_bytes += logs.iter().map(|log| log.text.len()).sum::<usize>();
        self.weight_bytes += earlier.iter().map(EarlierFailure::weight_bytes).sum::<usize>();
        gathered.rest.failed.extend(failed);
        self.weight_bytes += writes.iter().map(ReportWrite::weight_bytes).sum::<usize>();
        gathered.rest.earlier.extend(earlier);
        gathered.rest.writes.extend(writes);
        gathered.rest.released = gathered.rest.released.union(&released);
        self.weight_bytes += suspended.iter().map(Suspended::weight_bytes).sum::<usize>();
        gathered.rest.suspended.extend(suspended);
        self.weight_bytes += siblings.iter().map(Siblings::weight_bytes).sum::<usize>();
        gathered.rest.siblings.extend(siblings);
        gathered.rest.logs.extend(logs);
    }

    /// Takes all outcomes as reports.
    pub fn take(&mut self) -> Vec<Report> {
        assert!(!self.parts.is_empty() || self.weight_bytes == 0, "it is empty");
        self.weight_bytes = 0;
        std::mem::take(&mut self.parts)
            .into_values()
            .flat_map(Gathered::into_reports)
            .collect()
    }
}

impl Gathered {
    /// The positions of all gathered jobs.
    fn positions(&self) -> Positions {
        let completed = self.completed.iter();
        completed.fold(self.rest.positions(), |all, part| all.union(&part.positions))
    }

    /// Makes one report if the completed parts follow one another. Makes a further report for each part that lies
    /// between the positions of another, because values are stored in the order of the positions.
    fn into_reports(mut self) -> Vec<Report> {
        let gathered = self.positions();
        self.completed.sort_by_key(|part| part.positions.first());
        let mut runs: Vec<Vec<Completed>> = Vec::new();
        for part in self.completed {
            let place = runs.iter_mut().find(|run| {
                run.last()
                    .is_some_and(|previous| previous.positions.last() < part.positions.first())
            });
            match place {
                Some(run) => run.push(part),
                None => runs.push(vec![part]),
            }
        }
        let Report {
            lease,
            batch,
            attempt,
            repeats,
            ..
        } = self.rest;
        self.rest.suspended = Suspended::pack(std::mem::take(&mut self.rest.suspended));
        self.rest.failed.sort_by_key(|failed| failed.position);
        self.rest
            .earlier
            .sort_by_key(|earlier| (earlier.position, earlier.attempt));
        self.rest.logs.sort_by_key(|log| log.position);
        let siblings = Siblings::pack(std::mem::take(&mut self.rest.siblings));
        let mut runs = runs.into_iter().map(joined);
        self.rest.completed = runs.next();
        if let Some(completed) = &self.rest.completed {
            self.rest.siblings = siblings_of(&siblings, completed);
        }
        let mut reports = vec![self.rest];
        for completed in runs {
            let mut report = Report {
                repeats,
                ..Report::new(lease, batch, attempt)
            };
            // Logs, earlier failures and statements belong to the report of their jobs.
            report.logs = reports[0]
                .logs
                .extract_if(.., |log| completed.positions.contains(log.position))
                .collect();
            report.earlier = reports[0]
                .earlier
                .extract_if(.., |earlier| completed.positions.contains(earlier.position))
                .collect();
            report.writes = reports[0]
                .writes
                .extract_if(.., |write| completed.positions.contains(write.position))
                .collect();
            report.siblings = siblings_of(&siblings, &completed);
            report.completed = Some(completed);
            reports.push(report);
        }
        debug_assert_eq!(
            reports.iter().map(|report| report.positions().len()).sum::<u32>(),
            gathered.len(),
            "each gathered job is in one report"
        );
        let completes = |report: &Report, position| {
            report
                .completed
                .as_ref()
                .is_some_and(|part| part.positions.contains(position))
        };
        debug_assert!(reports.iter().all(|report| {
            report
                .writes
                .iter()
                .all(|write| completes(report, write.position))
        }));
        debug_assert!(
            reports
                .iter()
                .all(|report| report.logs.is_sorted_by_key(|log| log.position))
        );
        reports
    }
}

fn siblings_of(all: &[Siblings], completed: &Completed) -> Vec<Siblings> {
    let own = all
        .iter()
        .filter_map(|siblings| siblings.select(&completed.positions));
    own.collect()
}

fn joined(mut parts: Vec<Completed>) -> Completed {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let values = PackedArray::concat(parts.iter().map(|part| &part.values));
    let mut parts = parts.into_iter();
    let mut whole = parts.next().expect("a run has parts");
    for part in parts {
        assert!(
            whole.positions.last() < part.positions.first(),
            "the parts of a run follow one another"
        );
        whole.positions = whole.positions.union(&part.positions);
        whole.durations_us.extend(part.durations_us);
    }
    assert_eq!(values.count(), whole.positions.len(), "each job has its value");
    assert_eq!(whole.durations_us.len(), whole.positions.len() as usize);
    whole.values = values;
    whole
}

#[cfg(test)]
mod tests {
    use gristmill_model::{FailedJob, JobError, JobLog, Positions};

    use super::*;

    fn completed(positions: &str) -> Outcomes {
        let positions: Positions = positions.parse().unwrap();
        let items: Vec<String> = positions.iter().map(|position| position.to_string()).collect();
        let completed = Completed {
            values: PackedArray::parse(&format!("[{}]", items.join(","))).unwrap(),
            durations_us: positions.iter().collect(),
            positions,
        };
        Outcomes {
            completed: Some(completed),
            ..Outcomes::default()
        }
    }

    fn check(reports: &[Report]) {
        for completed in reports.iter().filter_map(|report| report.completed.as_ref()) {
            let positions: Vec<u32> = completed.positions.iter().collect();
            assert_eq!(completed.durations_us, positions);
            let values: Vec<u32> = completed
                .values
                .items()
                .map(|item| item.parse().unwrap())
                .collect();
            assert_eq!(values, positions);
        }
    }

    #[test]
    fn consecutive_parts_become_one_report() {
        let mut buffer = ReportBuffer::default();
        for part in ["4-5", "0-1", "2,3", "9"] {
            buffer.add(LeaseId(1), BatchId(2), 1, 0, completed(part));
        }
        assert!(buffer.weight_bytes() > 0);
        let reports = buffer.take();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].positions().to_string(), "0-5,9");
        check(&reports);
        assert!(buffer.is_empty() && buffer.weight_bytes() == 0);
    }

    #[test]
    fn interleaved_parts_stay_apart_with_their_logs() {
        let mut buffer = ReportBuffer::default();
        let mut odd = completed("1,3,5");
        odd.logs = vec![JobLog {
            position: 3,
            text: "three".to_owned(),
        }];
        odd.failed = vec![FailedJob {
            position: 7,
            error: JobError::new("E", "no"),
            duration_us: 1,
        }];
        buffer.add(LeaseId(1), BatchId(2), 1, 0, odd);
        buffer.add(LeaseId(1), BatchId(2), 1, 0, completed("0,2,4"));
        buffer.add(LeaseId(1), BatchId(3), 1, 0, completed("0"));
        let reports = buffer.take();
        assert_eq!(reports.len(), 3);
        check(&reports);
        let logged = reports.iter().find(|report| !report.logs.is_empty()).unwrap();
        assert!(logged.positions().contains(3));
        assert_eq!(reports.iter().map(|report| report.failed.len()).sum::<usize>(), 1);
    }
}
