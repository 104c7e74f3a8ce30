//! The guard kills the process groups of our children when Gristmill itself is killed.
//!
//! The kernel kills a child whose parent dies, but not what the child has started in turn. The guard
//! is one small shell in a process group of its own: it reads on its standard input which groups
//! there are, and when its input ends, which only the end of Gristmill (or of the handler) brings
//! about, it kills those that are left and ends too.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::Pid;

use crate::child::orphans::own;

/// A signal that stops all processes of a service reaches the guard, too: it stays until Gristmill has ended.
/// `+12` adds group 12, `-12` forgets it. The list is short: one group a process of the pool.
const WATCH: &str = r#"
groups=' '
trap '' HUP INT TERM
while read -r line; do
  group=${line#?}
  case $line in
    +*) groups="$groups$group " ;;
    -*) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -9 "-$group" 2>/dev/null; done
"#;

/// A handle on the guard. It ends with the last handle.
#[derive(Debug, Clone)]
pub(crate) struct Guard(Arc<Mutex<Running>>);

#[derive(Debug)]
struct Running {
    shell: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard.
    pub fn start() -> io::Result<Guard> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", WATCH])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let input = shell.stdin.take();
        own::add(shell.id());
        Ok(Guard(Arc::new(Mutex::new(Running { shell, input }))))
    }

    /// Has the group killed if we end before it is forgotten.
    pub fn watch(&self, group: Pid) {
        self.tell('+', group);
    }

    /// The group has ended.
    pub fn forget(&self, group: Pid) {
        self.tell('-', group);
    }

    fn tell(&self, sign: char, group: Pid) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(input) = &mut running.input {
            // Without the guard, jobs continue.
            let _ = writeln!(input, "{sign}{}", group.as_raw_nonzero());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.shell.wait();
        own::remove(self.shell.id());
    }
}
