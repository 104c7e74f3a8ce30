//! Files of recorded questions, each with the search query that a model made of it.
//!
//! All steps after the model are deterministic. [`run`] does them for every question, and writes the results in the
//! form that a scorer compares with the recorded results. Recorded related terms, which came from embeddings, are used
//! as they are. Without them, the store gives related terms.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::MemoryError;
use crate::knowledge::KnowledgeKind;
use crate::limits::MESSAGES_DEFAULT;
use crate::query::{Expression, SearchQuery, compile};
use crate::recall::{Found, RecallOptions, RecordedRelations, Relations, compile_options, search};
use crate::recorded::import::read_capped;
use crate::store::KnowledgeStore;

/// A recorded question.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedQuestion {
    /// The question.
    pub search_text: String,
    /// The search query that a model made of it.
    pub search_query_expr: SearchQuery,
    /// The compiled form, with the related terms.
    #[serde(default)]
    pub compiled_query_expr: Vec<Expression>,
}

/// The results of a recorded question.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// The question.
    pub search_text: String,
    /// The compiled form of its search query.
    pub compiled: Vec<Expression>,
    /// The best 25 messages, best first.
    pub message_matches: Vec<u32>,
    /// All messages, best first.
    pub message_pool: Vec<u32>,
    /// Entities, best first.
    pub entity_matches: Vec<u32>,
    /// Actions, best first.
    pub action_matches: Vec<u32>,
    /// Topics, best first.
    pub topic_matches: Vec<u32>,
}

/// Reads a file of recorded questions.
///
/// # Errors
///
/// [`MemoryError::File`], [`MemoryError::Invalid`].
pub fn read(path: &Path) -> Result<Vec<RecordedQuestion>, MemoryError> {
    let text = read_capped(path)?;
    serde_json::from_str(&text).map_err(|error| {
        MemoryError::invalid(
            path.display().to_string(),
            format!("it is not a list of recorded questions: {error}"),
        )
    })
}

/// Runs recorded questions. The numbers of messages and refs are those of the store. They equal the recorded numbers if
/// the recorded index was imported first.
pub async fn run(
    store: &dyn KnowledgeStore,
    questions: &[RecordedQuestion],
    options: &RecallOptions,
) -> Result<Vec<Candidate>, MemoryError> {
    let options = RecallOptions {
        messages_max: None,
        refs_max: None,
        ..options.clone()
    };
    let compile_options = compile_options(store, &options).await?;
    let mut candidates = Vec::with_capacity(questions.len());
    for question in questions {
        let query = &question.search_query_expr;
        let recorded = RecordedRelations::of(&question.compiled_query_expr);
        let found = search(store, query, &Relations::Recorded(&recorded), &options).await?;
        // The recording has the first result of the first select expression only.
        let first = found.into_iter().flatten().next().unwrap_or_default();
        candidates.push(candidate(question, compile(query, &compile_options), &first));
    }
    Ok(candidates)
}

fn candidate(question: &RecordedQuestion, compiled: Vec<Expression>, found: &Found) -> Candidate {
    let refs = |kind| found.of(kind).iter().map(|found| found.value.0).collect();
    let pool: Vec<u32> = found.messages.iter().map(|message| message.value.0).collect();
    Candidate {
        search_text: question.search_text.clone(),
        compiled,
        message_matches: pool.iter().copied().take(MESSAGES_DEFAULT).collect(),
        message_pool: pool,
        entity_matches: refs(KnowledgeKind::Entity),
        action_matches: refs(KnowledgeKind::Action),
        topic_matches: refs(KnowledgeKind::Topic),
    }
}
