//! Memory: a knowledge base of messages that answers questions.
//!
//! Podcast transcripts, subtitles, mail, notes and chats are cut into chunks. A model or rules read each chunk once and
//! extract its entities, actions and topics. Indexes over these answer questions.
//!
//! [`Memory`] opens a knowledge base, fills it, recalls from it and answers questions. Below it:
//!
//! * [`store`]: the knowledge base, behind the trait [`KnowledgeStore`]; SQLite and PostgreSQL.
//! * [`words`]: the words of texts as the index of messages has them.
//! * [`query`]: search queries, and the term groups that they are compiled to.
//! * [`recall()`]: ranked knowledge and messages for a question, without a model.
//! * [`ask()`]: an answer with its sources, by a model that reads the recalled messages.
//! * [`ask::chat`]: a conversation of questions that may leave out names from earlier ones.
//! * [`extract`], [`embed`]: extract knowledge and vectors from texts. [`service`]: the model service behind both.
//! * [`recorded`]: the recorded index format ([`import`], [`export`]), and files of recorded questions.
//!
//! An ingestion reads sources (`source/`), submits one job for each chunk (`pipeline.rs`), commits the extractions in
//! reading order, and adds vectors for texts that have none (`pipeline/embedding.rs`). All model calls go through
//! the crate `llm`.
//!
//! The extractions are ordinary jobs. The ingestion's own worker runs them with the handler in `pipeline/job.rs`, and
//! so does a worker or agent with `--extractor`. `pipeline/outcomes.rs` reads the outcomes of other workers from the
//! store. Jobs and knowledge can share one PostgreSQL database, in two schemas.

pub mod ask;
pub mod digest;
pub mod embed;
pub mod error;
pub mod extract;
pub mod knowledge;
pub mod limits;
pub mod memory;
pub mod message;
pub mod pipeline;
pub mod place;
pub mod property;
pub mod query;
pub mod recall;
pub mod recorded;
pub mod source;
pub mod store;
pub mod words;

pub use ask::ask;
pub use ask::chat::Chat;
pub use error::MemoryError;
pub use gristmill_llm::service;
pub use knowledge::{
    Action, Entity, Extraction, Facet, FacetValue, Knowledge, KnowledgeKind, Parameter, RefOrdinal,
    SemanticRef, Tag, Tense, Topic,
};
pub use memory::Memory;
pub use message::{Message, MessageOrdinal, Moment, TextRange, TimeRange};
pub use place::Place;
pub use query::SearchQuery;
pub use recall::{RecallOptions, Recalled, recall};
pub use recorded::{export, import};
pub use store::{Change, KnowledgeStore, PostgresKnowledge, SqliteKnowledge, SqliteKnowledgeOptions};

/// The examples of the documentation, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/memory.md")]
mod documented {}
