//! The source of an input.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::dialect::DialectArguments;
use super::error::InputError;
use super::format::Format;
use super::opened::{Opened, open_file, open_stdin};
use super::payloads::Payloads;
use super::places::Places;

/// The largest number of files in one input. It bounds the stored description of a run.
const INPUT_FILES_MAX: usize = 100_000;

/// The fingerprint of a run's input file: a cheap check that the file is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The file's absolute path; `-` for standard input.
    pub path: String,
    /// The format of its items.
    pub format: String,
    /// Its size in bytes; `None` unless it is a regular file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Its modification time in nanoseconds since 1970; `None` unless it is a regular file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<u64>,
}

/// An input: its place and the format of its items.
#[derive(Debug, Clone)]
pub struct Input {
    /// The name in messages: the file's name as given, or `stdin`.
    pub(super) name: Arc<str>,
    source: Source,
    /// The format of the items.
    pub(super) format: Format,
    /// The given settings of rows.
    pub(super) dialect: DialectArguments,
    /// The given format.
    given: Option<Format>,
    /// The Python that reads Parquet files.
    python: OsString,
    /// Makes payloads of the items.
    pub(super) payloads: Option<Payloads>,
}

/// The default Python for Parquet files.
const PYTHON: &str = "python3";

/// The place of the bytes.
#[derive(Debug, Clone)]
enum Source {
    Stdin,
    /// One file or several.
    Files(Vec<PathBuf>),
}

impl Input {
    /// The input that `argument` names: a file, or `-` for standard input. The file's name decides the format unless
    /// one is given. Standard input and pipes are JSONL by default.
    pub fn new(argument: &Path, format: Option<Format>) -> Result<Input, InputError> {
        Input::of(&[argument.to_owned()], format)
    }

    /// The input that these arguments name together: files and patterns such as `data/*.jsonl`, or `-` for standard input.
    pub fn of(arguments: &[PathBuf], format: Option<Format>) -> Result<Input, InputError> {
        let lines_of = |format: Format| match format {
            Format::Json => Format::Jsonl,
            other => other,
        };
        if arguments == [Path::new("-")] {
            return Ok(Input {
                name: "stdin".into(),
                source: Source::Stdin,
                format: lines_of(format.unwrap_or(Format::Jsonl)),
                dialect: DialectArguments::default(),
                given: format,
                python: PYTHON.into(),
                payloads: None,
            });
        }
        if arguments.iter().any(|argument| argument == Path::new("-")) {
            return Err(InputError::StdinAmongFiles);
        }
        let files = expand(arguments)?;
        let mut formats = Vec::with_capacity(files.len());
        for path in &files {
            formats.push(lines_of(format_of(path, format)?));
        }
        if let Some(other) = formats.iter().position(|format| *format != formats[0]) {
            return Err(InputError::MixedFormats {
                first: files[0].display().to_string(),
                other: files[other].display().to_string(),
            });
        }
        let names: Vec<_> = arguments.iter().map(|path| path.display().to_string()).collect();
        Ok(Input {
            name: names.join(" ").into(),
            format: formats[0],
            dialect: DialectArguments::default(),
            given: format,
            source: Source::Files(files),
            python: PYTHON.into(),
            payloads: None,
        })
    }

    /// Sets another Python for Parquet files.
    pub fn with_python(self, python: impl Into<OsString>) -> Input {
        Input {
            python: python.into(),
            ..self
        }
    }

    /// Makes other payloads of the items.
    pub fn with_payloads(self, payloads: Payloads) -> Input {
        Input {
            payloads: Some(payloads),
            ..self
        }
    }

    /// Sets the settings of rows.
    pub fn with_dialect(self, dialect: DialectArguments) -> Result<Input, InputError> {
        dialect.check(self.format)?;
        Ok(Input { dialect, ..self })
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports whether it is standard input, which no later process can read again.
    pub fn is_stdin(&self) -> bool {
        matches!(self.source, Source::Stdin)
    }

    /// The last part of the file's name, with the number of further ones; `stdin` for standard input.
    pub fn short_name(&self) -> String {
        let last_part = |name: &str| {
            name.trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap_or(name)
                .to_owned()
        };
        match &self.source {
            Source::Stdin => self.name.to_string(),
            Source::Files(files) => match files.as_slice() {
                [file] => last_part(&file.to_string_lossy()),
                // Adding files does not change the name of a pattern.
                _ if !self.name.contains(' ') => last_part(&self.name),
                [first, others @ ..] => format!("{}+{}", last_part(&first.to_string_lossy()), others.len()),
                [] => self.name.to_string(),
            },
        }
    }

    /// The file, if the input is one file.
    pub fn path(&self) -> Option<&Path> {
        match self.files() {
            [file] => Some(file),
            _ => None,
        }
    }

    /// The files, unless it is standard input.
    pub fn files(&self) -> &[PathBuf] {
        match &self.source {
            Source::Stdin => &[],
            Source::Files(files) => files,
        }
    }

    /// The fingerprint of the input.
    pub fn fingerprint(&self) -> Result<Fingerprint, InputError> {
        let absolute = |path: &PathBuf| {
            let absolute = std::path::absolute(path).map_err(|reason| self.cannot_open(reason))?;
            Ok(absolute.to_string_lossy().into_owned())
        };
        let paths = self.files().iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
        let metadata = match self.path() {
            Some(path) => Some(std::fs::metadata(path).map_err(|reason| self.cannot_open(reason))?),
            None => None,
        };
        let regular = metadata.as_ref().filter(|metadata| metadata.is_file());
        Ok(Fingerprint {
            path: match self.source {
                Source::Stdin => "-".to_owned(),
                Source::Files(_) => paths.join("\n"),
            },
            format: self.dialect.describe(self.format),
            size_bytes: regular.map(Metadata::len),
            modified_ns: regular.and_then(modified_ns),
        })
    }

    /// The files' size, if it is the size of their items. `None` for pipes and compressed files.
    pub fn plain_size_bytes(&self) -> Option<u64> {
        let size_of = |path: &PathBuf| {
            let compressed = matches!(
                path.extension().and_then(|extension| extension.to_str()),
                Some("gz" | "zst" | "parquet")
            );
            let metadata = std::fs::metadata(path).ok()?;
            (metadata.is_file() && !compressed).then_some(metadata.len())
        };
        match self.source {
            Source::Stdin => None,
            Source::Files(_) => self.files().iter().map(size_of).sum(),
        }
    }

    pub(super) fn cannot_open(&self, reason: io::Error) -> InputError {
        InputError::Open {
            name: self.name.to_string(),
            reason,
        }
    }

    /// Opens the input. Decompresses files whose first bytes say so, and makes lines of JSON arrays.
    pub(super) fn open_bytes(&self, places: &Places) -> Result<Opened, InputError> {
        let opened = match &self.source {
            Source::Stdin => open_stdin(self.given == Some(Format::Json)),
            Source::Files(files) => match files.as_slice() {
                [file] => open_file(file, self.given, &self.python),
                files => Ok(Opened {
                    reader: Box::new(Chain::new(
                        files,
                        (self.format, self.dialect.of(self.format)),
                        self.given,
                        self.python.clone(),
                        places.clone(),
                    )),
                    is_plain_file: false,
                    is_array: false,
                    pipe: None,
                }),
            },
        };
        let opened = opened.map_err(|reason| self.cannot_open(reason))?;
        if opened.is_array {
            places.add(self.name.clone(), 0, 0, true);
        }
        Ok(opened)
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

/// The files that arguments name or that patterns match, in the order of the arguments and then of the names.
fn expand(arguments: &[PathBuf]) -> Result<Vec<PathBuf>, InputError> {
    let mut files = Vec::new();
    for argument in arguments {
        let text = argument.to_string_lossy();
        if !text.contains(['*', '?', '[']) || argument.symlink_metadata().is_ok() {
            files.push(argument.clone());
            continue;
        }
        let refuse = |reason: String| InputError::Pattern {
            pattern: text.clone().into_owned(),
            reason,
        };
        let before = files.len();
        for found in glob::glob(&text).map_err(|error| refuse(error.to_string()))? {
            let found = found.map_err(|error| refuse(error.to_string()))?;
            if found.is_file() {
                files.push(found);
            }
        }
        if files.len() == before {
            return Err(refuse("it matches no file".to_owned()));
        }
    }
    if files.len() > INPUT_FILES_MAX {
        return Err(InputError::TooManyFiles {
            files: files.len(),
            files_max: INPUT_FILES_MAX,
        });
    }
    Ok(files)
}

/// The format of an existing file.
fn format_of(path: &Path, format: Option<Format>) -> Result<Format, InputError> {
    let name = path.display().to_string();
    let metadata = std::fs::metadata(path).map_err(|reason| InputError::Open {
        name: name.clone(),
        reason,
    })?;
    if metadata.is_dir() {
        return Err(InputError::Folder(name));
    }
    if path.extension().is_some_and(|extension| extension == "parquet") {
        // The Parquet reader gives lines.
        return Ok(Format::Jsonl);
    }
    match format.or_else(|| Format::of_path(path)) {
        Some(format) => Ok(format),
        None if !metadata.is_file() => Ok(Format::Jsonl),
        None => Err(InputError::UnknownFormat(name)),
    }
}
