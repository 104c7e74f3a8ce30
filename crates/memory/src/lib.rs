//! Memory: messages become a knowledge base that answers questions.
//!
//! Podcast transcripts, subtitles, mail, notes and chats are cut into chunks; each chunk is read once by a model or
//! by rules, which tell the entities, actions and topics in it; indexes over those answer the questions.
//!
//! [`Memory`] opens a knowledge base, fills it, recalls from it and answers questions. Below it:
//!
//! * [`store`]: the knowledge base, behind the trait [`KnowledgeStore`]; SQLite and PostgreSQL.
//! * [`query`]: what is asked: search queries, and the term groups that they are compiled to.
//! * [`recall()`]: ranked knowledge and messages for a question, no model needed.
//! * [`ask()`]: an answer with its sources, by a model that reads what is recalled.
//! * [`extract`], [`embed`]: what turns texts into knowledge and into vectors. [`service`]: the model service behind both.
//! * [`import`], [`export`]: the recorded index format. [`recorded`]: files of recorded questions.

pub mod ask;
pub mod digest;
pub mod embed;
pub mod error;
pub mod export;
pub mod extract;
pub mod import;
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
pub mod service;
pub mod source;
pub mod store;

pub use ask::ask;
pub use error::MemoryError;
pub use knowledge::{
    Action, Entity, Extraction, Facet, FacetValue, Knowledge, KnowledgeKind, Parameter, RefOrdinal,
    SemanticRef, Tag, Tense, Topic,
};
pub use memory::Memory;
pub use message::{Message, MessageOrdinal, Moment, TextRange, TimeRange};
pub use place::Place;
pub use query::SearchQuery;
pub use recall::{RecallOptions, Recalled, recall};
pub use store::{Change, KnowledgeStore, PostgresKnowledge, SqliteKnowledge, SqliteKnowledgeOptions};

/// The examples of the documentation, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/memory.md")]
mod documented {}
