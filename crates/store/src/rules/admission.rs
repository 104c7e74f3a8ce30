//! Admission: the lanes from which a claim may take jobs, the number of jobs, and their order.
//!
//! The controls (pauses, limits, rates, shares, aging) are evaluated once for each claim, lane by lane, before any
//! slice is read. A paused or full lane is not read at all, so it blocks no other lane. Slices of other lanes are cut
//! to the remaining room.
//!
//! * A concurrency limit counts held jobs in the transaction of the claim. On PostgreSQL, claims under one limit run one after another, by
//!   a lock on the limit's row.
//! * A rate limit is a token bucket (`token_bucket`), which also knows when its next tokens arrive.
//! * Aging only changes the order. Of a lane with aging, a claim reads only ranks that may come first.
//!
//! Lanes without controls cost nothing extra. The cost of a claim grows with the slices that it takes, and not with the
//! number of full groups or of jobs that wait in them.

pub mod held_back;
pub mod token_bucket;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use gristmill_model::{BatchId, Effect, Timestamp};

use crate::rules::admission::token_bucket::Rate;
use crate::rules::controls::Controls;
use crate::rules::lanes::Lane;

/// The place of a slice in line. The lowest one is claimed first.
pub type Place = (i64, Timestamp, BatchId, u32);

/// A control's id, and the group of the bucket (empty if all groups share one).
pub type BucketKey = (i64, Arc<str>);

/// The data that a claim must read before its admission.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether the number of held jobs of each lane is needed.
    pub held: bool,
    /// The buckets whose times are needed.
    pub buckets: Vec<BucketKey>,
    /// The ids of the controls that allow one claim at a time.
    pub exclusive: Vec<i64>,
}

/// The data that was read for an admission.
#[derive(Debug, Default)]
pub struct Usage {
    /// Jobs held, by lane.
    pub held: Vec<(Lane, u32)>,
    /// The times at which buckets were empty, in nanoseconds since 1970. A bucket that was never used is missing.
    pub buckets: HashMap<BucketKey, i64>,
}

/// The heads of lanes, from which a claim takes.
pub trait Line {
    /// The error of a read.
    type Error;
    /// A lower bound for the place of the first slice at this cursor, if it is known without a read. There may be no slice.
    fn bound(&self, cursor: usize) -> Option<Place> {
        let _ = cursor;
        None
    }
    /// The place of the first remaining slice at this cursor. At most `jobs_max` jobs of it will be taken.
    fn head(&mut self, cursor: usize, jobs_max: u32) -> Result<Option<Place>, Self::Error>;
    /// Takes at most `jobs_max` of its jobs, and returns their number. It is 0 only if the claim is full.
    fn take(&mut self, cursor: usize, jobs_max: u32) -> Result<u32, Self::Error>;
    /// The number of further jobs that fit the claim; 0 if it is full.
    fn jobs_left(&self) -> u32;
}

/// The time from which a lane can be claimed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// Now.
    Open,
    /// From this moment on.
    At(Timestamp),
    /// Once running jobs have ended.
    AfterOthers,
    /// Once someone resumes it.
    Paused,
}

/// The aging of the jobs of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aging {
    /// The time that a job waits before it ages.
    pub grace_ms: i64,
    /// The time that raises the priority by one.
    pub step_ms: i64,
}

impl Aging {
    /// Combines an aging with the effect of another control. A control that names a queue overrides one for all queues.
    fn then(before: Option<Aging>, effect: &Effect, names_queue: bool) -> Option<Aging> {
        match effect {
            Effect::Aging { grace_ms, step_ms } if before.is_none() || names_queue => Some(Aging {
                grace_ms: grace_ms.cast_signed(),
                step_ms: step_ms.cast_signed(),
            }),
            _ => before,
        }
    }

    /// The effective rank of a slice that could be claimed since `run_at`. A step of a flow has the place of its flow, and ages with it.
    pub fn rank(&self, rank: i64, run_at: Timestamp, now: Timestamp) -> i64 {
        let waited_ms = now.since_ms(run_at) - self.grace_ms;
        rank - waited_ms.max(0) / self.step_ms.max(1)
    }
}

/// A limit that admits jobs while it has room.
#[derive(Debug)]
struct Gate {
    key: BucketKey,
    room: u32,
    taken: u32,
    /// The rate, and the time at which its bucket was empty; `None` for a limit of running jobs.
    rate: Option<(Rate, Option<i64>)>,
}

/// One of the shares between which claims are divided.
#[derive(Debug)]
struct Share {
    key: Arc<str>,
    weight: f64,
    jobs_min: u32,
    /// Number of running and taken jobs.
    used: u32,
    /// Jobs that rounding gave it, divided by its weight.
    served: f64,
    /// Whether it has jobs to claim.
    is_active: bool,
}

/// A lane from which a worker wants jobs.
#[derive(Debug)]
struct Wanted {
    lane: Lane,
    gates: Vec<usize>,
    share: usize,
    pause: Option<Outlook>,
    aging: Option<Aging>,
}

/// The decision on a claim.
#[derive(Debug)]
pub struct Admission {
    now: Timestamp,
    lanes: Vec<Wanted>,
    gates: Vec<Gate>,
    shares: Vec<Share>,
}

impl Controls {
    /// Determines the data that a claim from these lanes must read.
    pub fn needs(&mut self, lanes: &[Lane]) -> Needs {
        let mut needs = Needs::default();
        if self.is_empty() {
            return needs;
        }
        for lane in lanes {
            for index in self.of(lane).iter() {
                let stored = self.get(*index);
                match stored.control.effect {
                    Effect::Concurrency { .. } => {
                        needs.exclusive.push(stored.id);
                        needs.held = true;
                    }
                    Effect::Rate { .. } => {
                        needs.exclusive.push(stored.id);
                        needs.buckets.push(self.gate_key(*index, lane));
                    }
                    Effect::Share { .. } => needs.held = true,
                    Effect::Pause { .. } | Effect::Aging { .. } => {}
                }
            }
        }
        needs.exclusive.sort_unstable();
        needs.exclusive.dedup();
        debug_assert!(needs.exclusive.is_sorted());
        needs.buckets.sort_unstable();
        needs.buckets.dedup();
        needs
    }

    /// The aging of each of these lanes, if they have no other controls; `None` if they have.
    pub fn agings(&mut self, lanes: &[Lane]) -> Option<Vec<Option<Aging>>> {
        let mut agings = vec![None; lanes.len()];
        if self.is_empty() {
            return Some(agings);
        }
        for (lane, aging) in lanes.iter().zip(&mut agings) {
            for index in self.of(lane).iter() {
                let control = &self.get(*index).control;
                match control.effect {
                    Effect::Aging { .. } => {
                        *aging = Aging::then(*aging, &control.effect, control.scope.queue.is_some());
                    }
                    _ => return None,
                }
            }
        }
        Some(agings)
    }

    /// The gate of a limit for a lane.
    fn gate_key(&self, index: usize, lane: &Lane) -> BucketKey {
        let stored = self.get(index);
        let group = if stored.control.scope.each_group {
            lane.group.clone()
        } else {
            Arc::from("")
        };
        (stored.id, group)
    }

    /// The share of a lane.
    fn share_key(&self, lane: &Lane, by_queue: bool, by_group: bool) -> Arc<str> {
        let part = |by: bool, name: &str| if by { name.to_owned() } else { String::new() };
        // No name contains a line feed.
        format!("{}\n{}", part(by_queue, &lane.queue), part(by_group, &lane.group)).into()
    }
}

impl Admission {
    /// Decides on claims from these lanes, for the given usage of their limits.
    pub fn new(controls: &mut Controls, lanes: Vec<Lane>, now: Timestamp, usage: &Usage) -> Self {
        let mut admission = Admission {
            now,
            lanes: Vec::with_capacity(lanes.len()),
            gates: Vec::new(),
            shares: Vec::new(),
        };
        if controls.is_empty() {
            admission.shares.push(Share::of(controls, Arc::from(""), &[]));
            admission.lanes.extend(lanes.into_iter().map(|lane| Wanted {
                lane,
                gates: Vec::new(),
                share: 0,
                pause: None,
                aging: None,
            }));
            return admission;
        }
        let (by_queue, by_group) = controls.shares_by();
        let (mut gates, mut shares) = (HashMap::new(), HashMap::new());
        for lane in lanes {
            let key = controls.share_key(&lane, by_queue, by_group);
            let places = controls.of(&lane);
            let share = *shares.entry(key.clone()).or_insert_with(|| {
                admission.shares.push(Share::of(controls, key, &places));
                admission.shares.len() - 1
            });
            let wanted = admission.admit(controls, &mut gates, share, lane, usage);
            assert!(wanted.gates.iter().all(|gate| *gate < admission.gates.len()));
            admission.lanes.push(wanted);
        }
        for (lane, jobs) in &usage.held {
            let key = controls.share_key(lane, by_queue, by_group);
            if let Some(share) = shares.get(&key) {
                admission.shares[*share].used += jobs;
            }
            for index in controls.of(lane).iter() {
                if let Some(gate) = gates.get(&controls.gate_key(*index, lane)) {
                    let gate: &mut Gate = &mut admission.gates[*gate];
                    if gate.rate.is_none() {
                        gate.room = gate.room.saturating_sub(*jobs);
                    }
                }
            }
        }
        admission
    }

    fn admit(
        &mut self,
        controls: &mut Controls,
        gates: &mut HashMap<BucketKey, usize>,
        share: usize,
        lane: Lane,
        usage: &Usage,
    ) -> Wanted {
        let mut wanted = Wanted {
            gates: Vec::new(),
            share,
            pause: None,
            aging: None,
            lane,
        };
        for index in controls.of(&wanted.lane).iter() {
            let key = controls.gate_key(*index, &wanted.lane);
            let stored = controls.get(*index);
            match &stored.control.effect {
                Effect::Pause { until: None, .. } => wanted.pause = Some(Outlook::Paused),
                Effect::Pause {
                    until: Some(until), ..
                } => {
                    wanted.pause = match wanted.pause {
                        _ if *until <= self.now => wanted.pause,
                        Some(Outlook::At(other)) => Some(Outlook::At(other.max(*until))),
                        None => Some(Outlook::At(*until)),
                        other => other,
                    };
                }
                Effect::Concurrency { jobs_max } => {
                    wanted.gates.push(self.gate(gates, key, *jobs_max, None));
                }
                Effect::Rate {
                    jobs,
                    period_ms,
                    burst,
                } => {
                    let rate = Rate {
                        jobs: *jobs,
                        period_ms: *period_ms,
                        burst: *burst,
                    };
                    let empty_at = usage.buckets.get(&key).copied();
                    let room = rate.tokens(empty_at, self.now);
                    wanted
                        .gates
                        .push(self.gate(gates, key, room, Some((rate, empty_at))));
                }
                Effect::Share { .. } => {}
                effect @ Effect::Aging { .. } => {
                    let names_queue = stored.control.scope.queue.is_some();
                    wanted.aging = Aging::then(wanted.aging, effect, names_queue);
                }
            }
        }
        wanted
    }

    fn gate(
        &mut self,
        gates: &mut HashMap<BucketKey, usize>,
        key: BucketKey,
        room: u32,
        rate: Option<(Rate, Option<i64>)>,
    ) -> usize {
        *gates.entry(key.clone()).or_insert_with(|| {
            self.gates.push(Gate {
                key,
                room,
                taken: 0,
                rate,
            });
            self.gates.len() - 1
        })
    }

    /// The wanted lanes.
    pub fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().map(|wanted| &wanted.lane)
    }

    /// The aging of a wanted lane.
    pub fn aging(&self, lane: usize) -> Option<Aging> {
        self.lanes[lane].aging
    }

    /// Whether several shares divide the claim.
    pub fn is_shared(&self) -> bool {
        self.shares.len() > 1
    }

    /// The number of jobs of a wanted lane that may be claimed.
    pub fn room(&self, lane: usize) -> u32 {
        let wanted = &self.lanes[lane];
        if wanted.pause.is_some() {
            return 0;
        }
        let rooms = wanted.gates.iter().map(|gate| self.gates[*gate].room);
        rooms.min().unwrap_or(u32::MAX)
    }

    /// The time from which a wanted lane can be claimed from (again), apart from its slices.
    pub fn outlook(&self, lane: usize) -> Outlook {
        let wanted = &self.lanes[lane];
        let mut outlook = wanted.pause.unwrap_or(Outlook::Open);
        for gate in wanted.gates.iter().map(|gate| &self.gates[*gate]) {
            if gate.room > 0 {
                continue;
            }
            outlook = match (outlook, gate.rate) {
                (Outlook::Paused, _) => Outlook::Paused,
                (_, None) | (Outlook::AfterOthers, _) => Outlook::AfterOthers,
                (before, Some((rate, empty_at))) => {
                    let empty_at = match gate.taken {
                        0 => empty_at,
                        taken => Some(rate.take(empty_at, self.now, taken)),
                    };
                    let next_at = rate.next_at(empty_at, self.now);
                    match before {
                        Outlook::At(at) => Outlook::At(at.max(next_at)),
                        _ => Outlook::At(next_at),
                    }
                }
            };
        }
        outlook
    }

    /// Whether ending jobs could make room, or have made room.
    pub fn has_free_slot(&self) -> bool {
        self.gates.iter().any(|gate| gate.rate.is_none() && gate.room > 0)
    }

    /// The buckets from which tokens were taken, and the times at which they were empty.
    pub fn buckets(&self) -> impl Iterator<Item = (&BucketKey, i64)> {
        self.gates.iter().filter_map(|gate| match gate.rate {
            Some((rate, empty_at)) if gate.taken > 0 => {
                Some((&gate.key, rate.take(empty_at, self.now, gate.taken)))
            }
            _ => None,
        })
    }

    /// Takes jobs until the claim is full or no jobs are left. `cursors` has the wanted lane of each cursor of the line.
    ///
    /// Shares with work get running jobs in proportion to their weights, over all workers. Within a share, places
    /// decide the order. A share that runs out of work leaves its part to the others.
    pub fn take_from<L: Line>(&mut self, line: &mut L, cursors: &[usize]) -> Result<(), L::Error> {
        let mut heads: Vec<BinaryHeap<Reverse<(Place, usize)>>> = Vec::new();
        heads.resize_with(self.shares.len(), BinaryHeap::new);
        // Of the cursors with a bound, those are read that may come first. Shares have to know which of them have work.
        let mut is_read = vec![true; cursors.len()];
        for (cursor, lane) in cursors.iter().enumerate() {
            let room = self.room(*lane);
            if room == 0 {
                continue;
            }
            let bound = line.bound(cursor).filter(|_| !self.is_shared());
            is_read[cursor] = bound.is_none();
            let place = match bound {
                Some(bound) => Some(bound),
                None => line.head(cursor, room)?,
            };
            if let Some(place) = place {
                let share = self.lanes[*lane].share;
                self.shares[share].is_active = true;
                heads[share].push(Reverse((place, cursor)));
            }
        }
        loop {
            let jobs = line.jobs_left();
            let active: Vec<usize> = (0..heads.len())
                .filter(|share| !heads[*share].is_empty())
                .collect();
            if jobs == 0 || active.is_empty() {
                return Ok(());
            }
            for (share, quota) in active.iter().zip(self.quotas(&active, jobs)) {
                self.take_share(line, cursors, &mut heads[*share], &mut is_read, quota)?;
            }
        }
    }

    /// Takes at most `quota` jobs of one share.
    fn take_share<L: Line>(
        &mut self,
        line: &mut L,
        cursors: &[usize],
        heads: &mut BinaryHeap<Reverse<(Place, usize)>>,
        is_read: &mut [bool],
        mut quota: u32,
    ) -> Result<(), L::Error> {
        while quota > 0
            && line.jobs_left() > 0
            && let Some(Reverse((_, cursor))) = heads.pop()
        {
            let room = self.room(cursors[cursor]);
            if room == 0 {
                continue;
            }
            if !std::mem::replace(&mut is_read[cursor], true) {
                if let Some(place) = line.head(cursor, room)? {
                    heads.push(Reverse((place, cursor)));
                }
                continue;
            }
            let taken = line.take(cursor, quota.min(room))?;
            assert!(taken <= quota.min(room), "a lane gives what is asked for");
            self.charge(cursors[cursor], taken);
            quota -= taken.min(quota);
            let room = self.room(cursors[cursor]);
            if room > 0
                && let Some(place) = line.head(cursor, room)?
            {
                heads.push(Reverse((place, cursor)));
            }
        }
        Ok(())
    }

    /// Records jobs that were taken from a wanted lane.
    fn charge(&mut self, lane: usize, jobs: u32) {
        let wanted = &self.lanes[lane];
        for gate in &wanted.gates {
            let gate = &mut self.gates[*gate];
            assert!(gate.room >= jobs, "a limit admits no more than it has room for");
            gate.room = gate.room.saturating_sub(jobs);
            gate.taken += jobs;
        }
        let share = &mut self.shares[wanted.share];
        share.used += jobs;
    }

    /// Takes back a record of jobs that were not taken after all.
    pub fn give_back(&mut self, lane: usize, jobs: u32) {
        let wanted = &self.lanes[lane];
        for gate in &wanted.gates {
            let gate = &mut self.gates[*gate];
            assert!(gate.taken >= jobs, "no more jobs return than were taken");
            gate.room += jobs;
            gate.taken -= jobs;
        }
        let share = &mut self.shares[wanted.share];
        assert!(share.used >= jobs, "no more jobs return than the share got");
        share.used -= jobs;
    }

    /// Divides jobs between these shares.
    fn quotas(&mut self, active: &[usize], jobs: u32) -> Vec<u32> {
        if active.len() == 1 {
            return vec![jobs];
        }
        let shares: Vec<&Share> = active.iter().map(|share| &self.shares[*share]).collect();
        let mut by_served: Vec<usize> = (0..shares.len()).collect();
        by_served.sort_by(|a, b| shares[*a].served.total_cmp(&shares[*b].served));
        let mut quotas = vec![0; shares.len()];
        let mut left = jobs;
        for index in &by_served {
            let share = shares[*index];
            quotas[*index] = share.jobs_min.saturating_sub(share.used).min(left);
            left -= quotas[*index];
        }
        // The rest is divided so that the shares with the fewest jobs for their weight reach one level.
        let used: Vec<f64> = shares
            .iter()
            .zip(&quotas)
            .map(|(share, quota)| f64::from(share.used) + f64::from(*quota))
            .collect();
        let mut by_level: Vec<usize> = (0..shares.len()).collect();
        by_level.sort_by(|a, b| (used[*a] / shares[*a].weight).total_cmp(&(used[*b] / shares[*b].weight)));
        let (mut weights, mut sum, mut level) = (0.0, f64::from(left), 0.0);
        let mut filled = 0;
        for index in &by_level {
            if filled > 0 && used[*index] / shares[*index].weight >= level {
                break;
            }
            weights += shares[*index].weight;
            sum += used[*index];
            level = sum / weights;
            filled += 1;
        }
        for index in &by_level[..filled] {
            let part = (level * shares[*index].weight - used[*index]).max(0.0).floor();
            let part = (part as u32).min(left);
            quotas[*index] += part;
            left -= part;
        }
        // The remaining single jobs go to the shares that rounding served least.
        let mut rounded = Vec::new();
        let mut is_filled = vec![false; shares.len()];
        by_level[..filled]
            .iter()
            .for_each(|index| is_filled[*index] = true);
        for index in by_served.iter().filter(|index| is_filled[**index]).cycle() {
            if left == 0 {
                break;
            }
            quotas[*index] += 1;
            left -= 1;
            rounded.push(*index);
        }
        assert_eq!(quotas.iter().sum::<u32>(), jobs, "the quotas divide all jobs");
        assert_eq!(left, 0, "no job is left without a share");
        for index in rounded {
            let share = &mut self.shares[active[index]];
            share.served += 1.0 / share.weight;
        }
        quotas
    }

    /// Stores the number of jobs that rounding gave each share.
    pub fn remember(&self, controls: &mut Controls) {
        if self.is_shared() {
            let served = self.shares.iter().filter(|share| share.is_active);
            controls.serve(served.map(|share| (share.key.clone(), share.served)));
        }
    }
}

impl Share {
    /// Makes the share of lanes with these controls: those of its queue and of its group.
    fn of(controls: &Controls, key: Arc<str>, places: &[usize]) -> Share {
        let mut share = Share {
            weight: 1.0,
            jobs_min: 0,
            used: 0,
            served: controls.served(&key),
            is_active: false,
            key,
        };
        for place in places {
            if let Effect::Share { weight, jobs_min } = controls.get(*place).control.effect {
                share.weight *= f64::from(weight);
                share.jobs_min = share.jobs_min.max(jobs_min);
            }
        }
        assert!(share.weight > 0.0, "a share has a weight");
        share
    }
}
