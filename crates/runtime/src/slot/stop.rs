//! Ends of processes that are part of a stop of the worker. Some managers signal all processes of a service or job at
//! once: `scancel` of Slurm, systemd with `KillMode=control-group`, or a shell that ends its process group. A script's
//! process then dies while its worker stops, often before the worker has received its own signal. Its jobs are not to
//! blame.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::descriptors::poll_ms;
use crate::limits::STOP_NOTICED_MS_MAX;
use crate::pool::Pool;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Shells and programs that end because of a signal exit with this number plus the signal's.
const SIGNALLED: i32 = 128;

/// Reports whether a process of this slot ended like this because its worker stops. Waits a moment for the news of a
/// stop if the process was asked to end.
pub(crate) fn is_part_of_stop(
    status: ExitStatus,
    pool: &Pool,
    slot: usize,
    is_draining: impl Fn() -> bool,
) -> bool {
    let is_stopping = || is_draining() || pool.is_shutting_down();
    if status.signal() == Some(SIGKILL) {
        return is_stopping();
    }
    if !was_asked_to_end(status) {
        return false;
    }
    let began = Instant::now();
    let most = Duration::from_millis(STOP_NOTICED_MS_MAX);
    while !is_stopping() {
        let left = most.saturating_sub(began.elapsed());
        if left.is_zero() {
            return false;
        }
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(STOP_NOTICED_MS_MAX) + 1;
        let mut fds = [PollFd::new(pool.waker(slot), PollFlags::IN)];
        if poll_ms(&mut fds, Some(left_ms)).is_err() {
            return false;
        }
        pool.acknowledge(slot);
    }
    true
}

/// Reports whether a signal may have ended it that asks programs to end. This is unknown for a process whose parent,
/// the fork server, has ended, too.
fn was_asked_to_end(status: ExitStatus) -> bool {
    let asks = [SIGHUP, SIGINT, SIGTERM];
    match (status.signal(), status.code()) {
        (Some(signal), _) => asks.contains(&signal),
        (None, Some(code)) => asks.contains(&(code - SIGNALLED)),
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{DetectOptions, Script};
    use crate::starts::ProcessListener;

    #[test]
    fn kinds_of_ends_are_distinguished() {
        // In the kernel's form: the signal, or the status times 256.
        let asked = [1, 2, 15, 129 << 8, 130 << 8, 143 << 8, 0x7f];
        let others = [0, 1 << 8, 2 << 8, 127 << 8, 137 << 8, 9, 6, 11];
        for raw in asked {
            assert!(was_asked_to_end(ExitStatus::from_raw(raw)), "{raw:#x}");
        }
        for raw in others {
            assert!(!was_asked_to_end(ExitStatus::from_raw(raw)), "{raw:#x}");
        }
    }

    #[test]
    fn a_stop_that_is_noticed_a_moment_later_counts() {
        let script = Script::program(vec!["true".into()], &DetectOptions::default()).unwrap();
        let pool = Pool::new(&script, 1, ProcessListener::default(), None).unwrap();
        let terminated = ExitStatus::from_raw(SIGTERM);
        let looks = std::cell::Cell::new(0);
        let second_look = || looks.replace(looks.get() + 1) > 0;
        // The waker is readable, so the wait between the looks is short.
        pool.recall(0);
        assert!(is_part_of_stop(terminated, &pool, 0, second_look));
        assert!(!is_part_of_stop(terminated, &pool, 0, || false));
        let killed = ExitStatus::from_raw(SIGKILL);
        assert!(is_part_of_stop(killed, &pool, 0, || true));
        assert!(!is_part_of_stop(killed, &pool, 0, || false));
    }
}
