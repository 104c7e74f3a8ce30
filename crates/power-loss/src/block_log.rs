//! The log of a block device's writes and flushes, and the images that the device may hold after a cut.
//!
//! The format is the format of Linux's `dm-log-writes` target; QEMU's `blklogwrites` driver writes the same. A
//! superblock comes first. Each request has an entry in its own sector, followed by the data.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use gristmill_model::SplitMix64;

use crate::fate::Fate;
use crate::limits::SECTOR_BYTES;
use crate::trial::cut;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const SECTOR: u64 = SECTOR_BYTES as u64;

/// The bits of an entry's flags.
const FLUSH: u64 = 1;
const FORCE_UNIT_ACCESS: u64 = 2;
const DISCARD: u64 = 4;

/// A complete log.
#[derive(Debug)]
pub struct BlockLog {
    file: File,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The first sector of the device that the entry writes, and the number of sectors.
    sector: u64,
    sectors: u64,
    flags: u64,
    /// The start of the entry's data in the log, in bytes.
    data_at: u64,
}

impl Entry {
    /// The number of data sectors that the entry has in the log. A discard has none.
    fn logged_sectors(&self) -> u64 {
        if self.flags & DISCARD == 0 {
            self.sectors
        } else {
            0
        }
    }

    fn end(&self) -> u64 {
        self.data_at + self.logged_sectors() * SECTOR
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn numbers<const COUNT: usize>(file: &File, at: u64) -> io::Result<[u64; COUNT]> {
    let mut numbers = [0; COUNT];
    let mut bytes = [0; 8];
    for (offset, number) in (at..).step_by(8).zip(&mut numbers) {
        file.read_exact_at(&mut bytes, offset)?;
        *number = u64::from_le_bytes(bytes);
    }
    Ok(numbers)
}

impl BlockLog {
    /// Reads the entries of a log with sectors of 512 bytes.
    pub fn open(path: &Path) -> io::Result<BlockLog> {
        let file = File::open(path)?;
        let [magic, _version, count, sector_bytes] = numbers(&file, 0)?;
        if magic != MAGIC || sector_bytes as u32 != SECTOR as u32 {
            return Err(invalid(format!(
                "{} is not a log of 512-byte sectors",
                path.display()
            )));
        }
        let mut entries = Vec::new();
        let mut at = SECTOR;
        for number in 0..count {
            let [sector, sectors, flags, _data_bytes] = numbers(&file, at)?;
            if flags & FORCE_UNIT_ACCESS != 0 {
                return Err(invalid(format!(
                    "entry {number} is a write that forces its own sync"
                )));
            }
            let entry = Entry {
                sector,
                sectors,
                flags,
                data_at: at + SECTOR,
            };
            at = entry.end();
            entries.push(entry);
        }
        Ok(BlockLog { file, entries })
    }

    /// The number of entries that begin before this position of the file, in bytes.
    pub fn entries_before(&self, position: u64) -> usize {
        self.entries
            .partition_point(|entry| entry.data_at - SECTOR < position)
    }

    /// The end of the log after this many entries, in bytes. Any request that was answered before the log had this
    /// length is in these entries.
    pub fn position(&self, entries: usize) -> u64 {
        entries
            .checked_sub(1)
            .map_or(SECTOR, |last| self.entries[last].end())
    }

    /// Draws a cut, as the number of entries before it. Half of the cuts are anywhere between the two numbers of
    /// entries. The other cuts are next to flushes.
    pub fn draw_cut(&self, (first, last): (usize, usize), rng: &mut SplitMix64) -> usize {
        assert!(
            first <= last && last <= self.entries.len(),
            "a cut is drawn from entries of the log: from {first} to {last} of {}",
            self.entries.len()
        );
        let is_flush = |at: &usize| self.entries[first + at].flags & FLUSH != 0;
        let flushes: Vec<usize> = (0..last - first).filter(is_flush).collect();
        first + cut(last - first, &flushes, rng)
    }
}

/// A device at a moment of a log.
#[derive(Debug)]
pub struct BlockDisk<'a> {
    log: &'a BlockLog,
    /// The flushed data.
    image: File,
    /// The entries since the last flush.
    unsynced: Vec<Entry>,
    applied: usize,
}

impl<'a> BlockDisk<'a> {
    /// A device of zeros at the start of the log. The file holds the flushed data.
    pub fn new(log: &'a BlockLog, image: File) -> BlockDisk<'a> {
        BlockDisk {
            log,
            image,
            unsynced: Vec::new(),
            applied: 0,
        }
    }

    /// Moves to the cut after this many entries.
    pub fn advance(&mut self, entries: usize) -> io::Result<()> {
        assert!(
            self.applied <= entries && entries <= self.log.entries.len(),
            "a device only moves forward in its log, from {} to {entries} of {} entries",
            self.applied,
            self.log.entries.len()
        );
        for entry in &self.log.entries[self.applied..entries] {
            if entry.flags & FLUSH != 0 {
                for synced in self.unsynced.drain(..) {
                    write(self.log, &synced, &self.image, |_| true)?;
                }
            }
            if entry.sectors > 0 {
                self.unsynced.push(*entry);
            }
        }
        self.applied = entries;
        Ok(())
    }

    /// Adds to a copy of the flushed image the unflushed sectors that survive if the power fails now. Returns the
    /// number of unflushed writes.
    pub fn cut(&self, copy: &File, rng: &mut SplitMix64) -> io::Result<usize> {
        let fate = Fate::draw(self.unsynced.len(), rng);
        for (at, entry) in self.unsynced.iter().enumerate() {
            write(self.log, entry, copy, |sector| at < fate.version(sector))?;
        }
        Ok(self.unsynced.len())
    }
}

/// Writes the sectors of an entry for which `shown` is true.
fn write(log: &BlockLog, entry: &Entry, image: &File, shown: impl Fn(u64) -> bool) -> io::Result<()> {
    let mut sector_bytes = [0; SECTOR_BYTES];
    for number in (0..entry.sectors).filter(|number| shown(entry.sector + number)) {
        if entry.logged_sectors() > 0 {
            log.file
                .read_exact_at(&mut sector_bytes, entry.data_at + number * SECTOR)?;
        }
        image.write_all_at(&sector_bytes, (entry.sector + number) * SECTOR)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SECTORS: u64 = 4;

    /// A log of these requests: the first sector, the number of sectors, the flags, and the byte that fills them.
    fn log(folder: &Path, requests: &[(u64, u64, u64, u8)]) -> BlockLog {
        let sector = |numbers: &[u64]| {
            let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            bytes.resize(SECTOR_BYTES, 0);
            bytes
        };
        let mut bytes = sector(&[MAGIC, 1, requests.len() as u64, SECTOR]);
        for &(first, sectors, flags, byte) in requests {
            bytes.extend(sector(&[first, sectors, flags, 0]));
            if flags & DISCARD == 0 {
                bytes.resize(bytes.len() + sectors as usize * SECTOR_BYTES, byte);
            }
        }
        let path = folder.join("log");
        std::fs::write(&path, bytes).unwrap();
        BlockLog::open(&path).unwrap()
    }

    /// The images of the device after this many entries, for many seeds. Each sector is one byte.
    fn images(folder: &Path, log: &BlockLog, entries: usize) -> BTreeSet<Vec<u8>> {
        let create = |name: &str| {
            let file = File::create(folder.join(name)).unwrap();
            file.set_len(SECTORS * SECTOR).unwrap();
            file
        };
        let mut disk = BlockDisk::new(log, create("flushed"));
        disk.advance(entries).unwrap();
        let cut = |seed| {
            let copy = create("cut");
            std::fs::copy(folder.join("flushed"), folder.join("cut")).unwrap();
            disk.cut(&copy, &mut SplitMix64::new(seed)).unwrap();
            let bytes = std::fs::read(folder.join("cut")).unwrap();
            let sectors = bytes.chunks(SECTOR_BYTES);
            assert!(
                sectors
                    .clone()
                    .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
            );
            sectors.map(|sector| sector[0]).collect()
        };
        (0..300).map(cut).collect()
    }

    #[test]
    fn flushed_sectors_stay_and_unflushed_sectors_survive_in_every_combination() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(
            folder.path(),
            &[(0, 2, 0, 1), (0, 0, FLUSH, 0), (1, 2, 0, 2), (3, 1, 0, 3)],
        );
        assert_eq!(images(folder.path(), &log, 2), BTreeSet::from([vec![1, 1, 0, 0]]));
        let all = [1, 2].into_iter().flat_map(|second| {
            let with = move |third, fourth| vec![1, second, third, fourth];
            [with(0, 0), with(0, 3), with(2, 0), with(2, 3)]
        });
        assert_eq!(images(folder.path(), &log, 4), all.collect());
    }

    #[test]
    fn a_discarded_sector_reads_as_zeros_or_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(
            folder.path(),
            &[(0, 1, 0, 1), (0, 0, FLUSH, 0), (0, 1, DISCARD, 0), (1, 1, 0, 2)],
        );
        let first: BTreeSet<u8> = images(folder.path(), &log, 3)
            .iter()
            .map(|image| image[0])
            .collect();
        assert_eq!(first, BTreeSet::from([0, 1]));
        assert!(images(folder.path(), &log, 4).contains(&vec![0, 2, 0, 0]));
    }

    #[test]
    fn a_position_is_behind_all_entries_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(
            folder.path(),
            &[(0, 2, 0, 1), (0, 0, FLUSH, 0), (0, 1, DISCARD, 0)],
        );
        let ends = [0, 1, 2, 3].map(|entries| log.position(entries));
        assert_eq!(ends, [1, 4, 5, 6].map(|sectors| sectors * SECTOR));
        assert_eq!(ends.map(|end| log.entries_before(end)), [0, 1, 2, 3]);
        assert_eq!(log.entries_before(ends[0] + 1), 1);
    }

    #[test]
    fn a_file_without_the_magic_number_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, [0; 2 * SECTOR_BYTES]).unwrap();
        assert_eq!(
            BlockLog::open(&path).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
