//! Edges between jobs: dependencies, children and siblings.

pub(crate) mod cleanup;
pub(crate) mod dependency;
pub(crate) mod family;
pub(crate) mod flow;
pub(crate) mod siblings;
