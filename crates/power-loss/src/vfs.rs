//! SQLite's access to a [`Volume`](crate::Volume): a VFS. Its registration makes it the default VFS of the process, so
//! that stores open their files as usual.
//!
//! The VFS behaves like SQLite's own VFS for Unix: its sector size is 4,096 bytes, a write damages no bytes next to it
//! (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`), and the first sync of a new journal or log also syncs the folder.
//! <https://sqlite.org/c3ref/vfs.html> and <https://sqlite.org/c3ref/io_methods.html> describe the calls.
#![expect(
    unsafe_code,
    reason = "SQLite calls a file system through C functions with raw pointers"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{Ordering, fence};

use rusqlite::ffi;

use crate::volume::locks::Level;
use crate::volume::shared_memory::Request;
use crate::volume::{self, OpenFile};

/// The largest number of bytes in a path.
const PATH_BYTES_MAX: c_int = 512;

/// The sector size of SQLite's VFS for Unix.
const SECTOR_SIZE: c_int = 4_096;

/// The number of lock slots in a log's index (`SQLITE_SHM_NLOCK`).
const SLOTS: c_int = 8;

/// SQLite's memory for an open file. SQLite's own part comes first.
#[repr(C)]
struct Handle {
    base: ffi::sqlite3_file,
    open: *mut OpenFile,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Makes this VFS the default of the process, once.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a null name asks for the default VFS, which lives as long as the process.
        let unix = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
        assert!(!unix.is_null(), "SQLite has a default VFS");
        // SAFETY: the pointer refers to a VFS of SQLite. Time, sleep and randomness stay with the VFS for Unix. Its
        // functions ignore the VFS argument.
        let unix = unsafe { *unix };
        let vfs = ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<Handle>() as c_int,
            mxPathname: PATH_BYTES_MAX,
            pNext: ptr::null_mut(),
            zName: c"power-loss".as_ptr(),
            pAppData: ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xGetLastError: Some(last_error),
            ..unix
        };
        // SAFETY: the VFS is never freed, and its functions follow SQLite's description.
        let code = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite takes the VFS");
    });
}

/// The open file behind a handle.
///
/// # Safety
///
/// `file` was filled by [`open`], and is not closed yet.
unsafe fn opened<'a>(file: *mut ffi::sqlite3_file) -> &'a OpenFile {
    // SAFETY: `open` stored a box there, which lives until `close`. All borrows of it are shared.
    unsafe { &*(*file.cast::<Handle>()).open }
}

/// A path as text. The result is empty for a path that is not UTF-8, which no volume has.
///
/// # Safety
///
/// `name` is null or ends with a zero.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller guarantees it, and SQLite keeps the name during the call.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default())
}

fn level(code: c_int) -> Level {
    match code {
        ffi::SQLITE_LOCK_NONE => Level::None,
        ffi::SQLITE_LOCK_SHARED => Level::Shared,
        ffi::SQLITE_LOCK_RESERVED => Level::Reserved,
        ffi::SQLITE_LOCK_PENDING => Level::Pending,
        _ => Level::Exclusive,
    }
}

fn ok_or_busy(taken: bool) -> c_int {
    if taken { ffi::SQLITE_OK } else { ffi::SQLITE_BUSY }
}

// --- The file system ---

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    const NEW_JOURNALS: c_int =
        ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;
    let handle = file.cast::<Handle>();
    // SAFETY: SQLite provides `szOsFile` bytes. SQLite closes nothing for a file without methods.
    unsafe { (*handle).base.pMethods = ptr::null() };
    let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
    // SAFETY: a name of SQLite ends with a zero.
    let opened = match unsafe { text(name) } {
        Some(path) => volume::find(path)
            .and_then(|(volume, name)| volume.open(name, create, create && flags & NEW_JOURNALS != 0)),
        None => volume::nameless(),
    };
    let Some(opened) = opened else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: SQLite provides `szOsFile` bytes, and `flags_out` is null or valid.
    unsafe {
        (*handle).open = Box::into_raw(Box::new(opened));
        (*handle).base.pMethods = &METHODS;
        if !flags_out.is_null() {
            *flags_out = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    // SAFETY: a name of SQLite ends with a zero.
    let found = unsafe { text(name) }.and_then(volume::find);
    match found.map(|(volume, name)| volume.delete(name, sync_folder != 0)) {
        Some(true) => ffi::SQLITE_OK,
        Some(false) | None => ffi::SQLITE_IOERR_DELETE_NOENT,
    }
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: a name of SQLite ends with a zero.
    let found = unsafe { text(name) }.and_then(volume::find);
    let length = found.and_then(|(volume, name)| volume.length_of(name));
    // SQLite's VFS for Unix treats an empty file as missing.
    let answer = match flags {
        ffi::SQLITE_ACCESS_EXISTS => length.is_some_and(|length| length > 0),
        _ => length.is_some(),
    };
    // SAFETY: SQLite provides the memory for the answer.
    unsafe { *out = c_int::from(answer) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: a name of SQLite ends with a zero.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if bytes.len() > room as usize {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: SQLite provides `room` bytes, which do not overlap the name.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_: *mut ffi::sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}

// --- A file ---

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` made the box, and SQLite closes a file only once.
    drop(unsafe { Box::from_raw((*file.cast::<Handle>()).open) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    out: *mut c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite provides a buffer of `length` bytes.
    let buffer = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), length as usize) };
    // SAFETY: the file is open.
    let read = unsafe { opened(file) }.read(buffer, offset as usize);
    if read == buffer.len() {
        return ffi::SQLITE_OK;
    }
    buffer[read..].fill(0);
    ffi::SQLITE_IOERR_SHORT_READ
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite provides `length` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length as usize) };
    // SAFETY: the file is open.
    unsafe { opened(file) }.write(bytes, offset as usize);
    ffi::SQLITE_OK
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: the file is open.
    unsafe { opened(file) }.truncate(length as usize);
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { opened(file) }.sync();
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: the file is open, and SQLite provides the memory for the answer.
    unsafe { *out = opened(file).length() as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, code: c_int) -> c_int {
    // SAFETY: the file is open.
    ok_or_busy(unsafe { opened(file) }.lock(level(code)))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, code: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { opened(file) }.unlock(level(code));
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: the file is open, and SQLite provides the memory for the answer.
    unsafe { *out = c_int::from(opened(file).is_reserved()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    SECTOR_SIZE
}

unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

// --- The index of a log ---

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the file is open.
    let region = unsafe { opened(file) }.map(region as usize, bytes as usize, extend != 0);
    // SAFETY: SQLite provides the memory for the answer. A missing region is null.
    unsafe { *out = region.map_or(ptr::null_mut(), <*mut u8>::cast) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    debug_assert!(first + count <= SLOTS, "SQLite locks only slots of the index");
    let request = if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        Request::Release
    } else if flags & ffi::SQLITE_SHM_SHARED != 0 {
        Request::Shared
    } else {
        Request::Exclusive
    };
    let slots = ((1_u32 << count) - 1) << first;
    // SAFETY: the file is open.
    ok_or_busy(unsafe { opened(file) }.lock_memory(slots, request))
}

unsafe extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { opened(file) }.unmap();
    ffi::SQLITE_OK
}
