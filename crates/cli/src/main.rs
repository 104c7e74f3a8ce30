//! The `gristmill` program.

fn main() {}
