//! Storing batches: options, keys, debouncing, cached values, schedules.

pub mod cache;
pub mod debounce;
pub mod forgotten_lanes;
pub mod keys;
pub mod schedules;
pub mod submits;
