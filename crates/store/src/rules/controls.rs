//! The controls of each lane, in the form that both stores use.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_model::limits::CONTROLS_MAX;
use gristmill_model::{Control, Effect, Scope};

use crate::StoreError;
use crate::rules::lanes::Lane;

/// A filter of controls. Conditions that are `None` or empty allow all controls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlFilter {
    /// Allows controls with these effects, by [name](Effect::name).
    pub effects: Vec<&'static str>,
    /// Allows controls with exactly this scope.
    pub scope: Option<Scope>,
    /// Allows pauses with this reason.
    pub reason: Option<String>,
}

impl ControlFilter {
    /// Whether a control passes the filter.
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

/// Refuses invalid controls, and too many of them.
pub fn check_controls(controls: &[Control]) -> Result<(), StoreError> {
    for control in controls {
        control
            .check()
            .map_err(|error| StoreError::InvalidInput(error.to_string()))?;
    }
    if controls.len() > CONTROLS_MAX {
        return Err(too_many_controls());
    }
    Ok(())
}

/// Makes the error for too many controls.
pub fn too_many_controls() -> StoreError {
    StoreError::InvalidInput(format!(
        "the store holds at most {CONTROLS_MAX} controls: lift some, or set one for each group of a scope"
    ))
}

/// A stored control.
#[derive(Debug, Clone)]
pub struct StoredControl {
    /// Its id in the store.
    pub id: i64,
    /// The control.
    pub control: Control,
}

/// The names in a control's scope, as a key.
type ScopeKey = (Option<Arc<str>>, Option<Arc<str>>, Option<Arc<str>>);

/// All controls of a store, in one version.
#[derive(Debug, Default)]
pub struct Controls {
    version: i64,
    all: Vec<StoredControl>,
    by_scope: HashMap<ScopeKey, Vec<usize>>,
    by_lane: HashMap<i64, Arc<[usize]>>,
    limits_concurrency: bool,
    shares_by: (bool, bool),
    /// Jobs that rounding gave each share in this process, divided by its weight. So a worker that takes one job at a
    /// time serves the shares in turn.
    served: HashMap<Arc<str>, f64>,
    /// The smallest such number among the shares with work at the last claim.
    served_least: f64,
}

impl Controls {
    /// The version of the store's controls; 0 if none were ever set.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Whether there are no controls.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Replaces the controls by another version.
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

    /// Whether a limit may free slots for which someone waits.
    pub fn limits_concurrency(&self) -> bool {
        self.limits_concurrency
    }

    /// Whether queues, and whether groups, have shares in claims.
    pub(crate) fn shares_by(&self) -> (bool, bool) {
        self.shares_by
    }

    /// The controls of a lane, by their indexes.
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
        debug_assert!(found.is_sorted_by(|one, next| one < next), "counted once");
        let found: Arc<[usize]> = found.into();
        self.by_lane.insert(lane.id, found.clone());
        found
    }

    /// The control at an index.
    pub fn get(&self, index: usize) -> &StoredControl {
        &self.all[index]
    }

    /// The jobs that rounding gave a share in this process. A share that had no work for a while does not catch up.
    pub fn served(&self, share: &str) -> f64 {
        let served = self.served.get(share).copied();
        served.unwrap_or(self.served_least).max(self.served_least)
    }

    /// Stores the jobs that rounding gave the shares with work.
    pub fn serve(&mut self, served: impl IntoIterator<Item = (Arc<str>, f64)>) {
        let mut least = f64::INFINITY;
        for (share, served) in served {
            least = least.min(served);
            self.served.insert(share, served);
        }
        assert!(least >= self.served_least, "what shares got does not shrink");
        if least.is_finite() {
            self.served_least = least;
        }
    }
}
