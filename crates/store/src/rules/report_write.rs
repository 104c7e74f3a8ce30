//! SQL statements that handlers write with their reports.
//!
//! A statement runs in the transaction of the report, once for each report and in a savepoint, with the data of all its
//! jobs that the lease still holds, as one JSON array.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::{Completed, FailedJob, JobError, Positions, Report};

use crate::rules::pack::indexes_of;

/// The errors of completed jobs whose statements or siblings failed, by position.
pub type FailedExtras = BTreeMap<u32, JobError>;

/// Makes the error of a job whose statements failed.
pub fn write_failed(reason: &str) -> JobError {
    JobError::new(
        "write",
        format!("a statement written with its report failed: {reason}"),
    )
}

/// The jobs among `accepted` that write data with a report.
pub fn writing(report: &Report, accepted: &Positions) -> Positions {
    let writes = report.writes.iter().map(|write| write.position);
    writes.filter(|position| accepted.contains(*position)).collect()
}

/// The statements of these jobs, each once with the data of all of them, packed as a JSON array in the order of jobs.
/// Statements are in the order of their first occurrence.
pub fn packed(report: &Report, jobs: &Positions) -> Vec<(Arc<str>, String)> {
    let mut statements: Vec<(Arc<str>, String)> = Vec::new();
    for write in report.writes.iter().filter(|write| jobs.contains(write.position)) {
        match statements.iter_mut().find(|(sql, _)| *sql == write.sql) {
            Some((_, items)) => {
                items.push(',');
                items.push_str(&write.item);
            }
            None => statements.push((write.sql.clone(), format!("[{}", write.item))),
        }
    }
    statements.iter_mut().for_each(|(_, items)| items.push(']'));
    statements
}

/// Makes the same report, in which these jobs have failed.
pub fn with_failures<'r>(report: &'r Report, failed: &FailedExtras) -> Cow<'r, Report> {
    let Some(completed) = report.completed.as_ref().filter(|_| !failed.is_empty()) else {
        return Cow::Borrowed(report);
    };
    let gone: Positions = failed.keys().copied().collect();
    assert!(
        completed.positions.contains_all(&gone),
        "only completed jobs fail by their statements"
    );
    let kept = completed.positions.difference(&gone);
    let indexes = indexes_of(&kept, &completed.positions);
    let duration_us: BTreeMap<u32, u32> = completed
        .positions
        .iter()
        .zip(completed.durations_us.iter().copied())
        .collect();
    let mut changed = report.clone();
    changed
        .failed
        .extend(failed.iter().map(|(position, error)| FailedJob {
            position: *position,
            error: error.clone(),
            duration_us: duration_us.get(position).copied().unwrap_or(0),
        }));
    changed.failed.sort_by_key(|failed| failed.position);
    changed.completed = (!kept.is_empty()).then(|| Completed {
        values: completed.values.select(&indexes),
        durations_us: kept.iter().map(|position| duration_us[&position]).collect(),
        positions: kept,
    });
    changed.writes.retain(|write| !gone.contains(write.position));
    let siblings = report.siblings.iter();
    changed.siblings = siblings
        .filter_map(|siblings| siblings.select(&siblings.positions.difference(&gone)))
        .collect();
    Cow::Owned(changed)
}

/// The requirement for a statement that is written with reports.
pub const ONE_PARAMETER: &str =
    "a statement has one parameter, which takes the data of all jobs of a report as a JSON array";

#[cfg(test)]
mod tests {
    use gristmill_model::{BatchId, LeaseId, PackedArray, ReportWrite};

    use super::*;

    fn write(position: u32, sql: &str, item: &str) -> ReportWrite {
        ReportWrite {
            position,
            sql: sql.into(),
            item: item.to_owned(),
        }
    }

    #[test]
    fn statements_are_packed_and_failed_jobs_taken_out() {
        let mut report = Report::new(LeaseId(1), BatchId(1), 1);
        report.completed = Some(Completed {
            positions: "3-5".parse().unwrap(),
            values: PackedArray::parse("[30,40,50]").unwrap(),
            durations_us: vec![3, 4, 5],
        });
        report.writes = vec![
            write(3, "a", "1"),
            write(3, "b", "{\"x\":1}"),
            write(4, "a", "2"),
            write(5, "a", "3"),
        ];
        let jobs = writing(&report, &"0-4".parse().unwrap());
        assert_eq!(jobs.to_string(), "3-4");
        let statements = packed(&report, &jobs);
        assert_eq!(statements[0], ("a".into(), "[1,2]".to_owned()));
        assert_eq!(statements[1], ("b".into(), "[{\"x\":1}]".to_owned()));
        assert!(matches!(
            with_failures(&report, &FailedExtras::new()),
            Cow::Borrowed(_)
        ));
        let changed = with_failures(&report, &FailedExtras::from([(4, write_failed("no"))]));
        let completed = changed.completed.as_ref().unwrap();
        assert_eq!(completed.positions.to_string(), "3,5");
        assert_eq!(
            (completed.values.as_str(), &*completed.durations_us),
            ("[30\n,50]", &[3, 5][..])
        );
        assert_eq!(
            (changed.failed[0].position, changed.failed[0].duration_us),
            (4, 4)
        );
    }
}
