//! Programs, and the random choice of them.

use gristmill_model::{Rng, SplitMix64};
use serde::{Deserialize, Serialize};

/// The kinds of plain steps. Jobs of the second one wait before they are tried again.
pub(super) const STEPS: [&str; 2] = ["step", "slow"];
/// The kind of flows.
pub(super) const FLOW: &str = "program";
/// The names of events.
pub(super) const EVENTS: [&str; 2] = ["approve", "deny"];

/// The most nodes of a program.
const NODES_MAX: u32 = 14;
/// The most levels of a program.
const DEPTH_MAX: u32 = 5;
/// The attempts of each job.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// A part of a program. Each has a number as its value, or fails.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Node {
    /// A job.
    Step {
        kind: usize,
        /// The attempts that fail: all, if there are no more.
        failing: u32,
        /// Whether the step has a key.
        keyed: bool,
    },
    /// Several jobs. One of them may fail.
    Map {
        count: u32,
        failing: Option<u32>,
    },
    Sleep {
        ms: u64,
    },
    Event {
        name: usize,
        within_ms: Option<u64>,
    },
    /// A value that is different each time that it is made.
    Local,
    /// A panic of the flow's own code, at the first visit. The flow is tried again.
    Stumble,
    /// One after the other, until one fails.
    Sequence(Vec<Node>),
    /// All at once. Waits for all, and fails as the first in order.
    Gather(Vec<Node>),
    /// All at once. Goes on as soon as one fails.
    Strict(Vec<Node>),
    /// All at once. Ends as the first to end.
    Race(Vec<Node>),
    /// The second runs if the first fails.
    Try(Box<Node>, Box<Node>),
    /// One of two, by the number of the flow.
    Either(Box<Node>, Box<Node>),
    Repeat(u32, Box<Node>),
    /// Another flow.
    Child(Program),
}

/// The program of a flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Program {
    pub node: Box<Node>,
    /// How often the flow begins anew. Only its last round has a result.
    pub anew: u32,
}

/// The payload of a flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FlowPayload {
    /// The name of the flow, which no other has.
    pub id: String,
    pub number: u32,
    pub program: Program,
    /// How often it has begun anew.
    pub round: u32,
}

/// The name of a flow's node in a round.
pub(super) fn root(id: &str, round: u32) -> String {
    match round {
        0 => id.to_owned(),
        round => format!("{id}~{round}"),
    }
}

/// The payload of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StepPayload {
    /// The name of the step, which no other has.
    pub id: String,
    pub failing: u32,
}

/// The value of a step.
pub(super) fn value_of(id: &str) -> u64 {
    let bytes = id.bytes();
    bytes.fold(7, |all, byte| mix(all, u64::from(byte)))
}

/// Mixes two values. The order matters.
pub(super) fn mix(one: u64, other: u64) -> u64 {
    // Few enough bits for each reader of JSON.
    SplitMix64::new(one.rotate_left(7) ^ other).next_u64() >> 20
}

/// Makes random programs.
pub(super) struct Generator<'r> {
    pub rng: &'r mut SplitMix64,
    left: u32,
}

impl<'r> Generator<'r> {
    pub fn new(rng: &'r mut SplitMix64) -> Self {
        let left = 2 + rng.below(u64::from(NODES_MAX)) as u32;
        Generator { rng, left }
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }

    /// The program of a flow. It always has something to await.
    pub fn program(&mut self, depth: u32) -> Program {
        Program {
            node: Box::new(Node::Sequence(vec![self.node(depth), self.step()])),
            anew: if self.happens(30) {
                1 + self.rng.below(2) as u32
            } else {
                0
            },
        }
    }

    fn node(&mut self, depth: u32) -> Node {
        self.left = self.left.saturating_sub(1);
        if depth >= DEPTH_MAX || self.left == 0 {
            return self.leaf();
        }
        let next = depth + 1;
        match self.rng.below(20) {
            0..=3 => Node::Sequence(self.nodes(next)),
            4..=5 => Node::Gather(self.nodes(next)),
            6 => Node::Strict(self.nodes(next)),
            7..=8 => Node::Race(self.nodes(next)),
            9 => self.listening(),
            10 => Node::Try(Box::new(self.node(next)), Box::new(self.node(next))),
            11 => Node::Either(Box::new(self.node(next)), Box::new(self.node(next))),
            12 => Node::Repeat(2 + self.rng.below(2) as u32, Box::new(self.node(next))),
            13..=14 => Node::Child(self.program(next)),
            _ => self.leaf(),
        }
    }

    /// A loop whose waits for an event lose races: the event that one has got is for the next.
    fn listening(&mut self) -> Node {
        let event = Node::Event {
            name: 0,
            within_ms: None,
        };
        let sleep = Node::Sleep {
            ms: 1 + self.rng.below(5),
        };
        Node::Repeat(4, Box::new(Node::Race(vec![sleep, event])))
    }

    fn nodes(&mut self, depth: u32) -> Vec<Node> {
        (0..2 + self.rng.below(2)).map(|_| self.node(depth)).collect()
    }

    fn leaf(&mut self) -> Node {
        match self.rng.below(12) {
            0..=4 => self.step(),
            5..=6 => {
                let count = self.rng.below(5) as u32;
                Node::Map {
                    failing: (count > 0 && self.happens(20)).then(|| self.rng.below(u64::from(count)) as u32),
                    count,
                }
            }
            7 => Node::Sleep {
                ms: 1 + self.rng.below(30),
            },
            8..=9 => Node::Event {
                name: self.rng.below(EVENTS.len() as u64) as usize,
                within_ms: self.happens(50).then(|| 1 + self.rng.below(40)),
            },
            10 => Node::Local,
            _ => Node::Stumble,
        }
    }

    fn step(&mut self) -> Node {
        Node::Step {
            kind: self.rng.below(STEPS.len() as u64) as usize,
            failing: match self.rng.below(10) {
                0 => ATTEMPTS_MAX,
                1 => 1,
                _ => 0,
            },
            keyed: self.happens(30),
        }
    }
}
