//! Sequences that begin with a job in each of some hundreds of groups: answers and claims grow with the lanes.

use gristmill_model::NewBatch;
use proptest::prelude::*;

use crate::fixture::*;
use crate::machine::step::{Step, step};

/// Groups of such a sequence: more than the names of which fit into one packet.
const GROUPS: u32 = 300;

/// How many groups a sequence begins with, mostly none, and its operations.
pub(super) fn sequence() -> impl Strategy<Value = (u32, Vec<Step>)> {
    let groups = prop_oneof![24 => Just(0), 1 => Just(GROUPS)];
    (groups, proptest::collection::vec(step(), 1..60))
}

/// A job of a kind in each of so many groups.
pub(super) fn jobs_of_groups(groups: u32, kind: &str) -> Vec<NewBatch> {
    let in_group = |group| {
        let mut new = batch_of(kind, 1);
        new.options.group = Some(format!("tenant {group}"));
        new
    };
    (0..groups).map(in_group).collect()
}
