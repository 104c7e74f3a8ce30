//! The output of processes for a listener, in whole lines, so that lines of several processes do not mix.

use std::sync::Arc;

use crate::limits::LINE_BYTES_MAX;

/// Standard output or standard error. Output that is written past a script's own streams, for example by programs that
/// a job starts, counts as standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandardStream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

type Listen = dyn Fn(StandardStream, &str) + Send + Sync;

/// Receives the output of a script's processes, whether jobs run or not.
#[derive(Clone)]
pub struct PrintListener(Arc<Listen>);

impl PrintListener {
    /// Calls `listener` with whole lines, or with parts of long ones. It must not block for long.
    pub fn new(listener: impl Fn(StandardStream, &str) + Send + Sync + 'static) -> Self {
        PrintListener(Arc::new(listener))
    }
}

impl std::fmt::Debug for PrintListener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PrintListener(…)")
    }
}

/// Lines of one process on their way to a listener.
#[derive(Debug)]
pub(crate) struct Lines {
    listener: PrintListener,
    /// The unfinished lines.
    output: Vec<u8>,
    error: Vec<u8>,
}

impl Lines {
    pub fn new(listener: PrintListener) -> Lines {
        Lines {
            listener,
            output: Vec::new(),
            error: Vec::new(),
        }
    }

    /// Adds text, and passes complete lines on.
    pub fn push(&mut self, stream: StandardStream, bytes: &[u8]) {
        let begun = match stream {
            StandardStream::Output => &mut self.output,
            StandardStream::Error => &mut self.error,
        };
        begun.extend_from_slice(bytes);
        // Progress bars end their lines with a carriage return.
        let mut end = memchr::memrchr2(b'\n', b'\r', begun).map_or(0, |at| at + 1);
        if begun.len() - end > LINE_BYTES_MAX {
            end = whole_characters(begun);
        }
        if end > 0 {
            (self.listener.0)(stream, &String::from_utf8_lossy(&begun[..end]));
            begun.drain(..end);
        }
    }

    /// Passes the rest on, as the last line of a job.
    pub fn flush(&mut self) {
        for (stream, begun) in [
            (StandardStream::Output, &mut self.output),
            (StandardStream::Error, &mut self.error),
        ] {
            if !begun.is_empty() {
                (self.listener.0)(stream, &String::from_utf8_lossy(begun));
                begun.clear();
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The number of bytes without an incomplete character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_listener_gets_whole_lines_and_the_rest_at_the_end() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = heard.clone();
        let listener = PrintListener::new(move |stream, text| {
            told.lock().unwrap().push((stream, text.to_owned()));
        });
        let take = || std::mem::take(&mut *heard.lock().unwrap());
        let mut lines = Lines::new(listener);
        for piece in ["one", " ", "1", "\ntwo"] {
            lines.push(StandardStream::Output, piece.as_bytes());
        }
        lines.push(StandardStream::Error, b"10%\r20");
        let of = |stream, text: &str| (stream, text.to_owned());
        assert_eq!(
            take(),
            [
                of(StandardStream::Output, "one 1\n"),
                of(StandardStream::Error, "10%\r")
            ]
        );
        // A long line comes in parts of whole characters.
        let long = "é".repeat(LINE_BYTES_MAX);
        lines.push(StandardStream::Output, &long.as_bytes()[..LINE_BYTES_MAX + 2]);
        let [(_, part)] = &take()[..] else {
            panic!("one part")
        };
        assert!(part.starts_with("twoé") && !part.contains('\u{fffd}'), "{part}");
        drop(lines);
        let rest = take();
        assert_eq!(rest.last(), Some(&of(StandardStream::Error, "20")));
    }
}
