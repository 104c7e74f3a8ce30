//! The fork server: a prepared interpreter that forks a warm process in a few milliseconds.
//!
//! A Python interpreter takes tens of milliseconds of processor time to start and to read its shim. The fork server
//! does both once. Each child then imports the script by itself: forks cannot share what an import starts, opens or
//! draws (threads, connections, random numbers). Before the fork, the server imports only the first modules of the
//! script, as long as they belong to the standard library or to the Python package. `shims/python/fork_server.py` is
//! the other side.
//!
//! A program that starts one handler after the other keeps its fork servers in [`ForkServers`]: a handler whose processes would
//! begin in the same way uses the one that is there.
//!
//! A child is reaped only on request, so that its number is its own until then. If there is no fork server, because it
//! cannot start, has several threads or has ended, processes start one by one. Children outlive a fork server that
//! ends.

use std::ffi::OsString;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Pid;

use crate::child::guard::Guard;
use crate::child::{GroupChild, Reaper};
use crate::descriptors::{SHIM_FD, memory_file};
use crate::limits::{FORK_SERVER_MS_MAX, FORK_SERVERS_KEPT_MAX};
use crate::script::{Script, first_line};

const FORKS_FD: i32 = 8;
const FORK: u32 = 1;
const REAP: u32 = 2;
/// The number of descriptors that a child gets: its output, requests, outcomes, control page and bell, and the pipes of
/// `pool/question_pipes.rs`.
const CHILD_FDS: usize = 7;

/// Fork servers for the handlers of one program. The latest ones stay when their handlers end.
#[derive(Debug, Default)]
pub struct ForkServers(Mutex<Vec<(Circumstances, Arc<ForkServer>)>>);

impl ForkServers {
    /// The fork server for the processes of a script, if its runtime has one.
    pub(crate) fn of(&self, script: &Script) -> io::Result<Option<Arc<ForkServer>>> {
        let circumstances = Circumstances::of(script)?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, server)| !server.has_ended());
        if let Some((_, server)) = kept.iter().find(|(known, _)| *known == circumstances) {
            return Ok(Some(server.clone()));
        }
        let Some(server) = ForkServer::new(script, &Guard::start()?) else {
            return Ok(None);
        };
        let server = Arc::new(server);
        if kept.len() >= FORK_SERVERS_KEPT_MAX {
            kept.remove(0);
        }
        kept.push((circumstances, server.clone()));
        Ok(Some(server))
    }
}

/// All that a process of a script has from the one that starts it, and the imports that a fork server makes for it.
#[derive(Debug, PartialEq, Eq)]
struct Circumstances {
    command: Vec<OsString>,
    imports: String,
    environment: Vec<(OsString, OsString)>,
    /// Its path, device and number: another folder may take the path of a removed one.
    folder: Option<(PathBuf, u64, u64)>,
    /// Limits, user, processors and the like.
    system: Vec<String>,
}

/// The lines of `/proc/self/status` that a child inherits.
const INHERITED: [&str; 9] = [
    "Umask:",
    "Uid:",
    "Gid:",
    "Groups:",
    "CapEff:",
    "CapBnd:",
    "NoNewPrivs:",
    "Seccomp:",
    "Cpus_allowed:",
];

impl Circumstances {
    fn of(script: &Script) -> io::Result<Circumstances> {
        let command = script.command();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let withheld: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| value.is_none().then_some(name))
            .collect();
        let mut environment: Vec<_> = std::env::vars_os()
            .filter(|(name, _)| !withheld.contains(&name.as_os_str()))
            .collect();
        environment.sort();
        // A system without such a file counts as unchanged.
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let is_inherited = |line: &&str| INHERITED.iter().any(|name| line.starts_with(name));
        let mut system: Vec<String> = read("/proc/self/status")
            .lines()
            .filter(is_inherited)
            .map(str::to_owned)
            .collect();
        system.push(read("/proc/self/limits"));
        system.push(
            rustix::process::getpriority_process(None)
                .map_or_else(|_| String::new(), |nice| nice.to_string()),
        );
        Ok(Circumstances {
            command: words.map(OsString::from).collect(),
            imports: first_line(script.path())?,
            environment,
            folder: current_folder().ok(),
            system,
        })
    }
}

fn current_folder() -> io::Result<(PathBuf, u64, u64)> {
    let metadata = std::fs::metadata(".")?;
    Ok((std::env::current_dir()?, metadata.dev(), metadata.ino()))
}

/// A fork server. It starts with the first fork, and ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ForkServer {
    guard: Guard,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    NotStarted(Box<Script>),
    Running(Running),
    Ended,
}

#[derive(Debug)]
struct Running {
    socket: UnixStream,
    /// Keeps the thread that started the process alive, because the process ends with it.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ForkServer {
    /// A fork server for the processes of a script, if its runtime has one.
    pub fn new(script: &Script, guard: &Guard) -> Option<ForkServer> {
        script.fork_server_command().map(|_| ForkServer {
            guard: guard.clone(),
            state: Mutex::new(State::NotStarted(Box::new(script.clone()))),
        })
    }

    /// The guard of its children.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Reports whether it forks no more.
    fn has_ended(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*state, State::Ended)
    }

    /// Forks a process with these descriptors, and returns its id. The process leads its own group.
    pub fn fork(&self, fds: [BorrowedFd<'_>; CHILD_FDS]) -> Option<Pid> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::NotStarted(script) = &*state {
            let started = Running::start(script, &self.guard);
            *state = match started {
                Ok(running) => State::Running(running),
                Err(error) => {
                    tracing::debug!(%error, "no fork server: processes start one by one");
                    State::Ended
                }
            };
        }
        // A negative number is an error number. We then start the interpreter ourselves, or fail in the same way.
        let pid = ask(&mut state, FORK, 0, &fds)?;
        if pid > 0 { Pid::from_raw(pid) } else { None }
    }
}

impl Reaper for ForkServer {
    fn reap(&self, child: Pid) -> Option<ExitStatus> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        ask(&mut state, REAP, child.as_raw_nonzero().get() as u32, &[]).map(ExitStatus::from_raw)
    }
}

/// Sends a request to the fork server. If it does not answer, it has ended.
fn ask(state: &mut State, kind: u32, pid: u32, fds: &[BorrowedFd<'_>]) -> Option<i32> {
    let State::Running(running) = state else {
        return None;
    };
    match running.ask(kind, pid, fds) {
        Ok(answer) => Some(answer),
        Err(error) => {
            tracing::warn!(%error, "the fork server has ended: processes start one by one");
            *state = State::Ended;
            None
        }
    }
}

impl Running {
    fn start(script: &Script, guard: &Guard) -> io::Result<Running> {
        let mut command = script.fork_server_command().ok_or(io::ErrorKind::Unsupported)?;
        let (socket, theirs) = UnixStream::pair()?;
        let timeout = Some(Duration::from_millis(FORK_SERVER_MS_MAX));
        socket.set_read_timeout(timeout)?;
        socket.set_write_timeout(timeout)?;
        let map = |parent_fd, child_fd| FdMapping { parent_fd, child_fd };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .fd_mappings(vec![
                map(memory_file("gristmill-shim", script.shim().as_bytes())?, SHIM_FD),
                map(OwnedFd::from(theirs), FORKS_FD),
            ])
            .map_err(io::Error::other)?;
        let (stop, stopped) = mpsc::channel();
        let guard = guard.clone();
        let thread = std::thread::Builder::new()
            .name("fork-server".to_owned())
            .spawn(move || keep(command, &guard, &stopped))?;
        let mut running = Running {
            socket,
            stop: Some(stop),
            thread: Some(thread),
        };
        running.answer()?;
        Ok(running)
    }

    fn ask(&mut self, kind: u32, pid: u32, fds: &[BorrowedFd<'_>]) -> io::Result<i32> {
        let mut request = [0; 8];
        request[..4].copy_from_slice(&kind.to_le_bytes());
        request[4..].copy_from_slice(&pid.to_le_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CHILD_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = rustix::net::sendmsg(
            &self.socket,
            &[IoSlice::new(&request)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        if sent != request.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.answer()
    }

    fn answer(&mut self) -> io::Result<i32> {
        let mut answer = [0; 4];
        self.socket.read_exact(&mut answer)?;
        Ok(i32::from_le_bytes(answer))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts the process, and ends it when the channel closes.
fn keep(mut command: Command, guard: &Guard, stopped: &mpsc::Receiver<()>) {
    match GroupChild::spawn(&mut command, guard) {
        // Our copies of its descriptors would keep its socket open after its end.
        Ok(_child) => {
            drop(command);
            let _ = stopped.recv();
        }
        Err(error) => tracing::debug!(%error, "the fork server cannot start"),
    }
}
