//! Parquet files: the Python package pyarrow reads their rows as JSON lines, in its own process.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The first bytes of a Parquet file.
pub(super) const PARQUET_MAGIC: [u8; 4] = *b"PAR1";

/// The exit status of a reader that cannot import pyarrow.
const NO_PACKAGE: i32 = 78;

/// The number of bytes from the end of the reader's messages that an error repeats.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The first character of a line in which the reader explains why a row cannot become JSON.
pub(super) const REFUSED_ROW_MARK: char = '\u{1}';

/// The reader's program. It writes one row in each line.
const READER: &str = include_str!("parquet_rows.py");

/// The rows of a Parquet file as JSON lines.
pub(super) struct ParquetRows {
    python: OsString,
    child: Child,
    lines: ChildStdout,
    has_ended: bool,
}

impl ParquetRows {
    /// Starts to read a file.
    pub fn open(path: &Path, python: &OsStr) -> io::Result<ParquetRows> {
        let mut command = Command::new(python);
        command.args(["-X", "utf8", "-c", READER]).arg(path);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = command.spawn();
        let mut child = started.map_err(|error| {
            let reason = format!(
                "{error} ({}); name a Python with --python",
                python.to_string_lossy()
            );
            refused(python, &reason)
        })?;
        let lines = child
            .stdout
            .take()
            .ok_or_else(|| refused(python, "its output is closed"))?;
        Ok(ParquetRows {
            python: python.to_owned(),
            child,
            lines,
            has_ended: false,
        })
    }

    /// The reason why the reader ended before the end of the file, if it did.
    fn end(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        let mut message = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            stderr.take(MESSAGE_BYTES_MAX as u64).read_to_end(&mut message)?;
        }
        let status = self.child.wait()?;
        match status.code() {
            Some(0) => Ok(()),
            Some(NO_PACKAGE) => Err(refused(
                &self.python,
                &format!(
                    "that Python does not have it: run `{} -m pip install pyarrow`, or name another Python with --python",
                    self.python.to_string_lossy()
                ),
            )),
            _ => Err(refused(&self.python, String::from_utf8_lossy(&message).trim())),
        }
    }
}

fn refused(python: &OsStr, reason: &str) -> io::Error {
    let python = python.to_string_lossy();
    let reason = format!("it is Parquet, which {python} reads with the package pyarrow: {reason}");
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl Read for ParquetRows {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.lines.read(buffer)?;
        if read == 0 && !buffer.is_empty() {
            self.end()?;
        }
        Ok(read)
    }
}

impl Drop for ParquetRows {
    fn drop(&mut self) {
        if !self.has_ended {
            // The reader may have ended by itself.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
