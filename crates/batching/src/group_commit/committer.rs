//! The one end that commits, and the groups that it takes.

use std::collections::{VecDeque, vec_deque};
use std::fmt;
use std::future::poll_fn;
use std::iter::FusedIterator;
use std::task::Poll;

use super::queue::{Entry, Next, Shared};
use super::spin::Spin;
use super::sync::{Arc, park};
use super::ticket::Responder;
use super::waiter::Waiter;
use crate::{EndReason, HopRecorder};

/// The committing end: takes one group after the other. When it is dropped, whatever still waits is answered
/// with [`GroupCommitError::Closed`](super::GroupCommitError::Closed), as is everything submitted later.
pub struct Committer<Op, Reply> {
    shared: Arc<Shared<Op, Reply>>,
    spin: Spin,
    recorder: Option<HopRecorder>,
}

impl<Op, Reply> fmt::Debug for Committer<Op, Reply> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Committer").finish_non_exhaustive()
    }
}

impl<Op, Reply> Drop for Committer<Op, Reply> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<Op, Reply> Committer<Op, Reply> {
    pub(super) fn new(shared: Arc<Shared<Op, Reply>>) -> Self {
        Committer {
            shared,
            spin: Spin::new(),
            recorder: None,
        }
    }

    /// From now on, every group taken is counted in `recorder`, with its size and the reason for which it
    /// ended.
    pub fn record_into(&mut self, recorder: HopRecorder) {
        self.recorder = Some(recorder);
    }

    /// Blocks this thread until something is queued, and takes everything gathered, up to the limits. `None`
    /// once all submitters are gone and the queue is empty.
    pub fn next_group(&mut self) -> Option<Group<Op, Reply>> {
        self.spin.until(|| self.shared.is_stirred());
        loop {
            match self.shared.next(Some(Waiter::current_thread)) {
                Next::Group(group) => return Some(self.count(group)),
                Next::Finished => return None,
                Next::Empty => park(),
            }
        }
    }

    /// As [`next_group`](Committer::next_group), for a task instead of a thread. Dropping the future loses
    /// nothing.
    pub async fn next_group_async(&mut self) -> Option<Group<Op, Reply>> {
        poll_fn(
            |context| match self.shared.next(Some(|| Waiter::Task(context.waker().clone()))) {
                Next::Group(group) => Poll::Ready(Some(self.count(group))),
                Next::Finished => Poll::Ready(None),
                Next::Empty => Poll::Pending,
            },
        )
        .await
    }

    /// What has gathered up to this moment, without waiting. `None` if that is nothing.
    pub fn try_next_group(&mut self) -> Option<Group<Op, Reply>> {
        match self.shared.next(None::<fn() -> Waiter>) {
            Next::Group(group) => Some(self.count(group)),
            Next::Finished | Next::Empty => None,
        }
    }

    fn count(&self, group: Group<Op, Reply>) -> Group<Op, Reply> {
        if let Some(recorder) = &self.recorder {
            recorder.record(group.len(), group.end_reason);
        }
        group
    }
}

/// Operations to be carried out together, in the order in which they were submitted; at least one. Those that
/// are dropped unanswered, with the group or with their [`Responder`], are answered with
/// [`GroupCommitError::Abandoned`](super::GroupCommitError::Abandoned).
pub struct Group<Op, Reply> {
    pub(super) entries: VecDeque<Entry<Op, Reply>>,
    pub(super) weight: usize,
    /// Why the group ended: `Full`, `Bytes` (by weight) or `Drained`.
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
    /// Operations in the group.
    #[expect(clippy::len_without_is_empty, reason = "a group is never empty")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Their weight together.
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

/// The operations of a [`Group`], each with the duty to answer it.
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
