//! The agent's tests, in one program.

mod faults;
mod source_conformance;
mod support;
