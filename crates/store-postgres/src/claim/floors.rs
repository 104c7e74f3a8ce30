//! Where claims begin to look while dead slices pile up.
//!
//! A claim walks the index of slices from the beginning of a lane. As long as somebody holds an old snapshot (a dump, a forgotten
//! transaction, a replica that feeds back), vacuum may not remove the slices that were taken since, and each claim would walk
//! past all of them: after an hour of that, tens of milliseconds. While the table has many dead rows, most claims therefore begin
//! a moment before the first slice that the last one found: at the *floor* of the lane. Jobs that come back below the floor
//! (given back, rescued, backdated) wait for the next claim that begins at the beginning, as one does every two seconds. A
//! claim that found too few jobs above the floors says when that is, so that no worker ends its drain before.

use std::collections::{BTreeMap, HashMap};

use gristmill_model::Timestamp;

use crate::limits::{FLOORS_FROM_DEAD_SLICES, FLOORS_MAX, WHOLE_LOOK_EVERY_MS};

/// How far a floor is below the first slice that was found: submits that began before others, and commit after them, are found.
const FLOOR_SLACK_MS: i64 = 1_000;

/// Below all ranks, as in `heads_above`.
const NO_RANK: i32 = -2_147_483_647;

/// The place in a lane from which a claim looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Floor {
    rank: i32,
    run_at: Timestamp,
}

/// The floors of a handle.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    are_wanted: bool,
    by_lane: HashMap<i64, Floor>,
    whole_look_at: Option<Timestamp>,
}

/// The floors of the lanes of one claim, in the order of the lanes.
#[derive(Debug, Clone)]
pub(crate) struct Above {
    pub ranks: Vec<i32>,
    pub run_ats: Vec<i64>,
    /// When a claim will look below them.
    pub until: Timestamp,
}

impl Floors {
    /// Stores how many dead slices there are.
    pub fn learn_dead(&mut self, slices: i64) {
        self.are_wanted = slices >= FLOORS_FROM_DEAD_SLICES;
        if !self.are_wanted {
            *self = Floors::default();
        }
    }

    /// The floors above which a claim looks into these lanes; `None` if it begins at the beginning.
    pub fn of(&mut self, now: Timestamp, lanes: impl Iterator<Item = i64>) -> Option<Above> {
        if !self.are_wanted {
            return None;
        }
        let until = self
            .whole_look_at
            .filter(|until| now < *until && !now.is_set_back_from(until.plus_ms(-WHOLE_LOOK_EVERY_MS)));
        let Some(until) = until else {
            self.whole_look_at = Some(now.plus_ms(WHOLE_LOOK_EVERY_MS));
            self.by_lane.clear();
            return None;
        };
        let none = Floor {
            rank: NO_RANK,
            run_at: Timestamp(i64::MIN),
        };
        let floors = lanes.map(|lane| self.by_lane.get(&lane).copied().unwrap_or(none));
        let (ranks, run_ats) = floors.map(|floor| (floor.rank, floor.run_at.0)).unzip();
        Some(Above {
            ranks,
            run_ats,
            until,
        })
    }

    /// Learns from the slices of a claim, in its order: nothing that it could take is before the first one of each rank. A lane has a
    /// floor in one rank, that of most slices; claims look at all slices of other ranks.
    pub fn learn(&mut self, found: impl Iterator<Item = (i64, i32, Timestamp)>) {
        if !self.are_wanted {
            return;
        }
        let mut lanes: HashMap<i64, BTreeMap<i32, (usize, Timestamp)>> = HashMap::new();
        for (lane, rank, run_at) in found {
            let (slices, _) = lanes.entry(lane).or_default().entry(rank).or_insert((0, run_at));
            *slices += 1;
        }
        for (lane, ranks) in lanes {
            let first = match self.by_lane.get(&lane) {
                Some(floor) => ranks.get_key_value(&floor.rank),
                None if self.by_lane.len() < FLOORS_MAX => {
                    ranks.iter().max_by_key(|(_, (slices, _))| *slices)
                }
                None => None,
            };
            if let Some((rank, (_, run_at))) = first {
                let (rank, run_at) = (*rank, run_at.plus_ms(-FLOOR_SLACK_MS));
                self.by_lane.insert(lane, Floor { rank, run_at });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floors_of(floors: &mut Floors, now: i64, lanes: &[i64]) -> Option<Vec<(i32, i64)>> {
        let above = floors.of(Timestamp(now), lanes.iter().copied())?;
        Some(above.ranks.into_iter().zip(above.run_ats).collect())
    }

    #[test]
    fn claims_begin_at_the_beginning_unless_many_slices_are_dead() {
        let mut floors = Floors::default();
        floors.learn([(1, 0, Timestamp(5_000))].into_iter());
        assert_eq!(floors_of(&mut floors, 5_000, &[1]), None);
        floors.learn_dead(FLOORS_FROM_DEAD_SLICES - 1);
        assert_eq!(floors_of(&mut floors, 5_000, &[1]), None);
    }

    #[test]
    fn one_claim_in_a_while_looks_below_the_floors() {
        let mut floors = Floors::default();
        floors.learn_dead(FLOORS_FROM_DEAD_SLICES);
        assert_eq!(floors_of(&mut floors, 100_000, &[1, 2]), None);
        let first = [
            (1, -3, Timestamp(99_900)),
            (1, 0, Timestamp(90_000)),
            (1, 0, Timestamp(95_000)),
        ];
        floors.learn(first.into_iter());
        assert_eq!(floors_of(&mut floors, 100_000, &[1]), Some(vec![(0, 89_000)]));
        // Another rank moves nothing.
        floors.learn([(1, -3, Timestamp(99_950)), (1, 0, Timestamp(99_000))].into_iter());
        floors.learn([(1, -3, Timestamp(99_990))].into_iter());
        let above = Some(vec![(0, 98_000), (NO_RANK, i64::MIN)]);
        assert_eq!(floors_of(&mut floors, 100_000, &[1, 2]), above);
        assert_eq!(
            floors_of(&mut floors, 100_000 + WHOLE_LOOK_EVERY_MS - 1, &[1, 2]),
            above
        );
        assert_eq!(
            floors_of(&mut floors, 100_000 + WHOLE_LOOK_EVERY_MS, &[1, 2]),
            None
        );
        // What the whole look has not found has no floor any more.
        let nothing = Some(vec![(NO_RANK, i64::MIN)]);
        assert_eq!(
            floors_of(&mut floors, 100_000 + WHOLE_LOOK_EVERY_MS, &[1]),
            nothing
        );
        // A clock that was set back does not keep the floors for longer.
        floors.learn([(1, 0, Timestamp(99_000))].into_iter());
        assert_eq!(floors_of(&mut floors, 1_000, &[1]), None);
        floors.learn_dead(0);
        assert_eq!(floors_of(&mut floors, 1_001, &[1]), None);
    }
}
