//! The elements of a JSON array as lines, without the array in memory.

use std::io::{self, Read};

/// Bytes of one read.
const BUFFER_BYTES: usize = 64 << 10;

/// The reader's place in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the opening bracket.
    Before,
    /// Before an element. The array may end here, unless a comma came before.
    Between { may_end: bool },
    /// In an element, within this many of its own brackets.
    Element { depth: u32 },
    /// In a string of an element.
    String { depth: u32, is_escaped: bool },
    /// After the closing bracket.
    After,
}

/// Reads a JSON array as JSON lines: one element in each line. It does not check elements; their reader does.
pub(super) struct ArrayLines<R> {
    reader: R,
    place: Place,
    elements: u64,
    buffer: Vec<u8>,
    /// Lines that are ready and not read yet.
    lines: Vec<u8>,
    read: usize,
    /// The error after these lines.
    failed: Option<io::Error>,
}

impl<R: Read> ArrayLines<R> {
    pub fn new(reader: R) -> ArrayLines<R> {
        ArrayLines {
            reader,
            place: Place::Before,
            elements: 0,
            buffer: vec![0; BUFFER_BYTES],
            lines: Vec::with_capacity(BUFFER_BYTES),
            read: 0,
            failed: None,
        }
    }

    fn take(&mut self, byte: u8) -> io::Result<()> {
        let is_space = byte.is_ascii_whitespace();
        self.place = match self.place {
            Place::Before if is_space => return Ok(()),
            Place::Before if byte == b'[' => Place::Between { may_end: true },
            Place::Before => return Err(invalid("it does not begin with `[`".to_owned())),
            Place::Between { .. } if is_space => return Ok(()),
            Place::Between { may_end } => match byte {
                b']' if may_end => Place::After,
                b']' | b',' => {
                    let elements = self.elements;
                    return Err(invalid(format!(
                        "a comma after element {elements} has no element beside it"
                    )));
                }
                _ => {
                    self.elements += 1;
                    self.in_element(byte, 0)
                }
            },
            Place::Element { depth } => self.in_element(byte, depth),
            Place::String { depth, is_escaped } => {
                // A line feed would end the line. In a string it is not allowed: a tab in its place is refused as well,
                // and ends no line.
                self.lines.push(if byte == b'\n' { b'\t' } else { byte });
                match byte {
                    b'"' if !is_escaped => Place::Element { depth },
                    _ => Place::String {
                        depth,
                        is_escaped: byte == b'\\' && !is_escaped,
                    },
                }
            }
            Place::After if is_space => return Ok(()),
            Place::After => {
                return Err(invalid(
                    "there is more after the array; for one value a line, give --format jsonl".to_owned(),
                ));
            }
        };
        Ok(())
    }

    fn in_element(&mut self, byte: u8, depth: u32) -> Place {
        let ended = match (byte, depth) {
            (b',', 0) => Place::Between { may_end: false },
            (b']', 0) => Place::After,
            _ => {
                self.lines.push(if byte == b'\n' || byte == b'\r' {
                    b' '
                } else {
                    byte
                });
                let depth = match byte {
                    b'[' | b'{' => depth.saturating_add(1),
                    b']' | b'}' => depth.saturating_sub(1),
                    _ => depth,
                };
                return match byte {
                    b'"' => Place::String {
                        depth,
                        is_escaped: false,
                    },
                    _ => Place::Element { depth },
                };
            }
        };
        self.lines.push(b'\n');
        ended
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("it is not a JSON array: {reason}"),
    )
}

impl<R: Read> Read for ArrayLines<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        while self.read == self.lines.len() {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            self.lines.clear();
            self.read = 0;
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = self.reader.read(&mut buffer);
            let taken = read.and_then(|bytes| {
                buffer[..bytes].iter().try_for_each(|byte| self.take(*byte))?;
                Ok(bytes)
            });
            self.buffer = buffer;
            match taken {
                Ok(0) if self.place == Place::After => return Ok(0),
                Ok(0) => return Err(invalid("its closing `]` is missing".to_owned())),
                Ok(_) => {}
                // The elements before it are items.
                Err(error) => self.failed = Some(error),
            }
        }
        let bytes = target.len().min(self.lines.len() - self.read);
        target[..bytes].copy_from_slice(&self.lines[self.read..self.read + bytes]);
        self.read += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> io::Result<String> {
        let mut lines = String::new();
        ArrayLines::new(text.as_bytes()).read_to_string(&mut lines)?;
        Ok(lines)
    }

    #[test]
    fn each_element_is_a_line() {
        for (text, expected) in [
            ("[]", ""),
            (
                " [ 1 , \"a,]\\\"[\" ,\n {\"b\":\n [1, 2]} ] \n",
                "1 \n\"a,]\\\"[\" \n{\"b\":  [1, 2]} \n",
            ),
            ("[[1,2],[]]", "[1,2]\n[]\n"),
        ] {
            assert_eq!(lines(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn broken_arrays_are_refused_with_their_place() {
        for (text, expected) in [
            ("{}", "does not begin with `[`"),
            ("[,1]", "a comma after element 0"),
            ("[1,]", "a comma after element 1"),
        ] {
            let error = lines(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
