//! The runners that may keep waiting jobs in memory.

use std::collections::BTreeMap;

use gristmill_model::{BatchId, Positions};

/// Batches whose runners are known at once. Jobs of forgotten batches go on in any runner.
const BATCHES_MAX: usize = 1_000;

/// The runner that has run each waiting job last, and may still keep it in memory.
#[derive(Debug, Default)]
pub(crate) struct Keepers {
    by_batch: BTreeMap<BatchId, BTreeMap<usize, Positions>>,
}

impl Keepers {
    /// Notes that a runner has run jobs of a batch which now wait.
    pub fn add(&mut self, batch: BatchId, runner: usize, positions: &Positions) {
        let of_batch = self.by_batch.entry(batch).or_default();
        let of_runner = of_batch.entry(runner).or_default();
        *of_runner = of_runner.union(positions);
        if self.by_batch.len() > BATCHES_MAX {
            let other = self.by_batch.keys().find(|known| **known != batch).copied();
            other.map(|other| self.by_batch.remove(&other));
        }
    }

    /// Shares out jobs that wait no more by their runners. The jobs of unknown runners come last.
    pub fn take(&mut self, batch: BatchId, positions: &Positions) -> Vec<(Option<usize>, Positions)> {
        let mut left = positions.clone();
        let mut shared_out = Vec::new();
        if let Some(of_batch) = self.by_batch.get_mut(&batch) {
            for (runner, kept) in of_batch.iter_mut() {
                let own = left.intersection(kept);
                if !own.is_empty() {
                    *kept = kept.difference(&own);
                    left = left.difference(&own);
                    shared_out.push((Some(*runner), own));
                }
            }
            of_batch.retain(|_, kept| !kept.is_empty());
            if of_batch.is_empty() {
                self.by_batch.remove(&batch);
            }
        }
        if !left.is_empty() {
            shared_out.push((None, left));
        }
        shared_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_goes_to_its_last_runner_once() {
        let positions = |text: &str| text.parse::<Positions>().unwrap();
        let taken = |keepers: &mut Keepers, text: &str| {
            let shared_out = keepers.take(BatchId(7), &positions(text)).into_iter();
            shared_out
                .map(|(runner, own)| (runner, own.to_string()))
                .collect::<Vec<_>>()
        };
        let mut keepers = Keepers::default();
        keepers.add(BatchId(7), 1, &positions("0-9"));
        keepers.add(BatchId(7), 0, &positions("10-19"));
        keepers.add(BatchId(8), 0, &positions("0-9"));
        let expected = vec![
            (Some(0), "10-12".to_owned()),
            (Some(1), "5-9".to_owned()),
            (None, "20".to_owned()),
        ];
        assert_eq!(taken(&mut keepers, "5-12,20"), expected);
        assert_eq!(taken(&mut keepers, "9-10"), vec![(None, "9-10".to_owned())]);
        assert_eq!(
            taken(&mut keepers, "0-4,13-19"),
            vec![(Some(0), "13-19".to_owned()), (Some(1), "0-4".to_owned())]
        );
        assert_eq!(
            keepers.by_batch.len(),
            1,
            "a batch without waiting jobs is forgotten"
        );
    }

    #[test]
    fn few_batches_are_known() {
        let mut keepers = Keepers::default();
        let one = Positions::all(1);
        for batch in 0..=BATCHES_MAX as i64 {
            keepers.add(BatchId(batch), 0, &one);
        }
        assert_eq!(keepers.take(BatchId(0), &one), vec![(None, one.clone())]);
        assert_eq!(keepers.take(BatchId(1), &one), vec![(Some(0), one)]);
    }
}
