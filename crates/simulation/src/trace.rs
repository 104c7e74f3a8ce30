//! The trace: the events of a simulation as lines. Their hash shows whether two simulations were the same.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use crate::limits::TRACE_LINES_MAX;

/// The lines of one simulation.
#[derive(Debug)]
pub struct Trace {
    hasher: DefaultHasher,
    last: VecDeque<String>,
    prints: bool,
}

impl Trace {
    /// A trace without lines. It prints each line if `prints` is set.
    pub fn new(prints: bool) -> Trace {
        Trace {
            hasher: DefaultHasher::new(),
            last: VecDeque::new(),
            prints,
        }
    }

    /// Adds a line.
    pub fn add(&mut self, line: String) {
        self.hasher.write(line.as_bytes());
        if self.prints {
            eprintln!("{line}");
        }
        if self.last.len() == TRACE_LINES_MAX {
            self.last.pop_front();
        }
        self.last.push_back(line);
        assert!(
            self.last.len() <= TRACE_LINES_MAX,
            "a trace keeps at most {TRACE_LINES_MAX} lines"
        );
    }

    /// The hash of all lines.
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// The last lines.
    pub fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }
}
