//! Child processes that never outlive us: the plumbing below warm scripts and programs.
//!
//! Each child leads its own process group, so that Ctrl-C at the terminal reaches only Gristmill, and so that the
//! child's own children die with it. The [guard](crate::child::guard) knows the group, and kills it when Gristmill is
//! killed. The kernel also kills a child that we start ourselves when the thread that started it ends
//! (`PR_SET_PDEATHSIG`): only long-lived threads start children. A child of the [fork server](crate::fork_server) also
//! ends when its requests end.

pub(crate) mod guard;
pub(crate) mod orphans;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::child::guard::Guard;
use crate::descriptors::poll_ms;
use orphans::own;

/// A wait status that is neither an exit nor a signal. It stands for a child whose parent was a fork server that has ended.
const UNKNOWN_STATUS: i32 = 0x7f;

/// Another process that is the parent of a child. Only the parent can reap it.
pub(crate) trait Reaper: std::fmt::Debug + Send + Sync {
    /// Reaps a child that has ended. `None` if the parent has ended, too.
    fn reap(&self, child: Pid) -> Option<ExitStatus>;
}

/// The parent of a child. Only the parent can reap it.
#[derive(Debug)]
enum Parent {
    We(Child),
    Another(Arc<dyn Reaper>),
}

/// A running child and its process group. When this is dropped, the whole group is killed and the child reaped.
#[derive(Debug)]
pub(crate) struct GroupChild {
    parent: Parent,
    group: Pid,
    exit: OwnedFd,
    guard: Guard,
    status: Option<ExitStatus>,
}

impl GroupChild {
    /// Starts `command` as the leader of its own process group.
    pub fn spawn(command: &mut Command, guard: &Guard) -> io::Result<GroupChild> {
        command.process_group(0);
        let parent = rustix::process::getpid();
        die_with(command, parent);
        let child = command.spawn()?;
        let group = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidData)?;
        GroupChild::new(Parent::We(child), group, guard)
    }

    /// The child with this id, which another process has forked.
    pub fn forked(parent: Arc<dyn Reaper>, child: Pid, guard: &Guard) -> io::Result<GroupChild> {
        GroupChild::new(Parent::Another(parent), child, guard)
    }

    fn new(mut parent: Parent, group: Pid, guard: &Guard) -> io::Result<GroupChild> {
        guard.watch(group);
        own::add(group.as_raw_nonzero().get().unsigned_abs());
        let exit = rustix::process::pidfd_open(group, PidfdFlags::empty());
        let exit = exit.inspect_err(|_| {
            // Such as where too many files are open. Nobody else would end this child, which may not lead its group yet.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            let _ = rustix::process::kill_process(group, Signal::KILL);
            match &mut parent {
                Parent::We(child) => drop(child.wait()),
                Parent::Another(parent) => drop(parent.reap(group)),
            }
            guard.forget(group);
            own::remove(group.as_raw_nonzero().get().unsigned_abs());
        })?;
        Ok(GroupChild {
            parent,
            group,
            exit,
            guard: guard.clone(),
            status: None,
        })
    }

    /// Becomes readable when the child has ended.
    pub fn exit_fd(&self) -> BorrowedFd<'_> {
        self.exit.as_fd()
    }

    /// Kills the whole group and returns the status of the child. A child that had ended before keeps its own status.
    pub fn end(&mut self) -> ExitStatus {
        if let Some(status) = self.status {
            return status;
        }
        // The group's number is ours until the child is reaped, so the signal cannot hit another process.
        let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        let status = match &mut self.parent {
            Parent::We(child) => child.wait().unwrap_or_default(),
            Parent::Another(parent) => {
                // The parent must not wait: other children may need it.
                while !matches!(
                    poll_ms(&mut [PollFd::new(&self.exit, PollFlags::IN)], None),
                    Ok(1) | Err(_)
                ) {}
                let status = parent.reap(self.group);
                status.unwrap_or_else(|| ExitStatus::from_raw(UNKNOWN_STATUS))
            }
        };
        self.guard.forget(self.group);
        own::remove(self.group.as_raw_nonzero().get().unsigned_abs());
        self.status = Some(status);
        status
    }

    /// Waits until the child has ended by itself, at most `milliseconds`.
    pub fn wait_ms(&self, milliseconds: u64) -> bool {
        let mut fds = [PollFd::new(&self.exit, PollFlags::IN)];
        matches!(poll_ms(&mut fds, Some(milliseconds)), Ok(ready) if ready > 0)
    }
}

impl Drop for GroupChild {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes the kernel kill the child when its parent dies.
#[allow(
    unsafe_code,
    reason = "pre_exec is the only way to run prctl between fork and exec"
)]
pub(crate) fn die_with(command: &mut Command, parent: Pid) {
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before the call no longer sends a signal.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::BrokenPipe))
        }
    };
    // SAFETY: between fork and exec only async-signal-safe work is allowed. The closure makes two
    // system calls without allocating: an error of a bare kind or number holds no memory.
    unsafe { command.pre_exec(prepare) };
}

/// The end of a process in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => {
            let name = match signal {
                4 => " (SIGILL)",
                6 => " (SIGABRT)",
                7 => " (SIGBUS)",
                8 => " (SIGFPE)",
                9 => " (SIGKILL, which is also what the kernel sends when memory runs out)",
                11 => " (SIGSEGV)",
                15 => " (SIGTERM)",
                _ => "",
            };
            format!("was killed by signal {signal}{name}")
        }
        (None, None) => "ended".to_owned(),
    }
}
