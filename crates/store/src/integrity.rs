//! Corruption: the checksums of stored rows, and the findings of a check.
//!
//! A row with packed text has a checksum of its columns. The store computes it when it writes the row, and compares it
//! when it reads the row. The checksum is a CRC-32. It detects every flip of up to three bits in a short row, and all
//! but one in four thousand million of other changes. It protects against broken disks and memory, and not against
//! people.

use crc32fast::Hasher;
use gristmill_model::{BatchId, Positions};
use serde::Serialize;

/// The reason for which the jobs of a damaged batch are paused.
pub const DAMAGED: &str = "damaged";

/// Maximum findings of one kind in a page of a check. One finding stands for the others.
pub const FINDINGS_PER_KIND_MAX: u32 = 100;

/// Maximum batches that a page of a check reads.
pub const CHECKED_BATCHES_PER_PAGE_MAX: u32 = 256;

/// Bytes of payloads after which a page of a check ends.
pub const CHECKED_BYTES_PER_PAGE_TARGET: u64 = 8 << 20;

/// The checksum of the columns of a row, while it is computed.
#[derive(Debug, Default)]
struct RowSum(Hasher);

impl RowSum {
    fn number(&mut self, number: i64) -> &mut Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    /// Adds a text. Its length comes first, so that the end of one text never counts as the beginning of the next.
    fn text(&mut self, text: &str) -> &mut Self {
        self.number(i64::try_from(text.len()).unwrap_or(i64::MAX));
        self.0.update(text.as_bytes());
        self
    }

    /// Adds a text, or a length that no text has.
    fn optional(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(text),
            None => self.number(-1),
        }
    }

    fn finish(&mut self) -> i64 {
        i64::from(std::mem::take(&mut self.0).finalize())
    }
}

/// The columns in the checksum of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchColumns<'a> {
    /// The id; 0 if the database assigns it with the row.
    pub id: i64,
    /// Its run.
    pub run_id: Option<i64>,
    /// Its lane.
    pub lane_id: i64,
    /// Number of jobs.
    pub count: u32,
    /// Its priority.
    pub priority: i64,
    /// The time of the submit.
    pub submitted_at: i64,
    /// The time from which it can be claimed.
    pub run_at: i64,
    /// Its options.
    pub options: Option<&'a str>,
    /// Its payloads.
    pub payloads: &'a str,
}

impl BatchColumns<'_> {
    /// Computes the checksum.
    pub fn sum(&self) -> i64 {
        RowSum::default()
            .number(self.id)
            .number(self.run_id.unwrap_or(0))
            .number(self.lane_id)
            .number(i64::from(self.count))
            .number(self.priority)
            .number(self.submitted_at)
            .number(self.run_at)
            .optional(self.options)
            .text(self.payloads)
            .finish()
    }
}

/// The columns in the checksum of a report of completed jobs.
#[derive(Debug, Clone, Copy)]
pub struct ReportColumns<'a> {
    /// The batch of its jobs.
    pub batch: BatchId,
    /// The jobs.
    pub positions: &'a Positions,
    /// The attempt that completed.
    pub attempt: u32,
    /// The time of the end.
    pub finished_at: i64,
    /// The worker's name.
    pub worker: Option<&'a str>,
    /// The durations of the jobs.
    pub durations: Option<&'a str>,
    /// The logs of the jobs.
    pub logs: Option<&'a str>,
    /// Their values.
    pub values: &'a str,
}

impl ReportColumns<'_> {
    /// Computes the checksum.
    pub fn sum(&self) -> i64 {
        RowSum::default()
            .number(self.batch.0)
            .text(&self.positions.to_string())
            .number(i64::from(self.attempt))
            .number(self.finished_at)
            .optional(self.worker)
            .optional(self.durations)
            .optional(self.logs)
            .text(self.values)
            .finish()
    }
}

/// The checksum of the keys of a batch.
pub fn keys_sum(batch: BatchId, scope: i64, keys: &str) -> i64 {
    RowSum::default()
        .number(batch.0)
        .number(scope)
        .text(keys)
        .finish()
}

/// The checksum of a lane: of its queue, kind and group.
pub fn lane_sum(names: [&str; 3]) -> i64 {
    let mut sum = RowSum::default();
    for name in names {
        sum.text(name);
    }
    sum.finish()
}

/// The checksum of a value that is kept for later jobs.
pub fn cached_sum(digest: &str, value: &str) -> i64 {
    RowSum::default().text(digest).text(value).finish()
}

/// The checksum of a failed attempt.
pub fn failure_sum(batch: BatchId, position: u32, attempt: u32, error: &str, log: Option<&str>) -> i64 {
    RowSum::default()
        .number(batch.0)
        .number(i64::from(position))
        .number(i64::from(attempt))
        .text(error)
        .optional(log)
        .finish()
}

/// The place at which a check continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckPlace {
    /// The database's own checks.
    #[default]
    File,
    /// The batches after this one, and their rows.
    Batches(BatchId),
    /// The rows that belong to no batch, or to a batch that does not exist.
    Rest,
}

/// One part of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckPage {
    /// The damage that was found.
    pub findings: Vec<Finding>,
    /// Number of checked batches.
    pub batches: u64,
    /// Number of all batches; 0 if this part does not count them.
    pub batches_in_all: u64,
    /// The place of the next part; `None` at the end.
    pub next: Option<CheckPlace>,
}

/// A piece of damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The batch to which the rows belong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The table.
    pub table: String,
    /// A description of the damage.
    pub what: String,
}

impl Finding {
    /// Makes a finding in rows of a batch.
    pub fn of(batch: BatchId, table: &str, what: impl Into<String>) -> Finding {
        Finding {
            batch: Some(batch),
            table: table.to_owned(),
            what: what.into(),
        }
    }

    /// Makes a finding outside of batches.
    pub fn beside(table: &str, what: impl Into<String>) -> Finding {
        Finding {
            batch: None,
            table: table.to_owned(),
            what: what.into(),
        }
    }
}

/// Compares the jobs of a batch with its rows, which must hold each job exactly once. `rows` are tables and positions.
pub fn check_places(batch: BatchId, count: u32, rows: &[(&'static str, Positions)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut all = Positions::new();
    for (table, positions) in rows {
        let twice = all.intersection(positions);
        if !twice.is_empty() {
            let what = format!("jobs {twice} stand in two rows");
            findings.push(Finding::of(batch, table, what));
        }
        all = all.union(positions);
    }
    let jobs = Positions::all(count);
    let (missing, beyond) = (jobs.difference(&all), all.difference(&jobs));
    if !missing.is_empty() {
        let what = format!("jobs {missing} of {count} wait nowhere, run nowhere and have no outcome");
        findings.push(Finding::of(batch, "batch", what));
    }
    if !beyond.is_empty() {
        let what = format!("there are rows of jobs {beyond}, and it has {count} jobs");
        findings.push(Finding::of(batch, "batch", what));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: BatchColumns<'_> = BatchColumns {
        id: 7,
        run_id: None,
        lane_id: 1,
        count: 2,
        priority: 0,
        submitted_at: 1_000,
        run_at: 1_000,
        options: Some("{}"),
        payloads: "[1\n,2]",
    };

    #[test]
    fn each_column_changes_the_checksum() {
        let others = [
            BatchColumns { id: 8, ..BATCH },
            BatchColumns {
                run_id: Some(1),
                ..BATCH
            },
            BatchColumns { lane_id: 2, ..BATCH },
            BatchColumns { count: 3, ..BATCH },
            BatchColumns { priority: 1, ..BATCH },
            BatchColumns {
                submitted_at: 1_001,
                ..BATCH
            },
            BatchColumns {
                run_at: 1_001,
                ..BATCH
            },
            BatchColumns {
                options: None,
                ..BATCH
            },
            BatchColumns {
                options: Some(""),
                payloads: "{}[1\n,2]",
                ..BATCH
            },
            BatchColumns {
                payloads: "[1\n,3]",
                ..BATCH
            },
        ];
        for other in others {
            assert_ne!(other.sum(), BATCH.sum(), "{other:?}");
        }
        // Stores contain this sum, so it may not change. It is from Python: zlib.crc32 of the same bytes.
        assert_eq!(BATCH.sum(), 224_503_807);
    }

    #[test]
    fn each_job_belongs_to_one_row() {
        let positions = |text: &str| text.parse::<Positions>().unwrap();
        let whole = [("slice", positions("0-3")), ("report", positions("4-9"))];
        assert_eq!(check_places(BatchId(1), 10, &whole), []);
        let wrong = [("slice", positions("0-4")), ("report", positions("4-8,12"))];
        let findings = check_places(BatchId(1), 10, &wrong);
        let told: Vec<&str> = findings.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(
            told,
            [
                "jobs 4 stand in two rows",
                "jobs 9 of 10 wait nowhere, run nowhere and have no outcome",
                "there are rows of jobs 12, and it has 10 jobs"
            ]
        );
    }
}
