//! The worker's tests, in one program.

mod registration;
mod stopping;
