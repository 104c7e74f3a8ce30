//! The queue between submitters and committer, and the line of submitters that wait for room in it.

use std::collections::VecDeque;

use super::group::{Entry, Group};
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use super::ticket::{Ticket, ticket};
use super::waiter::Waiter;
use super::{EnqueueError, GroupLimits};
use crate::EndReason;

/// The state that all ends share.
pub(super) struct Shared<Op, Reply> {
    limits: GroupLimits,
    queue: Mutex<Queue<Op, Reply>>,
    /// Whether the committer should look into the queue. Only its spin reads this; the queue decides.
    stirred: AtomicBool,
}

/// Invariant: the line is empty if the queue is, because an empty queue accepts any operation.
struct Queue<Op, Reply> {
    entries: VecDeque<Entry<Op, Reply>>,
    weight: usize,
    /// Operations without room in the queue, by ascending number. Each belongs to a caller that still waits, because a
    /// caller that leaves takes its operation back. So the line is no longer than the number of callers.
    line: VecDeque<InLine<Op, Reply>>,
    line_next: u64,
    submitters: usize,
    committer_gone: bool,
    committer: Option<Waiter>,
}

struct InLine<Op, Reply> {
    number: u64,
    entry: Entry<Op, Reply>,
    /// The waiter for the admission. Callers of `submit` only wait for the reply.
    admitted: Option<Waiter>,
}

/// The place of an operation.
pub(super) enum Place {
    /// The queue.
    Queue,
    /// The line, under this number.
    Line(u64),
}

/// The result of a look into the queue.
pub(super) enum Next<Op, Reply> {
    Group(Group<Op, Reply>),
    /// There are no operations yet.
    Empty,
    /// There will never be operations again.
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
        assert!(queue.submitters > 0, "a submitter goes once");
        queue.submitters -= 1;
        if queue.submitters == 0 {
            self.stir(queue);
        }
    }

    /// Puts an operation into the queue, or into the line if there is no room and `may_wait` is set.
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
        assert!(
            queue.line.back().is_none_or(|last| last.number < number),
            "operations in line have ascending numbers"
        );
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

    /// Whether the operation has left the line. If not, `waiter` is woken when it does.
    pub(super) fn is_admitted(&self, number: u64, waiter: impl FnOnce() -> Waiter) -> bool {
        let mut queue = lock(&self.queue);
        let Some(index) = queue.find_in_line(number) else {
            return true;
        };
        assert_eq!(queue.line[index].number, number);
        let before = queue.line[index].admitted.replace(waiter());
        // Dropping a waker may drop a task, and any value with it, so it happens outside the lock.
        drop(queue);
        drop(before);
        false
    }

    /// Removes an operation that is still in line.
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

    /// Takes the next group. Without one, `waiter` is woken when there is one.
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

    /// Records that the committer is gone. Waiting operations are answered with an error, and no more are accepted.
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

    /// Tells the committer that the queue has changed. Wakes it only if it is parked.
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

    /// Moves operations from the line into the queue, in order, while there is room. Returns the waiters to wake.
    fn admit_line(&mut self, limits: &GroupLimits) -> Vec<Waiter> {
        let mut admitted = Vec::new();
        while let Some(first) = self.line.front()
            && self.has_space(first.entry.weight, limits)
            && let Some(first) = self.line.pop_front()
        {
            self.admit(first.entry);
            admitted.extend(first.admitted);
        }
        assert!(
            !self.entries.is_empty() || self.line.is_empty(),
            "an empty queue leaves no operation in line"
        );
        admitted
    }

    /// Takes the gathered operations, up to the limits. The queue is not empty.
    fn take_group(&mut self, limits: &GroupLimits) -> (Group<Op, Reply>, Vec<Waiter>) {
        let mut admitted = Vec::new();
        let mut entries = VecDeque::new();
        let mut weight: usize = 0;
        if self.entries.len() <= limits.operations_max && self.weight <= limits.weight_max {
            // Take the whole queue at once. The next one needs about as much room.
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
        assert!(!entries.is_empty(), "a group has at least one operation");
        assert!(
            entries.len() <= limits.operations_max,
            "a group keeps to its limit of operations"
        );
        assert!(
            weight <= limits.weight_max || entries.len() == 1,
            "only a lone operation may exceed the weight of a group"
        );
        debug_assert_eq!(
            weight,
            entries.iter().map(|entry| entry.weight).sum::<usize>(),
            "a group weighs as much as its operations"
        );
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
