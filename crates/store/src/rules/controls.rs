//! Controls as both stores use them: the controls of each lane.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_model::limits::CONTROLS_MAX;
use gristmill_model::{Control, Effect, Scope};

use crate::StoreError;
use crate::rules::lanes::Lane;

/// Which controls are meant. Conditions that are `None` or empty leave all through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlFilter {
    /// Only those of these effects, by [name](Effect::name).
    pub effects: Vec<&'static str>,
    /// Only those of exactly this scope.
    pub scope: Option<Scope>,
    /// Only pauses of this reason.
    pub reason: Option<String>,
}

impl ControlFilter {
    /// Whether it is one of those.
    pub fn admits(&self, control: &Control) -> bool {
        let reason = match &control.effect {
            Effect::Pause { reason, .. } => Some(reason),
            _ => None,
        };
        (self.effects.is_empty() || self.effects.contains(&control.effect.name()))
            && self.scope.as_ref().is_none_or(|scope| *scope == control.scope)
            && (self.reason.is_none() || self.reason.as_ref() == reason)
    }
}

/// Refuses controls that cannot be, and those that would be too many.
pub fn check_controls(controls: &[Control]) -> Result<(), StoreError> {
    for control in controls {
        control
            .check()
            .map_err(|error| StoreError::InvalidInput(error.to_string()))?;
    }
    match controls.len() > CONTROLS_MAX {
        true => Err(too_many_controls()),
        false => Ok(()),
    }
}

/// The error of one control too many.
pub fn too_many_controls() -> StoreError {
    StoreError::InvalidInput(format!(
        "the store holds at most {CONTROLS_MAX} controls: lift some, or set one for each group of a scope"
    ))
}

/// A control as it is stored.
#[derive(Debug, Clone)]
pub struct StoredControl {
    /// Its id in the store.
    pub id: i64,
    /// The control.
    pub control: Control,
}

/// What a control's scope names, as a key.
type ScopeKey = (Option<Arc<str>>, Option<Arc<str>>, Option<Arc<str>>);

/// All controls of a store, as of one version of them.
#[derive(Debug, Default)]
pub struct Controls {
    version: i64,
    all: Vec<StoredControl>,
    by_scope: HashMap<ScopeKey, Vec<usize>>,
    by_lane: HashMap<i64, Arc<[usize]>>,
    limits_concurrency: bool,
    shares_by: (bool, bool),
    /// Jobs that rounding gave each share in this process, over its weight: so a worker that takes one at a time goes
    /// round.
    served: HashMap<Arc<str>, f64>,
    /// What those that had work at the last claim were served at least.
    served_least: f64,
}

impl Controls {
    /// Which version of the store's controls these are; 0 where none were ever set.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Puts another version in the place of this one.
    pub fn replace(&mut self, version: i64, all: Vec<StoredControl>) {
        let named = |name: &Option<String>| name.as_deref().map(Arc::from);
        self.version = version;
        self.by_lane.clear();
        self.by_scope.clear();
        for (index, stored) in all.iter().enumerate() {
            let scope = &stored.control.scope;
            let key = (named(&scope.queue), named(&scope.kind), named(&scope.group));
            self.by_scope.entry(key).or_default().push(index);
        }
        self.limits_concurrency = false;
        self.shares_by = (false, false);
        for stored in &all {
            let scope = &stored.control.scope;
            match stored.control.effect {
                Effect::Concurrency { .. } => self.limits_concurrency = true,
                Effect::Share { .. } => {
                    self.shares_by.0 |= scope.queue.is_some();
                    self.shares_by.1 |= scope.group.is_some();
                }
                _ => {}
            }
        }
        self.all = all;
    }

    /// Whether slots may become free that somebody waits for.
    pub fn limits_concurrency(&self) -> bool {
        self.limits_concurrency
    }

    /// Whether claims are shared out between queues, and between groups.
    pub(crate) fn shares_by(&self) -> (bool, bool) {
        self.shares_by
    }

    /// The controls of a lane, by their places.
    pub fn of(&mut self, lane: &Lane) -> Arc<[usize]> {
        if let Some(known) = self.by_lane.get(&lane.id) {
            return known.clone();
        }
        let mut found = Vec::new();
        for parts in 0..8 {
            let part = |bit: u8, name: &Arc<str>| (parts & bit != 0).then(|| name.clone());
            let key = (part(1, &lane.queue), part(2, &lane.kind), part(4, &lane.group));
            for index in self.by_scope.get(&key).into_iter().flatten() {
                let scope = &self.all[*index].control.scope;
                if scope.covers(&lane.queue, &lane.kind, &lane.group) {
                    found.push(*index);
                }
            }
        }
        found.sort_unstable();
        let found: Arc<[usize]> = found.into();
        self.by_lane.insert(lane.id, found.clone());
        found
    }

    /// The control at a place.
    pub fn get(&self, index: usize) -> &StoredControl {
        &self.all[index]
    }

    /// How much rounding has given a share in this process. One that had no work for a while does not catch up.
    pub fn served(&self, share: &str) -> f64 {
        let served = self.served.get(share).copied();
        served.unwrap_or(self.served_least).max(self.served_least)
    }

    /// Notes how much rounding has given the shares that had work.
    pub fn serve(&mut self, served: impl IntoIterator<Item = (Arc<str>, f64)>) {
        let mut least = f64::INFINITY;
        for (share, served) in served {
            least = least.min(served);
            self.served.insert(share, served);
        }
        if least.is_finite() {
            self.served_least = least;
        }
    }
}
