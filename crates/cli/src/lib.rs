//! The `gristmill` program: the command line over the engine.

pub mod input;
