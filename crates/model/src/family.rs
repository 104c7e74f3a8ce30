//! Families: the children that a job spawns, and the siblings that a child adds.

pub mod flow;
mod pack;
pub mod siblings;
pub mod spawn;
