//! A file system in memory, with one folder.

pub(crate) mod locks;
pub(crate) mod shared_memory;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::limits::EVENTS_MAX;
use crate::note::Note;
use crate::trace::Event;
use crate::volume::locks::{Level, Locks};
use crate::volume::shared_memory::SharedMemory;

/// The folder of all volumes. No disk has a folder of this name, so only SQLite finds their files.
const ROOT: &str = "/gristmill-power-loss";

/// The volumes on which SQLite can open files, by number.
static VOLUMES: Mutex<BTreeMap<u64, Weak<Volume>>> = Mutex::new(BTreeMap::new());
static VOLUMES_MADE: AtomicU64 = AtomicU64::new(0);

/// The effect of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    /// A sync puts the written data on disk.
    Kept,
    /// A sync does nothing, but reports success: the disk lies.
    Swallowed,
}

/// A folder of files in memory.
#[derive(Debug)]
pub struct Volume {
    number: u64,
    syncs: Syncs,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, usize>,
    files: Vec<File>,
    /// The recorded events. `None` if nothing is recorded.
    trace: Option<Vec<Event>>,
    handles: u64,
}

#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    locks: Locks,
    memory: SharedMemory,
}

impl State {
    fn record(&mut self, event: impl FnOnce() -> Event) {
        if let Some(trace) = &mut self.trace
            && trace.len() < EVENTS_MAX
        {
            trace.push(event());
        }
    }

    fn add_file(&mut self, file: File) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }
}

impl Volume {
    /// An empty volume that records a trace.
    pub fn recording(syncs: Syncs) -> Arc<Volume> {
        let state = State {
            trace: Some(Vec::new()),
            ..State::default()
        };
        Volume::mounted(syncs, state)
    }

    /// A volume with these files, which records nothing.
    pub fn of(image: BTreeMap<String, Vec<u8>>) -> Arc<Volume> {
        let mut state = State::default();
        for (name, bytes) in image {
            let file = state.add_file(File {
                bytes,
                ..File::default()
            });
            state.names.insert(name, file);
        }
        Volume::mounted(Syncs::Kept, state)
    }

    fn mounted(syncs: Syncs, state: State) -> Arc<Volume> {
        let volume = Arc::new(Volume {
            number: VOLUMES_MADE.fetch_add(1, Ordering::Relaxed),
            syncs,
            state: Mutex::new(state),
        });
        locked(&VOLUMES).insert(volume.number, Arc::downgrade(&volume));
        volume
    }

    /// The path that SQLite opens for a file of this volume.
    pub fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("{ROOT}/{}/{name}", self.number))
    }

    /// Leaves a note in the trace.
    pub fn note(&self, note: Note) {
        self.lock().record(|| Event::Note(note));
    }

    /// Returns the trace, and stops recording.
    pub fn take_trace(&self) -> Vec<Event> {
        let trace = self.lock().trace.take().unwrap_or_default();
        assert!(
            trace.len() < EVENTS_MAX,
            "the trace reached the limit of {EVENTS_MAX} events and is incomplete"
        );
        trace
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Opens a file. Makes a missing file if `create` is set.
    pub(crate) fn open(self: &Arc<Self>, name: &str, create: bool, syncs_names: bool) -> Option<OpenFile> {
        let mut state = self.lock();
        let file = match state.names.get(name).copied() {
            Some(file) => file,
            None if create => {
                let file = state.add_file(File::default());
                state.names.insert(name.to_owned(), file);
                let name = name.to_owned();
                state.record(|| Event::Create { name, file });
                file
            }
            None => return None,
        };
        state.handles += 1;
        Some(OpenFile {
            volume: self.clone(),
            file,
            handle: state.handles,
            syncs_names: AtomicBool::new(syncs_names),
        })
    }

    /// Deletes a name. Returns `false` if there is none.
    pub(crate) fn delete(&self, name: &str, sync_names: bool) -> bool {
        let mut state = self.lock();
        if state.names.remove(name).is_none() {
            return false;
        }
        let name = name.to_owned();
        state.record(|| Event::Delete { name });
        if sync_names && self.syncs == Syncs::Kept {
            state.record(|| Event::SyncNames);
        }
        true
    }

    /// The length of the file with this name, in bytes.
    pub(crate) fn length_of(&self, name: &str) -> Option<usize> {
        let state = self.lock();
        let file = state.names.get(name)?;
        Some(state.files[*file].bytes.len())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        locked(&VOLUMES).remove(&self.number);
    }
}

/// The volume and the name of a path.
pub(crate) fn find(path: &str) -> Option<(Arc<Volume>, &str)> {
    let rest = path.strip_prefix(ROOT)?.strip_prefix('/')?;
    let (number, name) = rest.split_once('/')?;
    let volume = locked(&VOLUMES).get(&number.parse::<u64>().ok()?)?.upgrade()?;
    Some((volume, name))
}

/// A file without a name, for SQLite's temporary files. It has its own volume, which records nothing.
pub(crate) fn nameless() -> Option<OpenFile> {
    Volume::of(BTreeMap::new()).open("temporary", true, false)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that one connection holds open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    volume: Arc<Volume>,
    file: usize,
    handle: u64,
    /// The first sync also puts the names on disk. SQLite's VFS for Unix does so for the journals and logs that it makes.
    syncs_names: AtomicBool,
}

impl OpenFile {
    fn with<T>(&self, work: impl FnOnce(&mut File) -> T) -> T {
        work(&mut self.volume.lock().files[self.file])
    }

    /// Reads into `buffer`, and returns the number of bytes read.
    pub fn read(&self, buffer: &mut [u8], offset: usize) -> usize {
        self.with(|file| {
            let there = file.bytes.get(offset..).unwrap_or_default();
            let length = there.len().min(buffer.len());
            buffer[..length].copy_from_slice(&there[..length]);
            length
        })
    }

    /// Writes bytes. Fills a gap before them with zeros.
    pub fn write(&self, bytes: &[u8], offset: usize) {
        let mut state = self.volume.lock();
        write_at(&mut state.files[self.file].bytes, bytes, offset);
        let file = self.file;
        state.record(|| Event::Write {
            file,
            offset,
            bytes: bytes.to_vec(),
        });
    }

    /// Cuts the file, or extends it with zeros.
    pub fn truncate(&self, length: usize) {
        let mut state = self.volume.lock();
        state.files[self.file].bytes.resize(length, 0);
        let file = self.file;
        state.record(|| Event::Truncate { file, length });
    }

    /// Puts the content of the file on disk.
    pub fn sync(&self) {
        if self.volume.syncs == Syncs::Swallowed {
            return;
        }
        let mut state = self.volume.lock();
        let file = self.file;
        state.record(|| Event::Sync { file });
        if self.syncs_names.swap(false, Ordering::Relaxed) {
            state.record(|| Event::SyncNames);
        }
    }

    /// The length of the file in bytes.
    pub fn length(&self) -> usize {
        self.with(|file| file.bytes.len())
    }

    /// Takes a lock on the file. Returns `false` if the lock of another connection conflicts.
    pub fn lock(&self, level: Level) -> bool {
        self.with(|file| file.locks.lock(self.handle, level))
    }

    /// Lowers the lock on the file.
    pub fn unlock(&self, level: Level) {
        self.with(|file| file.locks.unlock(self.handle, level));
    }

    /// Reports whether a connection is about to write.
    pub fn is_reserved(&self) -> bool {
        self.with(|file| file.locks.is_reserved())
    }

    /// A region of the memory that the file's connections share. `None` if the region is missing and `extend` is not set.
    pub fn map(&self, region: usize, bytes: usize, extend: bool) -> Option<*mut u8> {
        self.with(|file| file.memory.map(self.handle, region, bytes, extend))
    }

    /// Takes or drops locks on the shared memory. Returns `false` if the lock of another connection conflicts.
    pub fn lock_memory(&self, slots: u32, request: shared_memory::Request) -> bool {
        self.with(|file| file.memory.lock(self.handle, slots, request))
    }

    /// Leaves the shared memory, which disappears with its last connection.
    pub fn unmap(&self) {
        self.with(|file| file.memory.unmap(self.handle));
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.unmap();
        self.unlock(Level::None);
    }
}

/// Writes into the bytes of a file. Fills a gap before them with zeros.
pub(crate) fn write_at(file: &mut Vec<u8>, bytes: &[u8], offset: usize) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}
