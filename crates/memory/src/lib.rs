//! Memory: messages become a knowledge base that answers questions.
//!
//! Podcast transcripts, subtitles, mail, notes and chats are cut into chunks; each chunk is read once by a model or
//! by rules, which tell the entities, actions and topics in it; indexes over those answer the questions.
//!
//! * [`store`]: the knowledge base, behind the trait [`KnowledgeStore`]; SQLite.
//! * [`query`]: what is asked: search queries, and the term groups that they are compiled to.
//! * [`recall()`]: ranked knowledge and messages for a question, no model needed.
//! * [`import`]: the recorded index format. [`recorded`]: files of recorded questions.

pub mod digest;
pub mod error;
pub mod extract;
pub mod import;
pub mod knowledge;
pub mod limits;
pub mod message;
pub mod pipeline;
pub mod property;
pub mod query;
pub mod recall;
pub mod recorded;
pub mod source;
pub mod store;

pub use error::MemoryError;
pub use knowledge::{
    Action, Entity, Extraction, Facet, FacetValue, Knowledge, KnowledgeKind, Parameter, RefOrdinal,
    SemanticRef, Tag, Tense, Topic,
};
pub use message::{Message, MessageOrdinal, Moment, TextRange, TimeRange};
pub use query::SearchQuery;
pub use recall::{RecallOptions, Recalled, recall};
pub use store::{Change, KnowledgeStore, SqliteKnowledge, SqliteKnowledgeOptions};
