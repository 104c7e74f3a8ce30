//! The images that a disk may hold after a cut.
//!
//! The disk keeps all synced data. Of each sector with unsynced writes it may hold any version, because the drive and
//! the system write sectors in any order. A write of several sectors can be torn between them. The same holds for the
//! length of a file, and for each name that was made or deleted since the last sync of the folder.

use std::collections::BTreeMap;

use gristmill_model::SplitMix64;

use crate::fate::Fate;
use crate::limits::SECTOR_BYTES;
use crate::trace::Event;
use crate::volume::write_at;

/// The files after a cut, by name.
pub type Image = BTreeMap<String, Vec<u8>>;

/// A disk at a moment of a trace.
#[derive(Debug, Default)]
pub struct Disk<'a> {
    files: Vec<Content<'a>>,
    names: BTreeMap<&'a str, usize>,
    /// The names that were made or deleted since the last sync of the folder. A made name has the number of its file.
    unsynced_names: Vec<(&'a str, Option<usize>)>,
}

#[derive(Debug, Default)]
struct Content<'a> {
    synced: Vec<u8>,
    unsynced: Vec<Change<'a>>,
}

#[derive(Debug)]
enum Change<'a> {
    Write { offset: usize, bytes: &'a [u8] },
    Truncate(usize),
}

impl Change<'_> {
    /// The length of a file of `length` bytes after this change.
    fn length_after(&self, length: usize) -> usize {
        match self {
            Change::Write { offset, bytes } => length.max(offset + bytes.len()),
            Change::Truncate(length) => *length,
        }
    }
}

/// The part number that draws the fate of a file's length.
const LENGTH: u64 = u64::MAX;

impl<'a> Disk<'a> {
    /// Applies the next event of a trace.
    pub fn apply(&mut self, event: &'a Event) {
        match event {
            Event::Create { name, file } => {
                assert_eq!(
                    *file,
                    self.files.len(),
                    "a trace numbers its files in the order of their creation"
                );
                self.files.push(Content::default());
                self.unsynced_names.push((name.as_str(), Some(*file)));
            }
            Event::Delete { name } => self.unsynced_names.push((name.as_str(), None)),
            Event::Write { file, offset, bytes } => self.files[*file].unsynced.push(Change::Write {
                offset: *offset,
                bytes,
            }),
            Event::Truncate { file, length } => self.files[*file].unsynced.push(Change::Truncate(*length)),
            Event::Sync { file } => self.files[*file].sync(),
            Event::SyncNames => {
                for (name, file) in self.unsynced_names.drain(..) {
                    set_name(&mut self.names, name, file);
                }
            }
            Event::Note(_) => {}
        }
    }

    /// An image that the disk may hold if the power fails now.
    pub fn image(&self, rng: &mut SplitMix64) -> Image {
        let mut names = self.names.clone();
        let fate = Fate::draw(self.unsynced_names.len(), rng);
        for (at, &(name, file)) in self.unsynced_names.iter().enumerate() {
            if at < fate.version(u64::from(crc32fast::hash(name.as_bytes()))) {
                set_name(&mut names, name, file);
            }
        }
        let mut image = Image::new();
        for (name, file) in names {
            let content = &self.files[file];
            let fate = Fate::draw(content.unsynced.len(), rng);
            image.insert(name.to_owned(), content.after(&fate));
        }
        image
    }
}

fn set_name<'a>(names: &mut BTreeMap<&'a str, usize>, name: &'a str, file: Option<usize>) {
    match file {
        Some(file) => names.insert(name, file),
        None => names.remove(name),
    };
}

impl Content<'_> {
    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            match change {
                Change::Write { offset, bytes } => write_at(&mut self.synced, bytes, offset),
                Change::Truncate(length) => self.synced.resize(length, 0),
            }
        }
    }

    fn after(&self, fate: &Fate) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let (mut length, mut length_shown) = (bytes.len(), bytes.len());
        let length_version = fate.version(LENGTH);
        for (at, change) in self.unsynced.iter().enumerate() {
            let length_before = length;
            length = change.length_after(length);
            if at < length_version {
                length_shown = length;
            }
            if bytes.len() < length {
                bytes.resize(length, 0);
            }
            let shown = |sector: usize| at < fate.version(sector as u64);
            assert!(
                length_version <= self.unsynced.len(),
                "the fate of a file counts no more changes than the file has"
            );
            match change {
                Change::Write { offset, bytes: new } => {
                    for (start, end) in sectors(*offset, offset + new.len()) {
                        if shown(start / SECTOR_BYTES) {
                            bytes[start..end].copy_from_slice(&new[start - offset..end - offset]);
                        }
                    }
                }
                Change::Truncate(length) => {
                    for (start, end) in sectors(*length, length_before.max(*length)) {
                        if shown(start / SECTOR_BYTES) {
                            bytes[start..end].fill(0);
                        }
                    }
                }
            }
        }
        bytes.resize(length_shown, 0);
        bytes
    }
}

/// Splits a range of bytes at the sector boundaries.
fn sectors(start: usize, end: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut next = start;
    std::iter::from_fn(move || {
        let from = next;
        debug_assert!(
            from == start || from >= end || from.is_multiple_of(SECTOR_BYTES),
            "each part after the first starts at a sector boundary"
        );
        (from < end).then(|| {
            next = ((from / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
            (from, next)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn write(offset: usize, byte: u8, length: usize) -> Event {
        Event::Write {
            file: 0,
            offset,
            bytes: vec![byte; length],
        }
    }

    /// The images at the end of a trace, for many seeds.
    fn images(trace: &[Event]) -> BTreeSet<Image> {
        let mut disk = Disk::default();
        trace.iter().for_each(|event| disk.apply(event));
        (0..2_000)
            .map(|seed| disk.image(&mut SplitMix64::new(seed)))
            .collect()
    }

    fn created() -> Event {
        Event::Create {
            name: "a".to_owned(),
            file: 0,
        }
    }

    #[test]
    fn synced_bytes_stay_and_unsynced_bytes_survive_in_every_combination() {
        let sync = Event::Sync { file: 0 };
        let trace = [
            created(),
            Event::SyncNames,
            write(0, 1, 1_024),
            sync,
            write(0, 2, 1_024),
        ];
        let seen: BTreeSet<(u8, u8)> = images(&trace)
            .iter()
            .map(|image| {
                let bytes = &image["a"];
                assert_eq!(bytes.len(), 1_024);
                assert!(
                    bytes
                        .chunks(SECTOR_BYTES)
                        .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
                );
                (bytes[0], bytes[SECTOR_BYTES])
            })
            .collect();
        assert_eq!(seen, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)]));
    }

    #[test]
    fn a_version_of_a_sector_includes_all_earlier_writes_to_it() {
        let trace = [created(), Event::SyncNames, write(0, 1, 100), write(100, 2, 100)];
        for image in images(&trace) {
            let bytes = &image["a"];
            let shown = |at: usize| bytes.get(at).copied().unwrap_or(0);
            assert!(
                shown(100) != 2 || shown(0) == 1,
                "the second write without the first"
            );
        }
    }

    #[test]
    fn unsynced_names_and_lengths_can_be_lost() {
        let delete = Event::Delete { name: "a".to_owned() };
        let trace = [
            created(),
            write(0, 1, 600),
            Event::SyncNames,
            Event::Truncate { file: 0, length: 100 },
        ];
        let lengths: BTreeSet<usize> = images(&trace).iter().map(|image| image["a"].len()).collect();
        assert_eq!(lengths, BTreeSet::from([0, 100, 600]));
        let is_there = |trace: &[Event]| -> BTreeSet<bool> {
            images(trace)
                .iter()
                .map(|image| image.contains_key("a"))
                .collect()
        };
        assert_eq!(is_there(&[created()]), BTreeSet::from([false, true]));
        assert_eq!(is_there(&[created(), Event::SyncNames]), BTreeSet::from([true]));
        assert_eq!(
            is_there(&[created(), Event::SyncNames, delete]),
            BTreeSet::from([false, true])
        );
    }
}
