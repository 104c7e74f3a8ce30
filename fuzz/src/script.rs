//! The frames of script processes.

pub fn read(data: &[u8]) {
    gristmill_runtime::fuzzing::read_frames(data);
}
