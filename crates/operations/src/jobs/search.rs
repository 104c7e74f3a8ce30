//! The search for a text in payloads, values and errors, among the newest jobs.
//!
//! The packed texts of a batch are searched as a whole. Only texts with a match are cut into items.

use std::collections::BTreeSet;

use gristmill_model::{BatchId, JobId, PackedArray, Positions};
use gristmill_store::{BatchOutcomes, JobFilter, JobRow, Page, Store, StoreError};

use crate::jobs::newest_batches::{descending, newest};
use crate::limits::{SEARCH_BATCHES_MAX, SEARCH_BYTES_MAX, SEARCH_JOBS_MAX, SEARCH_TEXT_BYTES_MAX};
use crate::refused::Refused;

/// The result of a search.
#[derive(Debug)]
pub struct Found {
    /// The newest jobs with the text.
    pub rows: Vec<JobRow>,
    /// The number of searched jobs.
    pub searched: u64,
    /// True if these are all jobs that match the other conditions.
    pub is_all: bool,
}

/// A text to search for, in the forms that JSON may write it.
struct Needle {
    spellings: BTreeSet<String>,
}

impl Needle {
    fn new(text: &str) -> Needle {
        let text = text.to_ascii_lowercase();
        let quoted = serde_json::Value::from(text.as_str()).to_string();
        let escaped = quoted[1..quoted.len() - 1].to_owned();
        let mut ascii = String::new();
        for character in escaped.chars() {
            if character.is_ascii() {
                ascii.push(character);
            } else {
                let units = character.encode_utf16(&mut [0; 2]).to_vec();
                ascii.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
        Needle {
            spellings: BTreeSet::from([text, escaped, ascii]),
        }
    }

    /// Reports whether a text contains it. ASCII letters match in both cases.
    fn is_in(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        self.spellings
            .iter()
            .any(|spelling| text.contains(spelling.as_str()))
    }

    /// The positions of the items that contain it.
    fn items_in<'a>(
        &'a self,
        positions: impl Iterator<Item = u32> + 'a,
        items: &'a PackedArray,
    ) -> impl Iterator<Item = u32> + 'a {
        let present = self.is_in(items.as_str());
        let numbered = present.then(|| positions.zip(items.items()));
        numbered
            .into_iter()
            .flatten()
            .filter(|(_, item)| self.is_in(item))
            .map(|(position, _)| position)
    }
}

/// The wanted jobs of a batch whose payload, value or error contains the text.
fn hits(
    needle: &Needle,
    wanted: &Positions,
    payloads: &PackedArray,
    outcomes: Option<&BatchOutcomes>,
) -> BTreeSet<u32> {
    let mut hits: BTreeSet<u32> = needle.items_in(0.., payloads).collect();
    for report in outcomes.iter().flat_map(|outcomes| &outcomes.reports) {
        if let Some(values) = &report.values {
            hits.extend(needle.items_in(report.positions.iter(), values));
        }
    }
    for failure in outcomes.iter().flat_map(|outcomes| &outcomes.errors) {
        let error = &failure.error;
        let mut texts = [&error.error_type, &error.message]
            .into_iter()
            .chain(&error.traceback);
        if texts.any(|text| needle.is_in(text)) {
            hits.insert(failure.position);
        }
    }
    hits.retain(|position| wanted.contains(*position));
    hits
}

fn bytes_of(payloads: &PackedArray, outcomes: Option<&BatchOutcomes>) -> usize {
    let reports = outcomes.iter().flat_map(|outcomes| &outcomes.reports);
    let values = reports.filter_map(|report| report.values.as_ref());
    payloads.as_str().len() + values.map(|values| values.as_str().len()).sum::<usize>()
}

/// Searches the newest jobs that match `filter`, within the limits, for at most `rows_max` jobs with the text.
pub async fn search(
    store: &dyn Store,
    filter: &JobFilter,
    text: &str,
    rows_max: usize,
) -> Result<Found, Refused> {
    if text.is_empty() || text.len() > SEARCH_TEXT_BYTES_MAX {
        return Err(Refused::invalid(
            format!("`text` has {} bytes", text.len()),
            format!("give 1 to {SEARCH_TEXT_BYTES_MAX} bytes"),
        ));
    }
    let needle = Needle::new(text);
    let newest = newest(store, filter).await?;
    let (batches, next) = descending(store, filter, newest, SEARCH_BATCHES_MAX).await?;
    let mut found = Found {
        rows: Vec::new(),
        searched: 0,
        is_all: next.is_none(),
    };
    let mut bytes = 0;
    for jobs in batches {
        if found.searched >= SEARCH_JOBS_MAX || bytes >= SEARCH_BYTES_MAX {
            found.is_all = false;
            break;
        }
        // A prune may delete the batch in the meantime.
        let Some(payloads) = store.payloads(jobs.batch).await? else {
            continue;
        };
        let outcomes = store.outcomes(jobs.batch).await?;
        found.searched += u64::from(jobs.positions.len());
        bytes += bytes_of(&payloads, outcomes.as_ref());
        let hits = hits(&needle, &jobs.positions, &payloads, outcomes.as_ref());
        for position in hits.into_iter().rev() {
            if found.rows.len() == rows_max {
                found.is_all = false;
                return Ok(found);
            }
            found.rows.extend(row(store, jobs.batch, position).await?);
        }
    }
    Ok(found)
}

/// One job as a listing shows it, unless it was deleted.
async fn row(store: &dyn Store, batch: BatchId, position: u32) -> Result<Option<JobRow>, StoreError> {
    let filter = JobFilter {
        batch: Some(batch),
        ..JobFilter::default()
    };
    let page = Page {
        after: position.checked_sub(1).map(|position| JobId { batch, position }),
        limit: 1,
    };
    let mut rows = store.jobs(&filter, page).await?;
    Ok(rows.pop().filter(|row| row.job == JobId { batch, position }))
}

#[cfg(test)]
mod tests {
    use gristmill_model::{JobError, JobState, Timestamp};
    use gristmill_store::{StoredFailure, StoredReport};

    use super::*;

    fn packed(text: &str) -> PackedArray {
        PackedArray::parse(text).unwrap()
    }

    #[test]
    fn a_text_is_found_as_json_writes_it() {
        for (text, item, is_there) in [
            ("Müller", "{\"name\":\"MÜLLER\"}", false),
            ("Müller", "{\"name\":\"MüLLER\"}", true),
            ("Müller", "{\"name\":\"M\\u00fcller\"}", true),
            ("Müller", "{\"name\":\"M\\u00FCller\"}", true),
            ("🙂", "\"\\ud83d\\ude42\"", true),
            ("say \"hi\"", r#""say \"hi\"""#, true),
            ("a\nb", r#""a\nb""#, true),
            ("\"a\":1", "{\"a\":1}", true),
            ("b", "{\"a\":1}", false),
        ] {
            assert_eq!(Needle::new(text).is_in(item), is_there, "{text} {item}");
        }
    }

    #[test]
    fn payloads_values_and_errors_of_wanted_jobs_are_searched() {
        let report = |positions: &str, values: Option<&str>, state| StoredReport {
            state,
            positions: positions.parse().unwrap(),
            values: values.map(packed),
            durations_us: Vec::new(),
            attempt: 1,
            worker: None,
            finished_at: Timestamp(9),
        };
        let outcomes = BatchOutcomes {
            batch: BatchId(1),
            count: 6,
            reports: vec![
                report("1,3", Some("[\"x\",\"needle\"]"), JobState::Completed),
                report("4", None, JobState::Dead),
            ],
            errors: vec![StoredFailure {
                position: 4,
                attempt: 1,
                error: JobError::new("NeedleError", "no"),
                duration_us: 7,
                log: None,
                worker: None,
                failed_at: Timestamp(9),
            }],
        };
        let payloads = packed("[\"needle\",1,2,3,4,\"needle\"]");
        let needle = Needle::new("needle");
        let found = |wanted: &str| hits(&needle, &wanted.parse().unwrap(), &payloads, Some(&outcomes));
        assert_eq!(found("0-5"), BTreeSet::from([0, 3, 4, 5]));
        assert_eq!(found("1-3"), BTreeSet::from([3]));
        let open = hits(&needle, &"0-5".parse().unwrap(), &payloads, None);
        assert_eq!(open, BTreeSet::from([0, 5]));
    }
}
