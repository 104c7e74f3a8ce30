//! The guard kills the process groups of our children when Gristmill itself is killed.
//!
//! The kernel kills a child whose parent dies, but not the child's own children. The guard is a small shell in its own
//! process group. It reads the current groups from its standard input. When its input ends, which happens only when
//! Gristmill (or the handler) ends, it kills the remaining groups and ends, too.
//!
//! Nobody waits for it without a limit. A guard that has ended, or that is stopped (SIGSTOP) and reads nothing more, is
//! replaced.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::child::orphans::own;
use crate::descriptors::poll_ms;
use crate::limits::GUARD_END_MS_MAX;

/// A signal that stops all processes of a service also reaches the guard, which stays until Gristmill has ended.
/// `+12` adds group 12, and `-12` forgets it. The list is short: one group for each process of the pool.
const WATCH: &str = r#"
groups=' '
trap '' HUP INT TERM
while read -r line; do
  group=${line#?}
  case $line in
    +*) groups="$groups$group " ;;
    -*) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
  esac
done
for group in $groups; do kill -9 "-$group" 2>/dev/null; done
"#;

/// A handle on the guard. It ends with the last handle.
#[derive(Debug, Clone)]
pub(crate) struct Guard(Arc<Mutex<Watched>>);

#[derive(Debug)]
struct Watched {
    /// The guard's shell. `None` if it was lost and no other could be started. Without a guard, jobs continue.
    shell: Option<Shell>,
    groups: BTreeSet<i32>,
}

#[derive(Debug)]
struct Shell {
    process: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard.
    pub fn start() -> io::Result<Guard> {
        Ok(Guard(Arc::new(Mutex::new(Watched {
            shell: Some(Shell::start()?),
            groups: BTreeSet::new(),
        }))))
    }

    /// Makes the guard kill the group if we end before the group is forgotten.
    pub fn watch(&self, group: Pid) {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.groups.insert(group.as_raw_nonzero().get());
        watched.tell('+', group.as_raw_nonzero().get());
    }

    /// Notes that the group has ended.
    pub fn forget(&self, group: Pid) {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.groups.remove(&group.as_raw_nonzero().get());
        watched.tell('-', group.as_raw_nonzero().get());
    }
}

impl Watched {
    fn tell(&mut self, sign: char, group: i32) {
        if let Some(shell) = &mut self.shell
            && shell.tell(sign, group).is_ok()
        {
            return;
        }
        // The shell has ended or reads nothing. Dropping it kills it.
        self.shell = None;
        let started = Shell::start().and_then(|mut shell| {
            self.groups.iter().try_for_each(|group| shell.tell('+', *group))?;
            Ok(shell)
        });
        match started {
            Ok(shell) => self.shell = Some(shell),
            Err(error) => {
                tracing::warn!(%error, "no guard: what scripts start may outlive a crash of Gristmill")
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let guarded = self.shell.take().is_some_and(Shell::end);
        if !guarded {
            for group in self.groups.iter().filter_map(|group| Pid::from_raw(*group)) {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
        }
    }
}

impl Shell {
    fn start() -> io::Result<Shell> {
        let mut process = Command::new("/bin/sh")
            .args(["-c", WATCH])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let input = process.stdin.take();
        own::add(process.id());
        let shell = Shell { process, input };
        if let Some(input) = &shell.input {
            let flags = rustix::fs::fcntl_getfl(input)?;
            rustix::fs::fcntl_setfl(input, flags | OFlags::NONBLOCK)?;
        }
        Ok(shell)
    }

    /// Fails if the shell has ended, or has read nothing of a full pipe. A line is short, so it is written completely
    /// or not at all.
    fn tell(&mut self, sign: char, group: i32) -> io::Result<()> {
        let line = format!("{sign}{group}\n");
        match &mut self.input {
            Some(input) => input.write_all(line.as_bytes()),
            None => Ok(()),
        }
    }

    /// Lets it do its work and end. Returns whether it ended in time.
    fn end(mut self) -> bool {
        self.input = None;
        let Some(pid) = Pid::from_raw(self.process.id().cast_signed()) else {
            return false;
        };
        let Ok(exit) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        let mut fds = [PollFd::new(&exit, PollFlags::IN)];
        matches!(poll_ms(&mut fds, Some(GUARD_END_MS_MAX)), Ok(ready) if ready > 0)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // If the shell has ended, the signal hits no other process: its number is its own until it is waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
        own::remove(self.process.id());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// A process in its own group that ends only when it is killed.
    fn sleeper() -> Child {
        Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .unwrap()
    }

    fn group_of(child: &Child) -> Pid {
        Pid::from_raw(child.id().cast_signed()).unwrap()
    }

    fn stop(guard: &Guard) {
        let watched = guard.0.lock().unwrap();
        let shell = group_of(&watched.shell.as_ref().unwrap().process);
        rustix::process::kill_process(shell, Signal::STOP).unwrap();
    }

    #[test]
    fn nobody_waits_for_a_stopped_guard_and_its_groups_are_killed_all_the_same() {
        let guard = Guard::start().unwrap();
        let mut child = sleeper();
        guard.watch(group_of(&child));
        stop(&guard);
        drop(guard);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_guard_that_stops_reading_is_replaced_by_one_that_knows_all_groups() {
        let guard = Guard::start().unwrap();
        let mut child = sleeper();
        guard.watch(group_of(&child));
        let first = guard.0.lock().unwrap().shell.as_ref().unwrap().process.id();
        stop(&guard);
        // These are more than a pipe holds. The groups do not exist.
        for number in 0..20_000 {
            guard.forget(Pid::from_raw(0x4000_0000 + number).unwrap());
        }
        let second = guard.0.lock().unwrap().shell.as_ref().unwrap().process.id();
        assert_ne!(first, second);
        // As at the end of Gristmill, only the guard kills the groups.
        guard.0.lock().unwrap().groups.clear();
        drop(guard);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
