//! Reports cut to the size of a request.

use gristmill_model::{Completed, Positions, Receipt, Report};

/// The approximate bytes of reports in one request. It is far below a server's limit, so that the head, whose size is
/// an estimate, fits, too.
pub(crate) const REQUEST_BYTES_TARGET: usize = 16 << 20;

/// The largest number of reports in one request. It is below the server's own limit.
const REPORTS_MAX: usize = 5_000;

/// The reports in as many parts as there are requests: at least one part, which may be empty. The parts keep the order.
/// A report that is too large is cut by positions. For each report of a part, `origins` has the index of its original
/// report.
pub(crate) struct Parts {
    pub parts: Vec<Vec<Report>>,
    pub origins: Vec<usize>,
}

pub(crate) fn split(reports: Vec<Report>, bytes_target: usize) -> Parts {
    let mut parts = vec![Vec::new()];
    let mut origins = Vec::new();
    let mut bytes = 0;
    let reported = if cfg!(debug_assertions) {
        jobs_in(&reports)
    } else {
        0
    };
    for (origin, report) in reports.into_iter().enumerate() {
        let mut pieces = vec![report];
        while let Some(mut piece) = pieces.pop() {
            let weight = piece.weight_bytes();
            if weight > bytes_target
                && let Some(second) = halve(&mut piece)
            {
                pieces.push(second);
                pieces.push(piece);
                continue;
            }
            let full = parts.last().is_none_or(|part| part.len() >= REPORTS_MAX);
            if bytes > 0 && (bytes + weight > bytes_target || full) {
                parts.push(Vec::new());
                bytes = 0;
            }
            bytes += weight;
            if let Some(part) = parts.last_mut() {
                part.push(piece);
            }
            origins.push(origin);
        }
    }
    assert_eq!(
        parts.iter().map(Vec::len).sum::<usize>(),
        origins.len(),
        "each report of a part has an origin"
    );
    assert!(origins.is_sorted(), "parts keep the order of the reports");
    debug_assert_eq!(
        parts.iter().map(|part| jobs_in(part)).sum::<u64>(),
        reported,
        "parts hold each reported job"
    );
    assert!(parts.iter().all(|part| part.len() <= REPORTS_MAX), "it fits");
    Parts { parts, origins }
}

/// The number of jobs in reports, for assertions.
fn jobs_in(reports: &[Report]) -> u64 {
    let jobs = reports.iter().map(|report| u64::from(report.positions().len()));
    jobs.sum()
}

/// One receipt for each original report.
pub(crate) fn merged(receipts: Vec<Receipt>, origins: &[usize], count: usize) -> Vec<Receipt> {
    assert_eq!(
        receipts.len(),
        origins.len(),
        "each report of a part has a receipt"
    );
    let mut merged = vec![Receipt::default(); count];
    for (receipt, origin) in receipts.into_iter().zip(origins) {
        let whole = &mut merged[*origin];
        whole.accepted = whole.accepted.union(&receipt.accepted);
        whole.refused = whole.refused.union(&receipt.refused);
        whole.dead = whole.dead.union(&receipt.dead);
        whole.failed = whole.failed.union(&receipt.failed);
    }
    debug_assert!(merged.iter().all(|one| one.accepted.is_disjoint(&one.refused)));
    merged
}

/// Removes and returns the upper half of a report's jobs. `None` for a report of one job.
fn halve(report: &mut Report) -> Option<Report> {
    let mut upper_positions = report.positions();
    let count = upper_positions.len();
    if count < 2 {
        return None;
    }
    let lower_positions = upper_positions.take_first(count / 2);
    let first_upper = upper_positions.first()?;
    let mut upper = Report::new(report.lease, report.batch, report.attempt);
    if let Some(completed) = report.completed.take() {
        let (lower_part, upper_part) = halve_completed(completed, &lower_positions);
        report.completed = lower_part;
        upper.completed = upper_part;
    }
    upper.failed = report
        .failed
        .extract_if(.., |failed| failed.position >= first_upper)
        .collect();
    upper.repeats = report.repeats;
    upper.earlier = report
        .earlier
        .extract_if(.., |earlier| earlier.position >= first_upper)
        .collect();
    upper.logs = report
        .logs
        .extract_if(.., |log| log.position >= first_upper)
        .collect();
    for suspended in std::mem::take(&mut report.suspended) {
        upper.suspended.extend(suspended.select(&upper_positions));
        report.suspended.extend(suspended.select(&lower_positions));
    }
    for siblings in std::mem::take(&mut report.siblings) {
        upper.siblings.extend(siblings.select(&upper_positions));
        report.siblings.extend(siblings.select(&lower_positions));
    }
    upper.released = report.released.difference(&lower_positions);
    report.released = report.released.intersection(&lower_positions);
    assert_eq!(
        (report.positions().len(), upper.positions().len()),
        (lower_positions.len(), upper_positions.len()),
        "the halves of a report have all of its {count} jobs"
    );
    assert!(
        lower_positions.last() < upper_positions.first(),
        "the halves of a report are disjoint"
    );
    debug_assert!(
        report
            .earlier
            .iter()
            .all(|earlier| earlier.position < first_upper)
    );
    debug_assert!(report.logs.iter().all(|log| log.position < first_upper));
    Some(upper)
}

fn halve_completed(completed: Completed, lower: &Positions) -> (Option<Completed>, Option<Completed>) {
    let Completed {
        mut positions,
        values,
        mut durations_us,
    } = completed;
    assert_eq!(durations_us.len(), positions.len() as usize);
    assert_eq!(values.count(), positions.len(), "each completed job has a value");
    let (count, below) = (positions.len(), positions.intersection(lower).len());
    let lower_positions = positions.take_first(below);
    let upper_durations_us = durations_us.split_off(below as usize);
    let part = |positions: Positions, indexes: Positions, durations_us| {
        (!positions.is_empty()).then(|| Completed {
            positions,
            values: values.select(&indexes),
            durations_us,
        })
    };
    (
        part(lower_positions, Positions::from(0..below), durations_us),
        part(positions, Positions::from(below..count), upper_durations_us),
    )
}

#[cfg(test)]
mod tests {
    use gristmill_model::{BatchId, FailedJob, JobError, JobLog, LeaseId, PackedBuilder};

    use super::*;

    fn report(batch: i64, positions: &str) -> Report {
        let positions: Positions = positions.parse().unwrap();
        let mut values = PackedBuilder::new();
        positions
            .iter()
            .for_each(|position| values.push_value(&position).unwrap());
        let mut report = Report::new(LeaseId(1), BatchId(batch), 1);
        report.logs = positions
            .iter()
            .map(|position| JobLog {
                position,
                text: "x".repeat(50),
            })
            .collect();
        report.completed = Some(Completed {
            durations_us: positions.iter().collect(),
            positions,
            values: values.finish(),
        });
        report.failed = [1_000, 2_000]
            .map(|position| FailedJob {
                position,
                error: JobError::new("E", "no"),
                duration_us: 0,
            })
            .to_vec();
        report.released = "3000-3004".parse().unwrap();
        report
    }

    #[test]
    fn parts_hold_every_report_once_in_order_and_under_the_target() {
        let reports = vec![report(1, "0-99,200"), report(2, "5"), report(3, "0-9")];
        let whole: Vec<Positions> = reports.iter().map(Report::positions).collect();
        let Parts { parts, origins } = split(reports, 1_500);
        assert!(parts.len() > 3);
        let pieces: Vec<&Report> = parts.iter().flatten().collect();
        assert_eq!(pieces.len(), origins.len());
        assert!(origins.is_sorted());
        let mut found = vec![Positions::new(); 3];
        for (piece, origin) in pieces.into_iter().zip(origins) {
            assert_eq!(piece.batch, BatchId(origin as i64 + 1));
            let positions = piece.positions();
            assert!(found[origin].is_disjoint(&positions));
            found[origin] = found[origin].union(&positions);
            assert!(piece.logs.iter().all(|log| positions.contains(log.position)));
            if let Some(completed) = &piece.completed {
                let values: Vec<u32> = completed
                    .values
                    .items()
                    .map(|item| item.parse().unwrap())
                    .collect();
                assert_eq!(values, completed.positions.iter().collect::<Vec<_>>());
                assert_eq!(completed.durations_us, values);
            }
        }
        assert_eq!(found, whole);
        assert!(
            parts
                .iter()
                .all(|part| part.iter().map(Report::weight_bytes).sum::<usize>() <= 1_500)
        );
    }

    #[test]
    fn an_empty_list_is_one_empty_part_and_a_single_large_job_stays_whole() {
        assert_eq!(split(Vec::new(), 10).parts, vec![Vec::new()]);
        let mut large = Report::new(LeaseId(1), BatchId(1), 1);
        large.logs = vec![JobLog {
            position: 0,
            text: "x".repeat(1_000),
        }];
        large.released = "0".parse().unwrap();
        assert_eq!(split(vec![large], 10).parts.len(), 1);
    }
}
