//! The process of a worker. Its own machine detects its death at once.

use std::fs;

use gristmill_store::{NewWorker, WorkerRow};

/// The identity of this process, as a worker with this name that does not report what it serves.
pub fn this_worker(name: impl Into<String>) -> NewWorker {
    let process_id = std::process::id();
    NewWorker {
        name: name.into(),
        host: host(),
        process_id,
        process_started: started(process_id).unwrap_or_default(),
        queues: Vec::new(),
        kinds: Vec::new(),
    }
}

/// Reports whether the process of a worker on this machine is known to have ended. `false` for workers on other machines.
pub fn has_ended(row: &WorkerRow) -> bool {
    let worker = &row.worker;
    !worker.process_started.is_empty()
        && worker.host == host()
        && started(worker.process_id).as_ref() != Some(&worker.process_started)
}

/// The machine's name and its boot id. A rebooted machine has no old processes.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The boot's id and the start of the process in clock ticks since then: field 22 of `/proc/PID/stat`
/// (proc_pid_stat(5)), counted after the command's name, which may contain spaces. `None` if there is no such process.
fn started(process_id: u32) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // A zombie has ended, although it still has an entry.
    let state = fields.next()?;
    let ticks = fields.nth(18)?;
    (state != "Z").then(|| format!("{}:{ticks}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use gristmill_model::{Timestamp, WorkerId};

    use super::*;

    fn row(worker: NewWorker) -> WorkerRow {
        let now = Timestamp(0);
        WorkerRow {
            id: WorkerId(1),
            worker,
            started_at: now,
            heartbeat_at: now,
            jobs_held: 0,
            drain_at: None,
        }
    }

    #[test]
    fn a_process_lives_until_it_ends_or_another_has_its_id() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat starts");
        let worker = NewWorker {
            process_id: child.id(),
            process_started: started(child.id()).expect("it runs"),
            ..this_worker("child")
        };
        assert!(!has_ended(&row(this_worker("me"))));
        assert!(!has_ended(&row(worker.clone())));
        let reused = NewWorker {
            process_started: "another:1".to_owned(),
            ..worker.clone()
        };
        assert!(has_ended(&row(reused)));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        assert!(has_ended(&row(worker.clone())));
        assert!(!has_ended(&row(NewWorker {
            host: "elsewhere".to_owned(),
            ..worker
        })));
    }
}
