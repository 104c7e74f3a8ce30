//! Groups of operations.

use std::collections::{VecDeque, vec_deque};
use std::fmt;
use std::iter::FusedIterator;

use super::ticket::Responder;
use crate::EndReason;

/// An operation with its weight, and the means to answer it.
pub(super) struct Entry<Op, Reply> {
    pub(super) op: Op,
    pub(super) weight: usize,
    pub(super) responder: Responder<Reply>,
}

/// Operations to execute together, in the order of their submits; at least one. An operation that is dropped without an
/// answer, with the group or with its [`Responder`], is answered with
/// [`GroupCommitError::Abandoned`](super::GroupCommitError::Abandoned).
pub struct Group<Op, Reply> {
    pub(super) entries: VecDeque<Entry<Op, Reply>>,
    pub(super) weight: usize,
    /// The reason of the group's end: `Full`, `Bytes` (by weight) or `Drained`.
    pub end_reason: EndReason,
}

impl<Op, Reply> fmt::Debug for Group<Op, Reply> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Group")
            .field("operations", &self.len())
            .field("weight", &self.weight)
            .field("end_reason", &self.end_reason)
            .finish()
    }
}

impl<Op, Reply> Group<Op, Reply> {
    /// Number of operations in the group.
    #[expect(clippy::len_without_is_empty, reason = "a group is never empty")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The weight of all operations.
    pub fn weight(&self) -> usize {
        self.weight
    }
}

impl<Op, Reply> IntoIterator for Group<Op, Reply> {
    type Item = (Op, Responder<Reply>);
    type IntoIter = GroupIntoIter<Op, Reply>;

    fn into_iter(self) -> Self::IntoIter {
        GroupIntoIter {
            entries: self.entries.into_iter(),
        }
    }
}

/// The operations of a [`Group`], each with the means to answer it.
pub struct GroupIntoIter<Op, Reply> {
    entries: vec_deque::IntoIter<Entry<Op, Reply>>,
}

impl<Op, Reply> fmt::Debug for GroupIntoIter<Op, Reply> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("GroupIntoIter")
            .field("operations_left", &self.entries.len())
            .finish()
    }
}

impl<Op, Reply> Iterator for GroupIntoIter<Op, Reply> {
    type Item = (Op, Responder<Reply>);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(|entry| (entry.op, entry.responder))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<Op, Reply> ExactSizeIterator for GroupIntoIter<Op, Reply> {}
impl<Op, Reply> FusedIterator for GroupIntoIter<Op, Reply> {}
