//! Admission: which lanes a claim may take from, how much, and in which order.
//!
//! The controls (pauses, limits, rates, shares, aging) are evaluated once for each claim, lane by lane, before any
//! slice is read. A paused or full lane is not read at all, so it blocks no other lane; slices of other lanes are cut
//! to the room that is left.
//!
//! * A concurrency limit counts held jobs in the transaction of the claim. On PostgreSQL, claims under one limit run
//!   one after the other, by a lock on the limit's row.
//! * A rate limit is a token bucket (`token_bucket`), which also knows when its next tokens arrive.
//! * Aging only changes the order: of a lane with aging, a claim reads only ranks that may come first.
//!
//! Lanes without controls pay nothing. The cost of a claim grows with the slices that it takes, and not with the number
//! of full groups or of jobs that wait in them.

pub mod held_back;
pub mod token_bucket;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use gristmill_model::{BatchId, Effect, Timestamp};

use crate::rules::admission::token_bucket::Rate;
use crate::rules::controls::Controls;
use crate::rules::lanes::Lane;

/// The place of a slice in line. The lowest is claimed first.
pub type Place = (i64, Timestamp, BatchId, u32);

/// A control's id, and the group whose bucket it is (empty where all share one).
pub type BucketKey = (i64, Arc<str>);

/// What a claim has to read before it is admitted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// How many jobs are held of each lane.
    pub held: bool,
    /// When these buckets were empty.
    pub buckets: Vec<BucketKey>,
    /// The controls that only one claim at a time may go by, by id.
    pub exclusive: Vec<i64>,
}

/// What was read for it.
#[derive(Debug, Default)]
pub struct Usage {
    /// Jobs held, by lane.
    pub held: Vec<(Lane, u32)>,
    /// When buckets were empty, in nanoseconds since 1970; those that were never used are missing.
    pub buckets: HashMap<BucketKey, i64>,
}

/// Heads of lanes, from which a claim takes.
pub trait Line {
    /// What goes wrong.
    type Error;
    /// A place before which the first slice under this cursor cannot be, where that is known without a look. There may be none.
    fn bound(&self, cursor: usize) -> Option<Place> {
        let _ = cursor;
        None
    }
    /// The place of the first remaining slice under this cursor. At most `jobs_max` jobs of it will be taken.
    fn head(&mut self, cursor: usize, jobs_max: u32) -> Result<Option<Place>, Self::Error>;
    /// Takes some of its jobs, at most so many. Returns how many: 0 only where the claim is full.
    fn take(&mut self, cursor: usize, jobs_max: u32) -> Result<u32, Self::Error>;
    /// Jobs that the claim still has room for; 0 where it is full.
    fn jobs_left(&self) -> u32;
}

/// When a lane can be claimed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// Now.
    Open,
    /// From this moment on.
    At(Timestamp),
    /// Once jobs that run are over.
    AfterOthers,
    /// Once somebody resumes it.
    Paused,
}

/// How jobs of a lane age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aging {
    /// The wait before a job begins to age.
    pub grace_ms: i64,
    /// The wait that raises the priority by one.
    pub step_ms: i64,
}

impl Aging {
    /// What an effect makes of the aging before it, of a control that names a queue or does not: one of a queue goes
    /// before one of all.
    fn then(before: Option<Aging>, effect: &Effect, names_queue: bool) -> Option<Aging> {
        match effect {
            Effect::Aging { grace_ms, step_ms } if before.is_none() || names_queue => Some(Aging {
                grace_ms: grace_ms.cast_signed(),
                step_ms: step_ms.cast_signed(),
            }),
            _ => before,
        }
    }

    /// The rank that counts, of a slice that could be claimed since `run_at`.
    pub fn rank(&self, rank: i64, run_at: Timestamp, now: Timestamp) -> i64 {
        let waited_ms = now.since_ms(run_at) - self.grace_ms;
        rank - waited_ms.max(0) / self.step_ms.max(1)
    }
}

/// What lets jobs through while it has room.
#[derive(Debug)]
struct Gate {
    key: BucketKey,
    room: u32,
    taken: u32,
    /// What its bucket is like; `None` where it counts what runs.
    rate: Option<(Rate, Option<i64>)>,
}

/// One of those between which claims are shared out.
#[derive(Debug)]
struct Share {
    key: Arc<str>,
    weight: f64,
    jobs_min: u32,
    /// Jobs that run or are taken.
    used: u32,
    /// Jobs that rounding gave it, over its weight.
    served: f64,
    /// Whether it has work.
    is_active: bool,
}

/// A wanted lane.
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
    /// What a claim from these lanes has to read.
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
        needs.buckets.sort_unstable();
        needs.buckets.dedup();
        needs
    }

    /// How the jobs of each of these lanes age, where nothing but that is said of any of them; `None` where more is.
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

    /// Which gate of a limit a lane goes through.
    fn gate_key(&self, index: usize, lane: &Lane) -> BucketKey {
        let stored = self.get(index);
        let group = match stored.control.scope.each_group {
            true => lane.group.clone(),
            false => Arc::from(""),
        };
        (stored.id, group)
    }

    /// Which share a lane belongs to.
    fn share_key(&self, lane: &Lane, by_queue: bool, by_group: bool) -> Arc<str> {
        let part = |by: bool, name: &str| if by { name.to_owned() } else { String::new() };
        // A line feed stands in no name.
        format!("{}\n{}", part(by_queue, &lane.queue), part(by_group, &lane.group)).into()
    }
}

impl Admission {
    /// The admission of claims from these lanes, given the usage of the limits that they share.
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

    /// How jobs of a wanted lane age.
    pub fn aging(&self, lane: usize) -> Option<Aging> {
        self.lanes[lane].aging
    }

    /// Whether several lanes share the claim.
    pub fn is_shared(&self) -> bool {
        self.shares.len() > 1
    }

    /// How many jobs of a wanted lane may be claimed.
    pub fn room(&self, lane: usize) -> u32 {
        let wanted = &self.lanes[lane];
        if wanted.pause.is_some() {
            return 0;
        }
        let rooms = wanted.gates.iter().map(|gate| self.gates[*gate].room);
        rooms.min().unwrap_or(u32::MAX)
    }

    /// When a wanted lane can be claimed from (again), as far as it is not for its slices.
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

    /// Whether jobs that run could make room, or already did.
    pub fn has_free_slot(&self) -> bool {
        self.gates.iter().any(|gate| gate.rate.is_none() && gate.room > 0)
    }

    /// The buckets that were taken from, and when they were empty.
    pub fn buckets(&self) -> impl Iterator<Item = (&BucketKey, i64)> {
        self.gates.iter().filter_map(|gate| match gate.rate {
            Some((rate, empty_at)) if gate.taken > 0 => {
                Some((&gate.key, rate.take(empty_at, self.now, gate.taken)))
            }
            _ => None,
        })
    }

    /// Takes jobs until the claim is full or nothing is left. `cursors` are the wanted lanes that the cursors of the
    /// line are in.
    ///
    /// Shares with work get running jobs in proportion to their weights, over all workers. Within a share, the order is that
    /// of places. A share whose work ends leaves its part to the others.
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

    /// Notes that jobs of a wanted lane were taken.
    fn charge(&mut self, lane: usize, jobs: u32) {
        let wanted = &self.lanes[lane];
        for gate in &wanted.gates {
            let gate = &mut self.gates[*gate];
            gate.room = gate.room.saturating_sub(jobs);
            gate.taken += jobs;
        }
        let share = &mut self.shares[wanted.share];
        share.used += jobs;
    }

    /// Notes that jobs of a wanted lane were not taken after all.
    pub fn give_back(&mut self, lane: usize, jobs: u32) {
        let wanted = &self.lanes[lane];
        for gate in &wanted.gates {
            let gate = &mut self.gates[*gate];
            gate.room += jobs;
            gate.taken -= jobs;
        }
        let share = &mut self.shares[wanted.share];
        share.used -= jobs;
    }

    /// How many of so many jobs each of these shares gets.
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
        // The rest fills those up that run least for their weight, to one level.
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
        // The remaining whole jobs go to the shares that got the fewest of them before.
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
        for index in rounded {
            let share = &mut self.shares[active[index]];
            share.served += 1.0 / share.weight;
        }
        quotas
    }

    /// Remembers how much each share was served.
    pub fn remember(&self, controls: &mut Controls) {
        if self.is_shared() {
            let served = self.shares.iter().filter(|share| share.is_active);
            controls.serve(served.map(|share| (share.key.clone(), share.served)));
        }
    }
}

impl Share {
    /// The share of lanes that have these controls: those of its queue and of its group.
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
        share
    }
}
