//! The rules that all stores share. They check input, and plan what a store reads and writes.
//!
//! They are for authors of stores. Programs that use a store need none of them.

pub mod admission;
pub mod cache;
pub mod check;
pub mod compaction;
pub mod contents;
pub mod controls;
pub mod deadline;
pub mod dependency;
pub mod ending;
pub mod family;
pub mod keys;
pub mod lanes;
pub mod open;
pub mod pack;
pub mod pauses;
pub mod piece;
pub mod progress;
pub mod report_write;
pub mod schedule;
pub mod waiting;

/// The message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}
