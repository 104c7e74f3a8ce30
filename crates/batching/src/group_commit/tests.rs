//! Tests with callers one after another, where the order of events is known. `tests/loom.rs` explores every interleaving.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::*;
use crate::{AtomicBatchStats, EndReason};

const LIMITS: GroupLimits = GroupLimits {
    operations_max: 3,
    weight_max: 100,
    queue_operations_max: 4,
    queue_weight_max: 200,
};

/// Counts its wake-ups.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn operations<Reply>(group: Group<&'static str, Reply>) -> Vec<&'static str> {
    group.into_iter().map(|(operation, _)| operation).collect()
}

#[test]
fn a_group_ends_when_it_is_full_or_heavy_or_the_queue_is_empty() {
    let (submitter, mut committer) = group_commit::<&str, ()>(LIMITS);
    let stats = AtomicBatchStats::new();
    committer.record_into(stats.hop("commit"));
    let enqueue = |name, weight| drop(submitter.enqueue(name, weight).unwrap());

    ["a", "b", "c", "d"].into_iter().for_each(|name| enqueue(name, 1));
    let group = committer.next_group().unwrap();
    assert_eq!(
        (group.end_reason, group.len(), group.weight()),
        (EndReason::Full, 3, 3)
    );
    assert_eq!(operations(group), ["a", "b", "c"]);
    let group = committer.next_group().unwrap();
    assert_eq!(
        (group.end_reason, operations(group)),
        (EndReason::Drained, vec!["d"])
    );

    enqueue("e", 60);
    enqueue("f", 41);
    let group = committer.next_group().unwrap();
    assert_eq!(
        (group.end_reason, operations(group)),
        (EndReason::Bytes, vec!["e"])
    );
    let group = committer.next_group().unwrap();
    assert_eq!(
        (group.end_reason, operations(group)),
        (EndReason::Drained, vec!["f"])
    );
    assert!(committer.try_next_group().is_none());

    let snapshot = stats.snapshot();
    let commit = snapshot.hop("commit").unwrap();
    assert_eq!((commit.batches, commit.items, commit.items_max), (4, 6, 3));
}

#[test]
fn an_operation_heavier_than_all_limits_goes_alone() {
    let (submitter, mut committer) = group_commit::<&str, ()>(LIMITS);
    let _heavy = submitter.enqueue("heavy", usize::MAX).unwrap();
    assert!(matches!(
        submitter.enqueue("light", 1),
        Err(EnqueueError::Full("light"))
    ));
    let mut light = pin!(submitter.enqueue_when_space("light", 1));
    assert!(poll_once(light.as_mut()).is_pending());
    let group = committer.next_group().unwrap();
    assert_eq!(
        (group.end_reason, operations(group)),
        (EndReason::Bytes, vec!["heavy"])
    );
    assert!(poll_once(light.as_mut()).is_ready());
    assert_eq!(operations(committer.next_group().unwrap()), ["light"]);
}

#[test]
fn replies_reach_their_own_callers_only() {
    let (submitter, mut committer) = group_commit::<u32, u32>(LIMITS);
    let tickets = [1, 2, 3].map(|operation| submitter.enqueue(operation, 1).unwrap());
    for (operation, responder) in committer.next_group().unwrap() {
        if operation != 2 {
            responder.reply(operation * 10);
        }
    }
    let replies = tickets.map(Ticket::wait);
    assert_eq!(replies, [Ok(10), Err(GroupCommitError::Abandoned), Ok(30)]);
}

#[test]
fn a_panic_while_committing_abandons_the_rest_of_its_group_and_nothing_else() {
    let (submitter, mut committer) = group_commit::<u32, u32>(LIMITS);
    let first = [1, 2, 3].map(|operation| submitter.enqueue(operation, 1).unwrap());
    let later = submitter.enqueue(4, 1).unwrap();
    let group = committer.next_group().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for (operation, responder) in group {
            assert!(operation != 2, "this panic is part of the test");
            responder.reply(operation);
        }
    }));
    assert!(panicked.is_err());
    let abandoned = Err(GroupCommitError::Abandoned);
    assert_eq!(first.map(Ticket::wait), [Ok(1), abandoned, abandoned]);
    for (operation, responder) in committer.next_group().unwrap() {
        responder.reply(operation);
    }
    assert_eq!(later.wait(), Ok(4));
}

#[test]
fn callers_wait_in_line_when_the_queue_is_full_and_enter_in_order() {
    let (submitter, mut committer) = group_commit::<&str, ()>(LIMITS);
    let _queued = ["a", "b", "c", "d"].map(|name| submitter.enqueue(name, 1).unwrap());
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut fifth = pin!(submitter.enqueue_when_space("e", 1));
    let mut sixth = pin!(submitter.submit("f", 1));
    assert!(fifth.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(poll_once(sixth.as_mut()).is_pending());
    assert!(matches!(submitter.enqueue("g", 1), Err(EnqueueError::Full("g"))));

    assert_eq!(operations(committer.next_group().unwrap()), ["a", "b", "c"]);
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "who waits for space is told");
    assert!(poll_once(fifth.as_mut()).is_ready());
    assert!(poll_once(sixth.as_mut()).is_pending());
    assert_eq!(operations(committer.next_group().unwrap()), ["d", "e", "f"]);
    assert_eq!(
        poll_once(sixth.as_mut()),
        Poll::Ready(Err(GroupCommitError::Abandoned))
    );
}

#[test]
fn an_operation_leaves_the_line_with_its_caller_and_the_others_move_up() {
    let (submitter, mut committer) = group_commit::<&str, ()>(LIMITS);
    let _queued = submitter.enqueue("a", 150).unwrap();
    {
        let mut behind = Box::pin(submitter.submit("c", 1));
        let mut heavy = Box::pin(submitter.submit("b", 150));
        assert!(poll_once(heavy.as_mut()).is_pending());
        assert!(poll_once(behind.as_mut()).is_pending());
        assert!(
            submitter.enqueue("d", 1).is_err(),
            "nobody overtakes those in line"
        );
        drop(heavy);
        // The operation has entered the queue, and stays there without its caller.
        drop(behind);
    }
    assert_eq!(operations(committer.next_group().unwrap()), ["a"]);
    assert_eq!(operations(committer.next_group().unwrap()), ["c"]);
}

#[test]
fn dropping_a_ticket_does_not_undo_the_operation() {
    let (submitter, mut committer) = group_commit::<&str, ()>(LIMITS);
    drop(submitter.enqueue("a", 1).unwrap());
    for (operation, responder) in committer.next_group().unwrap() {
        assert_eq!(operation, "a");
        responder.reply(());
    }
}

#[test]
fn the_committer_finishes_queued_operations_after_the_last_submitter_is_gone() {
    let (submitter, mut committer) = group_commit::<&str, ()>(LIMITS);
    let ticket = submitter.clone().enqueue("a", 1).unwrap();
    drop(submitter);
    for (_, responder) in committer.next_group().unwrap() {
        responder.reply(());
    }
    assert!(committer.next_group().is_none());
    assert!(poll_once(pin!(committer.next_group_async())).is_ready());
    assert_eq!(ticket.wait(), Ok(()));
}

#[test]
fn without_a_committer_nothing_is_accepted_and_nobody_hangs() {
    let (submitter, committer) = group_commit::<&str, ()>(LIMITS);
    let queued = ["a", "b", "c", "d"].map(|name| submitter.enqueue(name, 1).unwrap());
    let mut in_line = pin!(submitter.submit("e", 1));
    let mut wants_space = pin!(submitter.enqueue_when_space("f", 1));
    assert!(poll_once(in_line.as_mut()).is_pending());
    assert!(poll_once(wants_space.as_mut()).is_pending());
    drop(committer);
    let closed = Err(GroupCommitError::Closed);
    assert_eq!(queued.map(Ticket::wait), [closed; 4]);
    assert_eq!(poll_once(in_line), Poll::Ready(closed));
    let Poll::Ready(Ok(ticket)) = poll_once(wants_space) else {
        panic!("it has left the line")
    };
    assert_eq!(ticket.wait(), closed);
    assert_eq!(submitter.submit_blocking("g", 1), closed);
    assert!(matches!(
        submitter.enqueue("h", 1),
        Err(EnqueueError::Closed("h"))
    ));
}

#[test]
fn the_committer_is_woken_only_when_it_is_parked() {
    let (submitter, mut committer) = group_commit::<&str, ()>(LIMITS);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    {
        let mut next = pin!(committer.next_group_async());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let _tickets = ["a", "b"].map(|name| submitter.enqueue(name, 1).unwrap());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "the second finds it awake");
        assert!(poll_once(next).is_ready());
    }
    drop(submitter);
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
}

#[test]
#[should_panic(expected = "operations_max must be at least 1")]
fn limits_under_which_nothing_could_be_committed_are_refused() {
    group_commit::<(), ()>(GroupLimits {
        operations_max: 0,
        ..LIMITS
    });
}

/// Threads and tasks together, over both kinds of waiting: every operation is carried out once and answered
/// with its own reply.
#[test]
fn many_callers_of_both_kinds_get_their_own_replies() {
    const OPERATIONS: u64 = 2_000;
    let (submitter, mut committer) = group_commit::<u64, u64>(LIMITS);
    let committing = std::thread::spawn(move || {
        let mut operations = 0;
        while let Some(group) = committer.next_group() {
            assert!(group.len() <= LIMITS.operations_max);
            for (operation, responder) in group {
                operations += 1;
                responder.reply(operation + 1);
            }
        }
        operations
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let submitter = submitter.clone();
            runtime.spawn(async move {
                for step in 0..OPERATIONS {
                    let operation = task << 32 | step;
                    assert_eq!(submitter.submit(operation, 30).await, Ok(operation + 1));
                }
            })
        })
        .collect();
    std::thread::scope(|scope| {
        for thread in 8..12 {
            let submitter = &submitter;
            scope.spawn(move || {
                for step in 0..OPERATIONS {
                    let operation = thread << 32 | step;
                    assert_eq!(submitter.submit_blocking(operation, 30), Ok(operation + 1));
                }
            });
        }
    });
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    drop(submitter);
    assert_eq!(committing.join().unwrap(), 12 * OPERATIONS);
}
