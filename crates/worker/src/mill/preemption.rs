//! Preemption: makes room for urgent jobs.
//!
//! With a minimum priority for preemption, the worker looks for urgent jobs while its slots are busy. It asks the least
//! urgent of its pausable runners to make room, like in a drain.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Mill;
use crate::claims::lane::Lane;
use crate::mill::delivery::{Delivery, DeliveryId};

impl Mill {
    /// Reports whether an urgent job could take the slot of a running one.
    pub(super) fn may_be_preempted(&self) -> bool {
        let Some(level) = self.settings.preempt_from else {
            return false;
        };
        self.dispatcher.free_slots_of_all() == 0
            && self.can_run_any()
            && !self.is_draining()
            && !self.claims.is_used_up()
            && self.urgent_lanes(level) == 0
            && !self.pausable(level).is_empty()
    }

    /// The number of kinds with a waiting job that does not wait for a slot.
    fn urgent_lanes(&self, level: i16) -> usize {
        let urgencies = self.lanes.iter().filter_map(Lane::urgency);
        urgencies.filter(|priority| *priority >= level).count()
    }

    /// The pausable runners whose jobs are all less urgent, and which were not asked to make room yet. The least urgent
    /// runner comes first. Of equally urgent ones, the one that began last comes first.
    fn pausable(&self, level: i16) -> Vec<(usize, usize)> {
        let mut runners: BTreeMap<(usize, usize), (i16, DeliveryId, bool)> = BTreeMap::new();
        for delivery in self.deliveries.values() {
            let runner =
                runners
                    .entry((delivery.kind, delivery.runner))
                    .or_insert((i16::MIN, delivery.id, false));
            runner.0 = runner.0.max(delivery.priority);
            runner.2 |= delivery.is_pausing();
        }
        runners.retain(|(kind, _), (priority, _, is_pausing)| {
            self.lanes[*kind].is_pausable() && *priority < level && !*is_pausing
        });
        let mut ordered: Vec<_> = runners.into_iter().collect();
        ordered.sort_by_key(|(_, (priority, first, _))| (*priority, Reverse(*first)));
        ordered.into_iter().map(|(runner, _)| runner).collect()
    }

    /// Asks as many runners to make room as urgent jobs need.
    pub(super) fn preempt(&mut self) {
        let Some(level) = self.settings.preempt_from else {
            return;
        };
        let urgent = self.urgent_lanes(level);
        if urgent == 0 || self.dispatcher.free_slots_of_all() > 0 || self.is_draining() {
            return;
        }
        let pausing = self.deliveries.values().filter(|delivery| delivery.is_pausing());
        let on_the_way: BTreeSet<_> = pausing.map(|delivery| (delivery.kind, delivery.runner)).collect();
        let needed = urgent.saturating_sub(on_the_way.len());
        for (kind, runner) in self.pausable(level).into_iter().take(needed) {
            tracing::debug!(kind = %self.lanes[kind].kind, runner, "asked a runner to make room for urgent jobs");
            let of_runner = |delivery: &&Arc<Delivery>| (delivery.kind, delivery.runner) == (kind, runner);
            self.deliveries
                .values()
                .filter(of_runner)
                .for_each(|delivery| delivery.pause());
        }
    }
}
