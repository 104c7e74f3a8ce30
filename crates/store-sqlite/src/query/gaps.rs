//! The batches that have to be read for a history.
//!
//! A report of many jobs has a row in `report_durations` with all that a history needs, and dozens of these rows share a
//! page. If the rows of a batch have as many jobs as the batch, they are of all its reports, and the batch is *covered*: a
//! query that walks through the rows need not read the batch and its reports, each of which fills a page. All other batches
//! lie in gaps between covered ones.

use crate::columns::POSITION_BITS;
use crate::limits::GAPS_PER_STATEMENT;

/// The batches in gaps, `b`. The first parameter is the ranges, in JSON.
pub(super) const BATCHES_IN_GAPS: &str =
    "json_each(?1) g CROSS JOIN batch b ON b.id >= (g.value ->> 0) AND b.id < (g.value ->> 1)";

/// The reports in gaps, `r`, in the same way.
pub(super) const REPORTS_IN_GAPS: &str =
    "json_each(?1) g CROSS JOIN report r ON r.id >= (g.value ->> 0) << 14 AND r.id < (g.value ->> 1) << 14";
const _: () = assert!(POSITION_BITS == 14);

/// Above all ids of batches.
const END: i64 = i64::MAX >> POSITION_BITS;

/// The rows of one batch so far.
#[derive(Debug, Clone, Copy)]
struct Rows {
    batch: i64,
    rows: u64,
    jobs: u64,
    batch_jobs: u64,
}

/// Finds the gaps while rows of `report_durations` pass by, in the order of their ids.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    passing: Option<Rows>,
    /// The id after the last covered batch.
    next: i64,
    /// The rows of covered batches.
    covering: u64,
    ranges: Vec<[i64; 2]>,
}

impl Gaps {
    /// Passes a row with this id, jobs, and jobs of its batch. Returns the gaps so far once there are many.
    pub fn pass(&mut self, id: i64, jobs: u32, batch_jobs: u32) -> Option<String> {
        let batch = id >> POSITION_BITS;
        match &mut self.passing {
            Some(passing) if passing.batch == batch => {
                passing.rows += 1;
                passing.jobs += u64::from(jobs);
                None
            }
            _ => {
                self.finish_batch();
                self.passing = Some(Rows {
                    batch,
                    rows: 1,
                    jobs: jobs.into(),
                    batch_jobs: batch_jobs.into(),
                });
                (self.ranges.len() >= GAPS_PER_STATEMENT).then(|| self.take())
            }
        }
    }

    /// The remaining gaps, and the number of rows of covered batches.
    pub fn end(mut self) -> (String, u64) {
        self.finish_batch();
        self.ranges.push([self.next, END]);
        (self.take(), self.covering)
    }

    fn finish_batch(&mut self) {
        let Some(passed) = self
            .passing
            .take()
            .filter(|passed| passed.jobs == passed.batch_jobs)
        else {
            return;
        };
        if passed.batch > self.next {
            self.ranges.push([self.next, passed.batch]);
        }
        self.next = passed.batch + 1;
        self.covering += passed.rows;
    }

    fn take(&mut self) -> String {
        let ranges: Vec<String> = self
            .ranges
            .drain(..)
            .map(|[first, end]| format!("[{first},{end}]"))
            .collect();
        format!("[{}]", ranges.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(batch: i64, position: i64) -> i64 {
        batch << POSITION_BITS | position
    }

    #[test]
    fn gaps_lie_between_batches_whose_rows_have_all_jobs() {
        let mut gaps = Gaps::default();
        // Batch 2 has two reports, 4 lacks jobs, 5 is compacted, and 6 and 7 are whole.
        for (id, jobs, batch_jobs) in [
            (id(2, 0), 30, 50),
            (id(2, 30), 20, 50),
            (id(4, 0), 40, 50),
            (id(5, 0), 0, 50),
            (id(6, 0), 50, 50),
            (id(7, 0), 17, 17),
        ] {
            assert_eq!(gaps.pass(id, jobs, batch_jobs), None);
        }
        assert_eq!(gaps.end(), (format!("[[0,2],[3,6],[8,{END}]]"), 4));
        assert_eq!(Gaps::default().end(), (format!("[[0,{END}]]"), 0));
    }

    #[test]
    fn many_gaps_are_handed_out_in_portions() {
        let mut gaps = Gaps::default();
        let handed = (1..=2 * GAPS_PER_STATEMENT as i64 + 5)
            .filter_map(|number| gaps.pass(id(number * 2, 0), 20, 20))
            .map(|ranges| ranges.matches("],[").count() + 1)
            .collect::<Vec<_>>();
        assert_eq!(handed, [GAPS_PER_STATEMENT; 2]);
        let (rest, covering) = gaps.end();
        assert_eq!(rest.matches("],[").count() + 1, 6);
        assert_eq!(covering, 2 * GAPS_PER_STATEMENT as u64 + 5);
    }
}
