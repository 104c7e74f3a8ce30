//! ZIP archives of exports: the texts in them, within the limit of a source.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use zip::ZipArchive;

use crate::error::MemoryError;
use crate::limits::{ARCHIVE_FILES_MAX, SOURCE_BYTES_MAX};
use crate::source::decode;

/// Reads the files of an archive whose names are wanted, by their paths. A folder around all of them is left out.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the bytes are no archive, or the texts exceed the limit of a source.
pub(super) fn texts(
    name: &str,
    bytes: &[u8],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, String>, MemoryError> {
    let wrong = |reason: String| MemoryError::invalid(name, reason);
    let mut archive = ZipArchive::new(Cursor::new(bytes))
        .map_err(|error| wrong(format!("it is not a ZIP archive: {error}")))?;
    if archive.len() > ARCHIVE_FILES_MAX {
        return Err(wrong(format!(
            "its {} files exceed the limit of {ARCHIVE_FILES_MAX}; unpack it, and ingest the folder",
            archive.len()
        )));
    }
    let mut texts = BTreeMap::new();
    let mut left = SOURCE_BYTES_MAX;
    for index in 0..archive.len() {
        let file = archive
            .by_index(index)
            .map_err(|error| wrong(format!("file {index} of it: {error}")))?;
        let path = match file.name() {
            Ok(path) => path.into_owned(),
            Err(error) => return Err(wrong(format!("the name of file {index} in it: {error}"))),
        };
        if !file.is_file() || !is_wanted(&path) {
            continue;
        }
        let mut content = Vec::new();
        file.take(left + 1)
            .read_to_end(&mut content)
            .map_err(|error| wrong(format!("{path} in it cannot be read: {error}")))?;
        left = left.checked_sub(content.len() as u64).ok_or_else(|| {
            wrong(format!(
                "its texts have more than the {SOURCE_BYTES_MAX} bytes that a source may have; unpack it, and ingest the folder"
            ))
        })?;
        texts.insert(path, decode(&content));
    }
    Ok(without_root(texts))
}

fn without_root(texts: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let root = texts
        .keys()
        .next()
        .and_then(|path| Some(format!("{}/", path.split_once('/')?.0)));
    match root.filter(|root| texts.keys().all(|path| path.starts_with(root.as_str()))) {
        Some(root) => texts
            .into_iter()
            .map(|(path, text)| (path[root.len()..].to_owned(), text))
            .collect(),
        None => texts,
    }
}
