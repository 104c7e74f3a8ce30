//! Damage of a file is found, and stays with the batch that has it.

mod flips;
mod rows;
