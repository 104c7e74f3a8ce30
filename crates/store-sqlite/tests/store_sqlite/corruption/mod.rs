//! Damage of a file is found, and affects only its own batch.

mod flips;
mod rows;
