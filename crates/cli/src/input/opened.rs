//! Opens a file or a pipe, and recognises compressed files, JSON arrays and Parquet.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::array::ArrayLines;
use super::format::Format;
use super::parquet::{PARQUET_MAGIC, ParquetRows};

/// An open file or pipe, and its decompressed bytes.
pub(super) struct Opened {
    pub reader: Box<dyn Read + Send>,
    /// The bytes are the file's own, so a position in them is a position in the file.
    pub is_plain_file: bool,
    /// The items are the elements of one JSON array.
    pub is_array: bool,
    /// The pipe that the bytes come from, unless they are compressed.
    pub pipe: Option<OwnedFd>,
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The largest amount of white space before a JSON array. Bytes.
const BLANK_BYTES_MAX: usize = 64 << 10;

/// The number of bytes by which a file with one value in each line is recognised.
const FIRST_LINE_BYTES_MAX: u64 = 64 << 10;

/// Opens one file with its given format. A file that is JSON, by its format or its name, may be an array. A Parquet
/// file is read by this Python.
pub(super) fn open_file(path: &Path, given: Option<Format>, python: &OsStr) -> io::Result<Opened> {
    let may_be_array = match given {
        Some(format) => format == Format::Json,
        None => Format::promises_document(path),
    };
    let is_regular = path.is_file();
    let mut file = File::open(path)?;
    if is_regular && is_parquet(&mut file)? {
        let mut reader: Box<dyn Read + Send> = Box::new(ParquetRows::open(path, python)?);
        // A reader that cannot start fails here, not at the first item.
        let first = up_to_first_mark(&mut *reader)?;
        return Ok(Opened {
            reader: Box::new(Cursor::new(first).chain(reader)),
            is_plain_file: false,
            is_array: false,
            pipe: None,
        });
    }
    let pipe = if is_regular {
        None
    } else {
        Some(file.try_clone()?.into())
    };
    let opened = open_stream(Box::new(file), Some(path), may_be_array)?;
    Ok(Opened {
        is_plain_file: opened.is_plain_file && is_regular,
        pipe: pipe.filter(|_| opened.is_plain_file),
        ..opened
    })
}

/// Reports whether a file begins like a Parquet file. The file's position is the start, before and after.
fn is_parquet(file: &mut File) -> io::Result<bool> {
    let mut first = Vec::with_capacity(PARQUET_MAGIC.len());
    file.by_ref()
        .take(PARQUET_MAGIC.len() as u64)
        .read_to_end(&mut first)?;
    file.rewind()?;
    Ok(first == PARQUET_MAGIC)
}

/// Standard input without the buffer of [`io::stdin`], because a poll of the pipe does not see buffered bytes.
pub(super) fn open_stdin(may_be_array: bool) -> io::Result<Opened> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let pipe = file.try_clone()?.into();
    let opened = open_stream(Box::new(file), None, may_be_array)?;
    Ok(Opened {
        pipe: Some(pipe).filter(|_| opened.is_plain_file),
        ..opened
    })
}

/// Decompresses bytes that begin like compressed ones, and makes lines of a JSON array. Checks the promise of a file's name.
fn open_stream(mut raw: Box<dyn Read + Send>, file: Option<&Path>, may_be_array: bool) -> io::Result<Opened> {
    let magic = first_bytes(&mut raw)?;
    let whole = Cursor::new(magic.clone()).chain(raw);
    let expected = match file.and_then(Path::extension).and_then(OsStr::to_str) {
        Some("gz") => Some("gzip"),
        Some("zst") => Some("zstd"),
        _ => None,
    };
    let (reader, is_plain_file): (Box<dyn Read + Send>, bool) = if magic.starts_with(&GZIP_MAGIC) {
        let reader = flate2::read::MultiGzDecoder::new(io::BufReader::new(whole));
        (Box::new(reader), false)
    } else if magic == ZSTD_MAGIC {
        (Box::new(zstd::stream::read::Decoder::new(whole)?), false)
    } else if let Some(expected) = expected {
        let reason =
            format!("it is not {expected}-compressed, although its name says so; rename it, or compress it");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    } else {
        (Box::new(whole), true)
    };
    if !may_be_array {
        return Ok(Opened {
            reader,
            is_plain_file,
            is_array: false,
            pipe: None,
        });
    }
    let mut reader = reader;
    let mut head = up_to_first_mark(&mut *reader)?;
    let mut is_array = head.last() == Some(&b'[');
    if is_array && file.is_some() {
        reader
            .by_ref()
            .take(FIRST_LINE_BYTES_MAX)
            .read_to_end(&mut head)?;
        is_array = !has_value_in_first_line(&head);
    }
    let whole = Cursor::new(head).chain(reader);
    Ok(Opened {
        reader: if is_array {
            Box::new(ArrayLines::new(whole))
        } else {
            Box::new(whole)
        },
        is_plain_file: is_plain_file && !is_array,
        is_array,
        pipe: None,
    })
}

/// Reports whether the first line is a JSON value and other lines follow. Then each line is an item, even if the first
/// is an array.
fn has_value_in_first_line(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    let Some(end) = memchr::memchr(b'\n', head) else {
        return false;
    };
    let (first, rest) = head.split_at(end);
    !rest.trim_ascii().is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(first).is_ok()
}

/// The bytes up to the first one that is neither white space nor part of a byte order mark.
fn up_to_first_mark(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while head.len() < BLANK_BYTES_MAX && reader.read(&mut byte)? == 1 {
        head.push(byte[0]);
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
        if !head.last().is_some_and(is_blank) {
            break;
        }
    }
    Ok(head)
}

/// At most four bytes, which identify compressed data. Does not wait for more bytes of a slow writer when the first
/// ones are not those of compressed data.
fn first_bytes(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ZSTD_MAGIC.len());
    let mut buffer = [0; ZSTD_MAGIC.len()];
    loop {
        let may_be = |magic: &[u8]| bytes.len() < magic.len() && magic.starts_with(&bytes);
        if !may_be(&GZIP_MAGIC) && !may_be(&ZSTD_MAGIC) {
            return Ok(bytes);
        }
        match reader.read(&mut buffer[..ZSTD_MAGIC.len() - bytes.len()]) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
