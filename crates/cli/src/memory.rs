//! The commands of knowledge bases.

pub mod ask;
mod events;
mod extraction_jobs;
pub mod ingest;
mod ingest_progress;
pub mod manage;
pub mod mcp;
pub mod models;
mod pipe;
pub mod recall;
pub mod served;
mod sources;
