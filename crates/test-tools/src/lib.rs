//! Tools that the tests and benchmarks of several crates share.

pub mod lossy_proxy;
pub mod provider;
pub mod replayed;
pub mod small_model;
pub mod stand_in;
