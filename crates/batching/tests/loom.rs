//! Every interleaving (with a limited number of preemptions) of the ends of a group commit, explored by loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gristmill-batching --test loom --target host-tuple`
//!
//! Loom itself fails a model in which a thread waits for ever (a lost wake-up), or in which a value is never dropped (a
//! lost operation or reply).

#![cfg(loom)]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::{Context, Waker};

use gristmill_batching::{
    Committer, EndReason, GroupCommitError, GroupLimits, Seat, Submitter, Ticket, group_commit,
};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

const LIMITS: GroupLimits = GroupLimits {
    operations_max: 2,
    weight_max: 100,
    queue_operations_max: 2,
    queue_weight_max: 100,
};
/// Limits of a queue with room for one operation, so that a second caller has to wait.
const NARROW: GroupLimits = GroupLimits {
    queue_operations_max: 1,
    ..LIMITS
};

/// Explores `model` with `preemptions_max` preemptions; more find nothing new in models this small, and take
/// minutes.
fn explore(
    preemptions_max: usize,
    model: impl Fn(Submitter<u32, u32>, Committer<u32, u32>) + Sync + Send + 'static,
) {
    explore_with(LIMITS, preemptions_max, model);
}

fn explore_with(
    limits: GroupLimits,
    preemptions_max: usize,
    model: impl Fn(Submitter<u32, u32>, Committer<u32, u32>) + Sync + Send + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.check(move || {
        let (submitter, committer) = group_commit(limits);
        model(submitter, committer);
    });
}

/// Commits until all submitters are gone, replies with tenfold the operation, and returns the operations in
/// order.
fn commit_all(mut committer: Committer<u32, u32>) -> Vec<u32> {
    let mut committed = Vec::new();
    while let Some(group) = committer.next_group() {
        for (operation, responder) in group {
            committed.push(operation);
            responder.reply(operation * 10);
        }
    }
    committed
}

#[test]
fn two_threads_get_their_own_replies() {
    explore(3, |submitter, committer| {
        let second = submitter.clone();
        let threads = [(submitter, 1), (second, 2)]
            .map(|(submitter, operation)| thread::spawn(move || submitter.submit_blocking(operation, 1)));
        let mut committed = commit_all(committer);
        committed.sort_unstable();
        assert_eq!(committed, [1, 2]);
        assert_eq!(threads.map(|thread| thread.join().unwrap()), [Ok(10), Ok(20)]);
    });
}

#[test]
fn a_task_and_an_async_committer_find_each_other() {
    explore(4, |submitter, mut committer| {
        let committing = thread::spawn(move || {
            block_on(async {
                while let Some(group) = committer.next_group_async().await {
                    assert_eq!(group.end_reason, EndReason::Drained);
                    for (operation, responder) in group {
                        responder.reply(operation * 10);
                    }
                }
            });
        });
        block_on(async {
            assert_eq!(submitter.submit(1, 1).await, Ok(10));
            assert_eq!(submitter.submit(2, 1).await, Ok(20));
        });
        drop(submitter);
        committing.join().unwrap();
    });
}

#[test]
fn callers_that_wait_for_space_are_let_in() {
    explore_with(NARROW, 3, |submitter, committer| {
        let second = submitter.clone();
        let threads = [(submitter, 1), (second, 2)]
            .map(|(submitter, operation)| thread::spawn(move || submitter.submit_blocking(operation, 1)));
        assert_eq!(commit_all(committer).len(), 2);
        assert_eq!(threads.map(|thread| thread.join().unwrap()), [Ok(10), Ok(20)]);
    });
}

#[test]
fn callers_that_only_wait_for_space_are_woken_by_it() {
    explore_with(NARROW, 4, |submitter, committer| {
        let committing = thread::spawn(move || commit_all(committer));
        let first = submitter.enqueue_blocking(1, 1).unwrap();
        let second = submitter.enqueue_blocking(2, 1).unwrap();
        let third = block_on(submitter.enqueue_when_space(3, 1)).unwrap();
        drop(submitter);
        assert_eq!([first, second, third].map(Ticket::wait), [Ok(10), Ok(20), Ok(30)]);
        assert_eq!(committing.join().unwrap(), [1, 2, 3]);
    });
}

#[test]
fn a_caller_that_leaves_the_line_takes_its_operation_along_or_has_it_carried_out() {
    explore_with(NARROW, 4, |submitter, committer| {
        let committing = thread::spawn(move || commit_all(committer));
        let first = submitter.enqueue_blocking(1, 1).unwrap();
        {
            let mut leaving = pin!(submitter.submit(2, 1));
            let _ = leaving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        let third = submitter.submit_blocking(3, 1);
        drop(submitter);
        assert_eq!((first.wait(), third), (Ok(10), Ok(30)));
        let committed = committing.join().unwrap();
        assert!(committed == [1, 3] || committed == [1, 2, 3], "{committed:?}");
    });
}

#[test]
fn a_panic_in_one_step_abandons_its_own_operations_only() {
    explore(4, |submitter, mut committer| {
        let committing = thread::spawn(move || {
            let mut committed = Vec::new();
            while let Some(group) = committer.next_group() {
                // The panic of a step, without the message that a panic prints.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    for (operation, responder) in group {
                        if operation == 1 {
                            resume_unwind(Box::new("this panic is part of the test"));
                        }
                        committed.push(operation);
                        responder.reply(operation * 10);
                    }
                }));
            }
            committed
        });
        let first = submitter.enqueue(1, 1).unwrap();
        let second = submitter.enqueue_blocking(2, 1).unwrap();
        assert_eq!(first.wait(), Err(GroupCommitError::Abandoned));
        let third = submitter.submit_blocking(3, 1);
        drop(submitter);
        assert_eq!(third, Ok(30));
        // The second was abandoned only if it went into the group of the first.
        let committed = committing.join().unwrap();
        match second.wait() {
            Ok(reply) => assert_eq!((reply, committed), (20, vec![2, 3])),
            Err(error) => assert_eq!((error, committed), (GroupCommitError::Abandoned, vec![3])),
        }
    });
}

#[test]
fn a_committer_may_go_at_any_moment() {
    explore_with(NARROW, 3, |submitter, mut committer| {
        let second = submitter.clone();
        let callers = [(submitter, 1), (second, 2)]
            .map(|(submitter, operation)| thread::spawn(move || submitter.submit_blocking(operation, 1)));
        for (operation, responder) in committer.try_next_group().into_iter().flatten() {
            responder.reply(operation * 10);
        }
        drop(committer);
        for (caller, operation) in callers.into_iter().zip([1, 2]) {
            let answer = caller.join().unwrap();
            assert!(
                answer == Ok(operation * 10) || answer == Err(GroupCommitError::Closed),
                "{answer:?}"
            );
        }
    });
}

#[test]
fn a_committer_that_goes_lets_those_in_line_know() {
    explore_with(NARROW, 4, |submitter, committer| {
        let first = submitter.enqueue(1, 1).unwrap();
        let going = thread::spawn(move || drop(committer));
        let answer = match block_on(submitter.enqueue_when_space(2, 1)) {
            Ok(ticket) => ticket.wait(),
            Err(error) => Err(error),
        };
        assert_eq!(
            (first.wait(), answer),
            (Err(GroupCommitError::Closed), Err(GroupCommitError::Closed))
        );
        going.join().unwrap();
    });
}

#[test]
fn a_ticket_may_be_dropped_at_any_moment() {
    explore(4, |submitter, committer| {
        let committing = thread::spawn(move || commit_all(committer));
        let mut ticket = Box::pin(submitter.enqueue(1, 1).unwrap());
        let _ = ticket.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(ticket);
        drop(submitter.enqueue_blocking(2, 1).unwrap());
        drop(submitter);
        assert_eq!(committing.join().unwrap(), [1, 2]);
    });
}

#[test]
fn the_last_submitter_to_go_wakes_the_committer() {
    explore(4, |submitter, mut committer| {
        let second = submitter.clone();
        let going = [submitter, second].map(|submitter| thread::spawn(move || drop(submitter)));
        assert!(committer.next_group().is_none());
        for thread in going {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_reply_finds_a_task_that_has_moved_to_another_waker() {
    explore(4, |submitter, committer| {
        let committing = thread::spawn(move || commit_all(committer));
        let mut ticket = Box::pin(submitter.enqueue(1, 1).unwrap());
        drop(submitter);
        let before = ticket.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let answer = match before {
            std::task::Poll::Ready(answer) => answer,
            std::task::Poll::Pending => block_on(ticket),
        };
        assert_eq!(answer, Ok(10));
        committing.join().unwrap();
    });
}

/// A state. Loom fails a model in which two threads use it at the same time.
#[derive(Default)]
struct Committed {
    used: UnsafeCell<()>,
    operations: Vec<u32>,
}

impl Committed {
    fn push(&mut self, operation: u32) -> u32 {
        self.used.with_mut(|_| ());
        self.operations.push(operation);
        operation * 10
    }
}

/// Carries an operation out in this thread, or hands it over.
fn alone_or_handed_over(
    seat: &Seat<Committed>,
    submitter: &Submitter<u32, u32>,
    operation: u32,
) -> Result<u32, GroupCommitError> {
    match seat.try_work(|committed| committed.push(operation)) {
        Some(reply) => Ok(reply),
        None => submitter.submit_blocking(operation, 1),
    }
}

#[test]
fn lone_callers_and_the_committer_have_the_state_one_after_the_other() {
    explore(3, |submitter, mut committer| {
        let seat = Arc::new(Seat::new(Committed::default()));
        let second = submitter.clone();
        let callers = [(submitter, 1), (second, 2)].map(|(submitter, operation)| {
            let seat = seat.clone();
            thread::spawn(move || alone_or_handed_over(&seat, &submitter, operation))
        });
        while let Some(group) = committer.next_group() {
            seat.work(|committed| {
                for (operation, responder) in group {
                    responder.reply(committed.push(operation));
                }
            });
        }
        assert_eq!(callers.map(|caller| caller.join().unwrap()), [Ok(10), Ok(20)]);
        let mut committed = seat.remove().unwrap().operations;
        committed.sort_unstable();
        assert_eq!(committed, [1, 2]);
    });
}

#[test]
fn a_state_that_was_removed_is_given_to_no_lone_caller() {
    explore(4, |submitter, committer| {
        let seat = Arc::new(Seat::new(Committed::default()));
        let closing = {
            let seat = seat.clone();
            thread::spawn(move || {
                let committed = seat.remove().unwrap().operations;
                drop(committer);
                committed
            })
        };
        let answer = alone_or_handed_over(&seat, &submitter, 1);
        assert!(seat.try_work(|committed| committed.push(2)).is_none() || answer == Ok(10));
        let committed = closing.join().unwrap();
        assert!(seat.try_work(|committed| committed.push(3)).is_none());
        assert_eq!(
            answer == Ok(10),
            committed.contains(&1),
            "{answer:?} {committed:?}"
        );
    });
}
