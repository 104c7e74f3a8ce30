//! The SQLite store's tests, in one program.

mod alone;
mod caller_transaction;
mod clocks;
mod conformance;
mod corruption;
mod faults;
mod files;
mod foreign_connection;
mod layout;
mod totals;
mod view;
mod wake;
