//! The commands of knowledge bases.

pub mod ask;
mod events;
pub mod ingest;
mod ingest_progress;
pub mod manage;
pub mod mcp;
pub mod models;
mod pipe;
pub mod recall;
mod sources;
