//! Edges between jobs: dependencies, children and siblings.

pub mod dependencies;
pub mod families;
pub mod family_endings;
pub mod flow_cleanup;
pub mod flow_events;
pub mod flows;
pub mod hooks;
pub mod prerequisites;
pub mod siblings;
