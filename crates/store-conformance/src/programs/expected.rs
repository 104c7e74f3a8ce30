//! The interpreter: the result that a program must have.

use std::collections::BTreeSet;

use crate::programs::node::{ATTEMPTS_MAX, Node, Program, mix, root, value_of};
use crate::programs::record::{Id, Records};

/// Finds the results of flows, from what they have seen of the world: the decided races, events, and jobs that were
/// cancelled by hand.
pub(super) struct Interpreter<'a> {
    pub records: &'a Records,
    /// The steps and child flows that were cancelled by hand.
    pub cancelled: &'a BTreeSet<Id>,
    pub number: u32,
}

impl Interpreter<'_> {
    /// The value of a flow; or the step that failed.
    pub fn flow(&self, program: &Program, id: &str) -> Result<u64, Id> {
        self.result(&program.node, &root(id, program.anew))
    }

    /// The value of a node; or the step that failed.
    fn result(&self, node: &Node, path: &str) -> Result<u64, Id> {
        let child = |number: usize| format!("{path}/{number}");
        match node {
            Node::Step { failing, .. } => match self.step(path, *failing) {
                true => Ok(value_of(path)),
                false => Err(path.to_owned()),
            },
            Node::Child(_) if self.cancelled.contains(path) => Err(path.to_owned()),
            Node::Child(program) => self.flow(program, path),
            Node::Map { count, failing } => {
                let mut all = 8;
                for number in 0..*count {
                    let id = format!("{path}#{number}");
                    let failing = if *failing == Some(number) { ATTEMPTS_MAX } else { 0 };
                    match self.step(&id, failing) {
                        true => all = mix(all, value_of(&id)),
                        false if self.cancelled.contains(&id) => return Err(path.to_owned()),
                        false => return Err(id),
                    }
                }
                Ok(all)
            }
            Node::Sleep { .. } => Ok(1),
            Node::Event { within_ms, .. } => {
                let seen = self.records.seen.get(path);
                let value = seen.and_then(|seen| seen.strip_prefix("Ok(")?.strip_suffix(')')?.parse().ok());
                let value = value.unwrap_or_else(|| panic!("the event of {path} was not seen: {seen:?}"));
                assert!(value > 0 || within_ms.is_some(), "{path} waits without a limit");
                Ok(value)
            }
            Node::Local => Ok(self.decision(path)),
            Node::Stumble => Ok(2),
            Node::Sequence(nodes) => {
                let mut all = 3;
                for (number, node) in nodes.iter().enumerate() {
                    all = mix(all, self.result(node, &child(number))?);
                }
                Ok(all)
            }
            Node::Gather(nodes) => {
                let numbered = nodes.iter().enumerate();
                let ended: Vec<_> = numbered
                    .map(|(number, node)| self.result(node, &child(number)))
                    .collect();
                ended.into_iter().try_fold(4, |all, one| Ok(mix(all, one?)))
            }
            Node::Strict(nodes) => match self.decision(path) as usize {
                0 => {
                    let mut all = 6;
                    for (number, node) in nodes.iter().enumerate() {
                        all = mix(all, self.result(node, &child(number))?);
                    }
                    Ok(all)
                }
                failed => match self.result(&nodes[failed - 1], &child(failed - 1)) {
                    Err(failure) => Err(failure),
                    Ok(_) => panic!("{path} failed by branch {}, which succeeds", failed - 1),
                },
            },
            Node::Race(nodes) => {
                let winner = self.decision(path);
                let ended = self.result(&nodes[winner as usize], &child(winner as usize));
                Ok(mix(winner, ended?))
            }
            Node::Try(first, second) => match self.result(first, &child(0)) {
                Ok(value) => Ok(value),
                Err(_) => self.result(second, &child(1)),
            },
            Node::Either(even, odd) => match self.number.is_multiple_of(2) {
                true => self.result(even, &child(0)),
                false => self.result(odd, &child(1)),
            },
            Node::Repeat(times, node) => {
                let mut all = 5;
                for number in 0..*times as usize {
                    all = mix(all, self.result(node, &child(number))?);
                }
                Ok(all)
            }
        }
    }

    /// Whether a job succeeds.
    fn step(&self, id: &str, failing: u32) -> bool {
        failing < ATTEMPTS_MAX && !self.cancelled.contains(id)
    }

    fn decision(&self, path: &str) -> u64 {
        let decided = self.records.decided.get(path);
        *decided.unwrap_or_else(|| panic!("nothing is decided at {path}"))
    }
}
