//! Merges a group's operations: single submits are packed, everything else is carried out as it came.

use gristmill_batching::{Group, Responder};
use gristmill_model::NewBatch;
use gristmill_store::rules::pack::Merge;

use crate::failure::Result;
use crate::transaction::Transaction;
use crate::writer::operation::{Durability, Operation, Reply, Work, WriterReply};

/// A merged group: the units, and the callers that wait for them, in the same order.
pub(crate) struct Merged {
    parts: Vec<Part>,
    /// One for each operation, in the order of the units.
    pub responders: Vec<Responder<WriterReply>>,
    /// The caller that closes the store, if any.
    pub closing: Option<Responder<WriterReply>>,
}

enum Part {
    /// At least one.
    Singles(Vec<NewBatch>),
    Work(Work),
}

/// Operations that succeed or fail as a whole.
#[derive(Clone, Copy)]
pub(crate) enum Unit<'a> {
    /// Single jobs that become one batch.
    Singles(&'a [NewBatch]),
    Work(&'a Work),
}

/// Merges the single submits of a group.
pub(crate) fn merge(group: Group<Operation, WriterReply>) -> Merged {
    let mut merged = Merged {
        parts: Vec::new(),
        responders: Vec::new(),
        closing: None,
    };
    let mut merges: Vec<Merge<Responder<WriterReply>>> = Vec::new();
    for (operation, responder) in group {
        match operation {
            Operation::Work(work) => {
                merged.parts.push(Part::Work(work));
                merged.responders.push(responder);
            }
            Operation::Single(single) => gristmill_store::rules::pack::merge(&mut merges, single, responder),
            Operation::Close => merged.closing = Some(responder),
        }
    }
    for merge in merges {
        merged.parts.push(Part::Singles(merge.singles));
        merged.responders.extend(merge.waiting);
    }
    merged
}

impl Merged {
    /// The units, in order.
    pub fn units(&self) -> Vec<Unit<'_>> {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Singles(singles) => Unit::Singles(singles),
                Part::Work(work) => Unit::Work(work),
            })
            .collect()
    }
}

impl<'a> Unit<'a> {
    /// The number of its operations.
    pub fn len(&self) -> usize {
        match self {
            Unit::Singles(singles) => singles.len(),
            Unit::Work(_) => 1,
        }
    }

    /// Reports whether its answer must wait for the disk.
    pub fn needs_sync(&self) -> bool {
        match self {
            Unit::Singles(_) => true,
            Unit::Work(work) => work.durability == Durability::Promised,
        }
    }

    /// Each operation as a unit of its own.
    pub fn split(self) -> Vec<Unit<'a>> {
        match self {
            Unit::Singles(singles) => singles
                .iter()
                .map(|single| Unit::Singles(std::slice::from_ref(single)))
                .collect(),
            Unit::Work(_) => vec![self],
        }
    }

    /// Carries it out; returns one reply for each operation.
    pub fn run(self, transaction: &mut Transaction<'_>) -> Result<Vec<Reply>> {
        match self {
            Unit::Singles(singles) => {
                let jobs = transaction.submit_singles(singles)?;
                Ok(jobs.into_iter().map(Reply::Single).collect())
            }
            Unit::Work(work) => Ok(vec![Reply::Work((work.run)(transaction)?)]),
        }
    }
}
