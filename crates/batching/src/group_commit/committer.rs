//! The committing end of a group commit.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;

use super::group::Group;
use super::queue::{Next, Shared};
use super::spin::Spin;
use super::sync::{Arc, park};
use super::waiter::Waiter;
use crate::HopRecorder;

/// The committing end, which takes one group after another. When it is dropped, waiting and later operations are
/// answered with [`GroupCommitError::Closed`](super::GroupCommitError::Closed).
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

    /// Counts every further group in `recorder`, with its size and the reason of its end.
    pub fn record_into(&mut self, recorder: HopRecorder) {
        self.recorder = Some(recorder);
    }

    /// Blocks this thread until operations are queued, and takes all of them, up to the limits. `None` once all
    /// submitters are gone and the queue is empty.
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

    /// Takes a group like [`next_group`](Committer::next_group), for a task instead of a thread. Dropping the future
    /// loses nothing.
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

    /// Takes the operations that have gathered up to now, without waiting; `None` if there are none.
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
