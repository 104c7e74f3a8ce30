//! The server's tests, in one program.

mod attacks;
mod authorization;
mod backlog;
mod dashboard;
mod endpoints;
mod knowledge;
mod logs;
mod memory;
mod monitors;
mod operations;
mod packaging;
mod search;
mod serving;
mod support;
mod traces;
