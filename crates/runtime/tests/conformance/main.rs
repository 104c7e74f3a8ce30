//! One suite for all installed runtimes: Python, Node, Deno and Bun, synchronous and asynchronous, and Bash.
//! `scripts/install-runtimes.sh` installs the missing ones.

mod children;
mod code;
mod durable;
mod ending;
mod examples;
mod failing_starts;
mod family;
mod flow;
mod forks;
mod harness;
mod interference;
mod isolation;
mod lifetime;
mod machine;
mod start;
mod stream;
mod table;
