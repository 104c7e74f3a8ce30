//! A file system in memory, in one folder.

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

/// The folder of all volumes. There is none of this name on a disk, so nothing but SQLite finds their files.
const ROOT: &str = "/gristmill-power-loss";

/// The volumes that SQLite can open files on, by number.
static VOLUMES: Mutex<BTreeMap<u64, Weak<Volume>>> = Mutex::new(BTreeMap::new());
static VOLUMES_MADE: AtomicU64 = AtomicU64::new(0);

/// What a sync does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    /// Puts on disk what was written.
    Kept,
    /// Nothing, and says that all went well: a disk that lies.
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
    /// `None` where nothing is recorded.
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
    /// An empty volume that records.
    pub fn recording(syncs: Syncs) -> Arc<Volume> {
        let state = State {
            trace: Some(Vec::new()),
            ..State::default()
        };
        Volume::mounted(syncs, state)
    }

    /// A volume with these files.
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

    /// Where SQLite finds a file of this volume.
    pub fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("{ROOT}/{}/{name}", self.number))
    }

    /// Notes something between the changes.
    pub fn note(&self, note: Note) {
        self.lock().record(|| Event::Note(note));
    }

    /// What was recorded so far. Nothing is recorded from now on.
    pub fn take_trace(&self) -> Vec<Event> {
        let trace = self.lock().trace.take().unwrap_or_default();
        assert!(
            trace.len() < EVENTS_MAX,
            "a trace of over {EVENTS_MAX} events is not whole"
        );
        trace
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Opens a file, and makes it where there is none and `create` says so.
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

    /// Deletes a name. `false` where there is none.
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

    /// The bytes of the file of that name.
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

/// The volume and the name that a path names.
pub(crate) fn find(path: &str) -> Option<(Arc<Volume>, &str)> {
    let rest = path.strip_prefix(ROOT)?.strip_prefix('/')?;
    let (number, name) = rest.split_once('/')?;
    let volume = locked(&VOLUMES).get(&number.parse::<u64>().ok()?)?.upgrade()?;
    Some((volume, name))
}

/// A file without a name, for SQLite's temporary ones: on a volume of its own that nothing records.
pub(crate) fn nameless() -> Option<OpenFile> {
    Volume::of(BTreeMap::new()).open("temporary", true, false)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that one connection has open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    volume: Arc<Volume>,
    file: usize,
    handle: u64,
    /// Whether the first sync puts the names on disk, too: SQLite's VFS for Unix does so for journals and logs that it makes.
    syncs_names: AtomicBool,
}

impl OpenFile {
    fn with<T>(&self, work: impl FnOnce(&mut File) -> T) -> T {
        work(&mut self.volume.lock().files[self.file])
    }

    /// Reads into `buffer`, and returns how many bytes there were.
    pub fn read(&self, buffer: &mut [u8], offset: usize) -> usize {
        self.with(|file| {
            let there = file.bytes.get(offset..).unwrap_or_default();
            let length = there.len().min(buffer.len());
            buffer[..length].copy_from_slice(&there[..length]);
            length
        })
    }

    /// Writes, and fills a gap before with zeros.
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

    /// Cuts the file, or lets it grow by zeros.
    pub fn truncate(&self, length: usize) {
        let mut state = self.volume.lock();
        state.files[self.file].bytes.resize(length, 0);
        let file = self.file;
        state.record(|| Event::Truncate { file, length });
    }

    /// Puts the content on disk.
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

    /// Its bytes.
    pub fn length(&self) -> usize {
        self.with(|file| file.bytes.len())
    }

    /// Takes a lock on the file. `false` where another connection is in the way.
    pub fn lock(&self, level: Level) -> bool {
        self.with(|file| file.locks.lock(self.handle, level))
    }

    /// Goes back to a lower lock.
    pub fn unlock(&self, level: Level) {
        self.with(|file| file.locks.unlock(self.handle, level));
    }

    /// Whether a connection is about to write.
    pub fn is_reserved(&self) -> bool {
        self.with(|file| file.locks.is_reserved())
    }

    /// A region of the memory that the file's connections share. `None` where it is not there and `extend` does not ask for it.
    pub fn map(&self, region: usize, bytes: usize, extend: bool) -> Option<*mut u8> {
        self.with(|file| file.memory.map(self.handle, region, bytes, extend))
    }

    /// Takes or drops locks of that memory. `false` where another connection is in the way.
    pub fn lock_memory(&self, slots: u32, request: shared_memory::Request) -> bool {
        self.with(|file| file.memory.lock(self.handle, slots, request))
    }

    /// Leaves that memory, which is gone with its last connection.
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

/// Writes into a file's bytes, and fills a gap before with zeros.
pub(crate) fn write_at(file: &mut Vec<u8>, bytes: &[u8], offset: usize) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}
