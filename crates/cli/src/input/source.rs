//! Where an input comes from.

use std::fs::{File, Metadata};
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::InputError;
use super::format::Format;

/// The fingerprint of a run's input file: a cheap check that the file is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The file's absolute path; `-` for standard input.
    pub path: String,
    /// How its items are read.
    pub format: String,
    /// Its size in bytes; `None` unless it is a regular file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Its modification time in nanoseconds since 1970; `None` unless it is a regular file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<u64>,
}

/// An input: where it is and how its items are written.
#[derive(Debug, Clone)]
pub struct Input {
    /// As it was named, for messages: the file's name, or `stdin`.
    pub(super) name: Arc<str>,
    /// `None` is standard input.
    path: Option<PathBuf>,
    /// How the items are written.
    pub(super) format: Format,
}

/// A file or pipe that is open, with its bytes as the items are written in them.
pub(super) struct Opened {
    pub reader: Box<dyn Read + Send>,
    /// The bytes are the file's own, so that a place in them is one in the file.
    pub is_plain_file: bool,
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl Input {
    /// The input that `argument` names: a file, or `-` for standard input. The format is told by the
    /// file's name unless it is given; standard input and pipes are JSONL unless told otherwise.
    pub fn new(argument: &Path, format: Option<Format>) -> Result<Input, InputError> {
        if argument == Path::new("-") {
            let format = format.unwrap_or(Format::Jsonl);
            return Ok(Input {
                name: "stdin".into(),
                path: None,
                format,
            });
        }
        let name: Arc<str> = argument.display().to_string().into();
        let metadata = std::fs::metadata(argument).map_err(|reason| InputError::Open {
            name: name.to_string(),
            reason,
        })?;
        if metadata.is_dir() {
            return Err(InputError::Folder(name.to_string()));
        }
        let format = match format.or_else(|| Format::of_path(argument)) {
            Some(format) => format,
            None if !metadata.is_file() => Format::Jsonl,
            None => return Err(InputError::UnknownFormat(name.to_string())),
        };
        Ok(Input {
            name,
            path: Some(argument.to_owned()),
            format,
        })
    }

    /// As it was named, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The last part of the file's name; `stdin` for standard input.
    pub fn short_name(&self) -> String {
        let file_name = self.path.as_deref().and_then(Path::file_name);
        file_name.map_or_else(
            || self.name.to_string(),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    /// The file, unless it is standard input.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Its fingerprint.
    pub fn fingerprint(&self) -> Result<Fingerprint, InputError> {
        let metadata = match &self.path {
            Some(path) => Some(std::fs::metadata(path).map_err(|reason| self.cannot_open(reason))?),
            None => None,
        };
        let regular = metadata.as_ref().filter(|metadata| metadata.is_file());
        Ok(Fingerprint {
            path: match &self.path {
                Some(path) => std::path::absolute(path)
                    .map_err(|reason| self.cannot_open(reason))?
                    .to_string_lossy()
                    .into_owned(),
                None => "-".to_owned(),
            },
            format: self.format.name().to_owned(),
            size_bytes: regular.map(Metadata::len),
            modified_ns: regular.and_then(modified_ns),
        })
    }

    /// The file's size, where that is the size of its items: nothing for pipes and compressed files.
    pub fn plain_size_bytes(&self) -> Option<u64> {
        let path = self.path.as_deref()?;
        let compressed = matches!(
            path.extension().and_then(|extension| extension.to_str()),
            Some("gz" | "zst")
        );
        let metadata = std::fs::metadata(path).ok()?;
        (metadata.is_file() && !compressed).then_some(metadata.len())
    }

    pub(super) fn cannot_open(&self, reason: io::Error) -> InputError {
        InputError::Open {
            name: self.name.to_string(),
            reason,
        }
    }

    /// Opens the input, and decompresses it if its first bytes are those of a compressed file.
    pub(super) fn open_bytes(&self) -> Result<Opened, InputError> {
        let mut raw: Box<dyn Read + Send> = match &self.path {
            None => Box::new(io::stdin()),
            Some(path) => Box::new(File::open(path).map_err(|reason| self.cannot_open(reason))?),
        };
        let magic = first_bytes(&mut raw).map_err(|reason| self.cannot_open(reason))?;
        let is_regular = self.path.as_deref().is_some_and(Path::is_file);
        let whole = Cursor::new(magic.clone()).chain(raw);
        if magic.starts_with(&GZIP_MAGIC) {
            let reader = Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::new(whole)));
            return Ok(Opened {
                reader,
                is_plain_file: false,
            });
        }
        if magic == ZSTD_MAGIC {
            let decoder = zstd::stream::read::Decoder::new(whole);
            let reader = Box::new(decoder.map_err(|reason| self.cannot_open(reason))?);
            return Ok(Opened {
                reader,
                is_plain_file: false,
            });
        }
        let extension = self
            .path
            .as_deref()
            .and_then(Path::extension)
            .and_then(|extension| extension.to_str());
        let expected = match extension {
            Some("gz") => Some("gzip"),
            Some("zst") => Some("zstd"),
            _ => None,
        };
        if let Some(expected) = expected {
            return Err(InputError::NotCompressed {
                name: self.name.to_string(),
                expected,
            });
        }
        Ok(Opened {
            reader: Box::new(whole),
            is_plain_file: is_regular,
        })
    }

    /// Opens a plain file at `offset`.
    pub(super) fn open_at(&self, path: &Path, offset: u64) -> Result<Box<dyn Read + Send>, InputError> {
        let mut file = File::open(path).map_err(|reason| self.cannot_open(reason))?;
        file.seek(SeekFrom::Start(offset))
            .map_err(|reason| self.cannot_open(reason))?;
        Ok(Box::new(file))
    }
}

fn modified_ns(metadata: &Metadata) -> Option<u64> {
    let since_epoch = metadata
        .modified()
        .ok()?
        .duration_since(std::time::UNIX_EPOCH)
        .ok()?;
    u64::try_from(since_epoch.as_nanos()).ok()
}

/// The first four bytes, or as many as there are.
fn first_bytes(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ZSTD_MAGIC.len());
    reader.take(ZSTD_MAGIC.len() as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
