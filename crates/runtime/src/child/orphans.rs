//! Reaping by process 1. In a container, the program is often the first process. It becomes the parent of all processes
//! whose own parent has ended, such as those that jobs left in the background, and only it can reap them.

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, getpid, waitpid};

/// The interval at which process 1 looks for ended orphans.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The processes that this one has started and reaps when it needs their status.
pub(crate) mod own {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};

    static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

    pub fn add(process: u32) {
        OWN.lock().unwrap_or_else(PoisonError::into_inner).insert(process);
    }

    pub fn remove(process: u32) {
        OWN.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&process);
    }

    pub fn has(process: u32) -> bool {
        OWN.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&process)
    }
}

/// Reaps orphans from now on, if this is process 1. Otherwise the system's first process reaps them.
pub fn reap_as_first_process() {
    if getpid().as_raw_nonzero().get() != 1 {
        return;
    }
    let reaper = std::thread::Builder::new().name("orphans".to_owned());
    let reaping = reaper.spawn(|| {
        let (_nobody, never) = mpsc::channel::<()>();
        let mut before = BTreeSet::new();
        loop {
            let ended = ended_children(1);
            // A process that is being waited for at this moment is gone at the next look.
            ended
                .intersection(&before)
                .copied()
                .filter(|id| !own::has(*id))
                .for_each(reap);
            before = ended;
            let _ = never.recv_timeout(LOOK_EVERY);
        }
    });
    if let Err(error) = reaping {
        tracing::warn!(%error, "processes that jobs leave behind stay as zombies");
    }
}

fn reap(process: u32) {
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = waitpid(Some(process), WaitOptions::NOHANG);
    }
}

/// The children of a process that have ended and are not reaped.
fn ended_children(parent: u32) -> BTreeSet<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"));
        stat.is_ok_and(|stat| is_zombie_of(&stat, parent))
    })
    .collect()
}

/// Reports whether a line of `/proc/ID/stat` belongs to an ended child of `parent`. The name before the state may
/// contain anything.
fn is_zombie_of(stat: &str, parent: u32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return false;
    };
    let mut fields = rest.split_ascii_whitespace();
    fields.next() == Some("Z") && fields.next().and_then(|id| id.parse().ok()) == Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombies_are_distinguished_from_other_children() {
        for (stat, is_one) in [
            ("12 (sleep) Z 1 12 12 0", true),
            ("12 (a) b) Z 1 12", true),
            ("12 (sleep) Z 17 12", false),
            ("12 (sleep) S 1 12", false),
            ("12 (Z 1", false),
            ("", false),
        ] {
            assert_eq!(is_zombie_of(stat, 1), is_one, "{stat}");
        }
    }

    #[test]
    fn a_child_that_has_ended_is_found_until_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let us = std::process::id();
        // The child's output ends when it does. Its state is visible at most a moment later.
        while !ended_children(us).contains(&child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!ended_children(us).contains(&child.id()));
    }
}
