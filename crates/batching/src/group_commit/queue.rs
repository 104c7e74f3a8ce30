//! The queue between submitters and committer, and the line of submitters that wait for space in it.

use std::collections::VecDeque;

use super::group::{Entry, Group};
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use super::ticket::{Ticket, ticket};
use super::waiter::Waiter;
use super::{EnqueueError, GroupLimits};
use crate::EndReason;

/// What all ends share.
pub(super) struct Shared<Op, Reply> {
    limits: GroupLimits,
    queue: Mutex<Queue<Op, Reply>>,
    /// There is something for the committer to see; for its spin only, the queue decides.
    stirred: AtomicBool,
}

/// Invariant: the line is empty whenever the queue is, because an empty queue takes any operation.
struct Queue<Op, Reply> {
    entries: VecDeque<Entry<Op, Reply>>,
    weight: usize,
    /// Operations for which there is no space yet, by ascending number. Each belongs to a caller that is
    /// still there (it takes its operation back when it goes), so the line is no longer than the callers are
    /// many.
    line: VecDeque<InLine<Op, Reply>>,
    line_next: u64,
    submitters: usize,
    committer_gone: bool,
    committer: Option<Waiter>,
}

struct InLine<Op, Reply> {
    number: u64,
    entry: Entry<Op, Reply>,
    /// Who wants to know of the operation's admission; callers of `submit` only wait for the reply.
    admitted: Option<Waiter>,
}

/// Where an operation went.
pub(super) enum Place {
    Queue,
    /// Into the line, under this number.
    Line(u64),
}

/// What the committer finds.
pub(super) enum Next<Op, Reply> {
    Group(Group<Op, Reply>),
    /// Nothing yet.
    Empty,
    /// Nothing ever again.
    Finished,
}

impl<Op, Reply> Shared<Op, Reply> {
    pub(super) fn new(limits: GroupLimits) -> Self {
        let queue = Queue {
            entries: VecDeque::new(),
            weight: 0,
            line: VecDeque::new(),
            line_next: 0,
            submitters: 0,
            committer_gone: false,
            committer: None,
        };
        Shared {
            limits,
            queue: Mutex::new(queue),
            stirred: AtomicBool::new(false),
        }
    }

    pub(super) fn submitter_came(&self) {
        lock(&self.queue).submitters += 1;
    }

    pub(super) fn submitter_went(&self) {
        let mut queue = lock(&self.queue);
        queue.submitters -= 1;
        if queue.submitters == 0 {
            self.stir(queue);
        }
    }

    /// Puts an operation into the queue, or into the line if there is no space and `may_wait`.
    pub(super) fn push(
        &self,
        op: Op,
        weight: usize,
        may_wait: bool,
    ) -> Result<(Ticket<Reply>, Place), EnqueueError<Op>> {
        let (ticket, responder) = ticket();
        let mut queue = lock(&self.queue);
        if queue.committer_gone {
            return Err(EnqueueError::Closed(op));
        }
        if queue.line.is_empty() && queue.has_space(weight, &self.limits) {
            queue.admit(Entry {
                op,
                weight,
                responder,
            });
            self.stir(queue);
            return Ok((ticket, Place::Queue));
        }
        if !may_wait {
            return Err(EnqueueError::Full(op));
        }
        let number = queue.line_next;
        queue.line_next += 1;
        queue.line.push_back(InLine {
            number,
            entry: Entry {
                op,
                weight,
                responder,
            },
            admitted: None,
        });
        Ok((ticket, Place::Line(number)))
    }

    /// Whether the operation has left the line; if not, `waiter` is woken when it does.
    pub(super) fn is_admitted(&self, number: u64, waiter: impl FnOnce() -> Waiter) -> bool {
        let mut queue = lock(&self.queue);
        let Some(index) = queue.find_in_line(number) else {
            return true;
        };
        let before = queue.line[index].admitted.replace(waiter());
        // Dropping a waker may drop a task, and with it anything, so not under the lock.
        drop(queue);
        drop(before);
        false
    }

    /// Takes an operation back that is still in line.
    pub(super) fn withdraw(&self, number: u64) {
        let mut queue = lock(&self.queue);
        let withdrawn = queue
            .find_in_line(number)
            .and_then(|index| queue.line.remove(index));
        // A heavy operation may have held up lighter ones behind it.
        let admitted = queue.admit_line(&self.limits);
        drop(queue);
        drop(withdrawn);
        admitted.into_iter().for_each(Waiter::wake);
    }

    /// Whether a look into the queue is worth its lock.
    pub(super) fn is_stirred(&self) -> bool {
        self.stirred.load(Ordering::Relaxed)
    }

    /// Takes the next group, or else leaves `waiter` to be woken.
    pub(super) fn next(&self, waiter: Option<impl FnOnce() -> Waiter>) -> Next<Op, Reply> {
        let mut queue = lock(&self.queue);
        self.stirred.store(false, Ordering::Relaxed);
        if queue.entries.is_empty() {
            if queue.submitters == 0 {
                return Next::Finished;
            }
            let before = std::mem::replace(&mut queue.committer, waiter.map(|waiter| waiter()));
            drop(queue);
            drop(before);
            return Next::Empty;
        }
        let (group, admitted) = queue.take_group(&self.limits);
        if !queue.entries.is_empty() || queue.submitters == 0 {
            self.stirred.store(true, Ordering::Relaxed);
        }
        drop(queue);
        admitted.into_iter().for_each(Waiter::wake);
        Next::Group(group)
    }

    /// The committer is gone: whatever waits is answered so, and nothing more is accepted.
    pub(super) fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.committer_gone = true;
        let committer = queue.committer.take();
        let entries = std::mem::take(&mut queue.entries);
        let line = std::mem::take(&mut queue.line);
        drop(queue);
        drop(committer);
        for Entry { responder, .. } in entries {
            responder.close();
        }
        for InLine { entry, admitted, .. } in line {
            entry.responder.close();
            admitted.into_iter().for_each(Waiter::wake);
        }
    }

    /// Tells the committer that the queue has changed, and wakes it only if it is parked.
    fn stir(&self, mut queue: MutexGuard<'_, Queue<Op, Reply>>) {
        self.stirred.store(true, Ordering::Relaxed);
        let committer = queue.committer.take();
        drop(queue);
        committer.into_iter().for_each(Waiter::wake);
    }
}

impl<Op, Reply> Queue<Op, Reply> {
    fn has_space(&self, weight: usize, limits: &GroupLimits) -> bool {
        self.entries.is_empty()
            || (self.entries.len() < limits.queue_operations_max
                && self
                    .weight
                    .checked_add(weight)
                    .is_some_and(|weight| weight <= limits.queue_weight_max))
    }

    fn admit(&mut self, entry: Entry<Op, Reply>) {
        self.weight += entry.weight;
        self.entries.push_back(entry);
    }

    fn find_in_line(&self, number: u64) -> Option<usize> {
        self.line
            .binary_search_by_key(&number, |in_line| in_line.number)
            .ok()
    }

    /// Moves operations from the line into the queue, in order, while it has space; returns the waiters to wake.
    fn admit_line(&mut self, limits: &GroupLimits) -> Vec<Waiter> {
        let mut admitted = Vec::new();
        while let Some(first) = self.line.front()
            && self.has_space(first.entry.weight, limits)
            && let Some(first) = self.line.pop_front()
        {
            self.admit(first.entry);
            admitted.extend(first.admitted);
        }
        admitted
    }

    /// Takes everything gathered, up to the limits. The queue is not empty.
    fn take_group(&mut self, limits: &GroupLimits) -> (Group<Op, Reply>, Vec<Waiter>) {
        let mut admitted = Vec::new();
        let mut entries = VecDeque::new();
        let mut weight: usize = 0;
        if self.entries.len() <= limits.operations_max && self.weight <= limits.weight_max {
            // The whole queue at once. The next one will need about as much room.
            let room = VecDeque::with_capacity(self.entries.len());
            entries = std::mem::replace(&mut self.entries, room);
            weight = std::mem::take(&mut self.weight);
            admitted = self.admit_line(limits);
        }
        let end_reason = loop {
            if entries.len() == limits.operations_max {
                break EndReason::Full;
            }
            let Some(first) = self.entries.front() else {
                break EndReason::Drained;
            };
            let fits = weight
                .checked_add(first.weight)
                .is_some_and(|weight| weight <= limits.weight_max);
            if !fits && !entries.is_empty() {
                break EndReason::Bytes;
            }
            weight += first.weight;
            self.weight -= first.weight;
            entries.extend(self.entries.pop_front());
            if self.entries.is_empty() {
                admitted.append(&mut self.admit_line(limits));
            }
        };
        admitted.append(&mut self.admit_line(limits));
        (
            Group {
                entries,
                weight,
                end_reason,
            },
            admitted,
        )
    }
}
