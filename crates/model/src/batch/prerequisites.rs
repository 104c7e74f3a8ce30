//! The prerequisites of the batches in one submit. Each names an earlier batch, so that they form no cycle.

use super::dependency::Prerequisite;
use super::invalid::InvalidBatch;
use crate::batch::NewBatch;
use crate::limits::PREREQUISITES_MAX;
use crate::positions::Positions;

/// Checks the prerequisites of the batches in one submit, without a store.
pub fn check_after<B: AsRef<NewBatch>>(batches: &[B]) -> Result<(), InvalidBatch> {
    for (place, batch) in batches.iter().map(AsRef::as_ref).enumerate() {
        if batch.after.len() > PREREQUISITES_MAX {
            return Err(InvalidBatch::TooManyPrerequisites(batch.after.len()));
        }
        for after in &batch.after {
            if after.positions.as_ref().is_some_and(Positions::is_empty) {
                return Err(InvalidBatch::NothingToWaitFor { place });
            }
            let Prerequisite::Earlier(earlier) = after.prerequisite else {
                continue;
            };
            let Some(prerequisite) = batches.get(earlier).map(AsRef::as_ref) else {
                return Err(InvalidBatch::UnknownPlace { place, earlier });
            };
            if earlier >= place {
                return Err(match cycle(batches, place, earlier) {
                    Some(cycle) => InvalidBatch::Cycle { cycle },
                    None => InvalidBatch::NotEarlier { place, earlier },
                });
            }
            let count = prerequisite.payloads.count();
            let last = after.positions.as_ref().and_then(Positions::last);
            if let Some(position) = last.filter(|last| *last >= count) {
                return Err(InvalidBatch::UnknownPosition {
                    prerequisite: format!("batch {earlier} of the submit"),
                    count,
                    position,
                });
            }
        }
    }
    Ok(())
}

/// Finds the cycle from `place` over `next` back to `place`, in words. The search has no recursion, because a chain may
/// be long.
fn cycle<B: AsRef<NewBatch>>(batches: &[B], place: usize, next: usize) -> Option<String> {
    let mut came_from: Vec<Option<usize>> = vec![None; batches.len()];
    let mut open = vec![next];
    came_from[next] = Some(place);
    while let Some(current) = open.pop() {
        if current == place {
            let mut way = vec![place];
            let mut back = place;
            while let Some(previous) = came_from[back] {
                way.push(previous);
                back = previous;
                if back == place {
                    break;
                }
            }
            way.reverse();
            return Some(in_words(&way));
        }
        for after in &batches[current].as_ref().after {
            if let Prerequisite::Earlier(earlier) = after.prerequisite
                && earlier < batches.len()
                && came_from[earlier].is_none()
            {
                came_from[earlier] = Some(current);
                open.push(earlier);
            }
        }
    }
    None
}

/// Maximum number of batches of a cycle that an error names.
const CYCLE_PLACES_MAX: usize = 20;

fn in_words(way: &[usize]) -> String {
    let mut places: Vec<String> = way
        .iter()
        .take(CYCLE_PLACES_MAX)
        .map(|place| format!("batch {place}"))
        .collect();
    if way.len() > CYCLE_PLACES_MAX {
        places.push("…".to_owned());
        places.push(format!("batch {}", way[way.len() - 1]));
    }
    places.join(" waits for ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependency::After;
    use crate::packed::PackedArray;

    fn batches(after: &[&[usize]]) -> Vec<NewBatch> {
        let waiting = |places: &&[usize]| NewBatch {
            after: places.iter().copied().map(After::earlier).collect(),
            ..NewBatch::new("work", PackedArray::parse("[1,2]").unwrap())
        };
        after.iter().map(waiting).collect()
    }

    #[test]
    fn graphs_of_earlier_batches_are_allowed() {
        assert_eq!(check_after(&batches(&[&[], &[0], &[0, 0], &[1, 2]])), Ok(()));
    }

    #[test]
    fn cycles_are_refused_by_name() {
        let message = |after: &[&[usize]]| check_after(&batches(after)).unwrap_err().to_string();
        assert!(message(&[&[0]]).contains("batch 0 waits for batch 0"));
        let long = message(&[&[2], &[0], &[1]]);
        assert!(
            long.contains("batch 0 waits for batch 2 waits for batch 1 waits for batch 0"),
            "{long}"
        );
        let many: Vec<Vec<usize>> = (0..100_000)
            .map(|place| vec![(place + 99_999) % 100_000])
            .collect();
        let many: Vec<&[usize]> = many.iter().map(Vec::as_slice).collect();
        let many = message(&many);
        assert!(many.contains('…') && many.len() < 1_000, "{many}");
    }

    #[test]
    fn prerequisites_that_are_not_earlier_batches_are_refused() {
        let message = |after: &[&[usize]]| check_after(&batches(after)).unwrap_err().to_string();
        assert!(message(&[&[1], &[]]).contains("put batch 1 before batch 0"));
        assert!(message(&[&[], &[7]]).contains("waits for batch 7, which the submit does not have"));
        let mut wrong = batches(&[&[], &[0]]);
        wrong[1].after[0].positions = Some(Positions::from(1..3));
        assert!(
            check_after(&wrong)
                .unwrap_err()
                .to_string()
                .contains("has 2 jobs")
        );
        wrong[1].after[0].positions = Some(Positions::new());
        assert!(check_after(&wrong).is_err());
    }
}
