//! The knowledge base's tests, in one program.

mod elsewhere;
mod embed;
mod export;
mod mail_archive;
mod pipeline;
mod postgres_store;
mod quality;
mod reader_fuzz;
mod reader_time;
mod replay_index;
mod samples;
mod sources;
mod store;
mod vector_lists;
