//! The PostgreSQL store's tests, in one program.

mod conformance;
mod connections;
mod faults;
mod groups;
mod links;
mod sql;
mod wake;
