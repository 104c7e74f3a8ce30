//! File descriptors: pipes, files in memory, and waiting for several of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

/// The descriptor number of the shim in a script process and in a fork server.
pub(crate) const SHIM_FD: i32 = 6;

/// Waits for one of `fds`, at most `timeout_ms`. After an interrupted wait, nothing is ready.
pub(crate) fn poll_ms(fds: &mut [PollFd<'_>], timeout_ms: Option<u64>) -> io::Result<usize> {
    let timeout = timeout_ms.map(|milliseconds| Timespec {
        tv_sec: (milliseconds / 1_000) as i64,
        tv_nsec: (milliseconds % 1_000 * 1_000_000) as i64,
    });
    match poll(fds, timeout.as_ref()) {
        Err(Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}

/// Reads available bytes into `buffer`. Returns `Ok(None)` at the end, and `Ok(Some(0))` without available bytes.
pub(crate) fn read_ready(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match rustix::io::read(fd, buffer) {
        Ok(0) => Ok(None),
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Some(0)),
        Err(error) => Err(error.into()),
    }
}

/// A pipe whose end on our side (`true` for the reading end) does not block.
pub(crate) fn pipe(ours_reads: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = small_pipe(ours_reads)?;
    // A smaller pipe than requested only costs speed.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, crate::limits::PIPE_BYTES);
    Ok((reader, writer))
}

/// A pipe of the system's default size, which counts little against its limit for all pipes of a user.
pub(crate) fn small_pipe(ours_reads: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let ours = if ours_reads { &reader } else { &writer };
    set_nonblocking(ours.as_fd())?;
    Ok((reader, writer))
}

/// Sets `O_NONBLOCK`.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// A file in memory with `contents`, positioned at its start.
pub(crate) fn memory_file(name: &str, contents: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
    let mut at = 0;
    while at < contents.len() {
        at += rustix::io::pwrite(&file, &contents[at..], at as u64)?;
    }
    Ok(file)
}

/// The time until a moment, rounded up.
pub(crate) fn milliseconds_until(moment: Instant) -> u64 {
    let left = moment.saturating_duration_since(Instant::now());
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX - 1) + 1
}
