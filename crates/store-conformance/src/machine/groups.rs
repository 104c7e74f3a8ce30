//! Sequences that start with a job in each of several hundred groups. Answers and claims grow with the lanes.

use gristmill_model::NewBatch;
use proptest::prelude::*;

use crate::fixture::*;
use crate::machine::policy;
use crate::machine::step::{Step, Submission, step, step_of_flows};

/// The number of groups of such a sequence. Their names do not fit into one packet.
const GROUPS: u32 = 300;

/// The number of groups of a sequence, usually 0, and its operations.
pub(super) fn sequence() -> impl Strategy<Value = (u32, Vec<Step>)> {
    let groups = prop_oneof![24 => Just(0), 1 => Just(GROUPS)];
    let steps = prop_oneof![
        2 => proptest::collection::vec(step(), 1..60),
        1 => proptest::collection::vec(step_of_flows(), 20..80).prop_map(|mut steps| {
            steps.insert(0, Step::Submit(Submission::of(4)));
            steps
        }),
    ];
    (groups, steps)
}

/// One job of a kind in each of this many groups.
pub(super) fn jobs_of_groups(groups: u32, kind: &str) -> Vec<NewBatch> {
    let in_group = |group| {
        let mut new = batch_of(kind, 1);
        new.options.group = Some(format!("tenant {group}"));
        new.options.retry = policy(2);
        new
    };
    (0..groups).map(in_group).collect()
}
