//! `GET /memory` and `GET /memory/recall`: the knowledge base of a server that serves one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::Query;
use crate::error::{ApiError, Refusal};
use crate::knowledge::{Knowledge, MemoryOverview, MemoryRecall};
use crate::limits::{
    MEMORY_SOURCES_MAX, RECALL_QUESTION_BYTES_MAX, RECALL_WITHIN, RECALLED_MESSAGES_MAX, RECALLS_MAX,
};

/// The default number of sources in an answer.
const SOURCES: usize = 100;

/// The default number of messages in an answer.
const MESSAGES: usize = 20;

/// The listed sources.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MemoryQuery {
    /// The name after which the list begins.
    #[serde(default)]
    after: Option<String>,
    /// The maximum number of sources; 100 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A question.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RecallQuery {
    /// The question, in plain words.
    #[param(min_length = 1, max_length = 2000, example = "Who keeps bees?")]
    question: String,
    /// The maximum number of messages; 20 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

/// Read the sources of the knowledge base
///
/// Status 404 means that the server serves no knowledge base: `gristmill serve --memory KB` does.
#[utoipa::path(
    get,
    path = "/memory",
    tag = "memory",
    operation_id = "memory",
    params(MemoryQuery),
    responses(
        (status = 200, description = "Sources, and how much there is of everything", body = MemoryOverview),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn memory(
    State(app): State<App>,
    Query(query): Query<MemoryQuery>,
) -> Result<Json<MemoryOverview>, ApiError> {
    let limit = within("limit", query.limit.unwrap_or(SOURCES), MEMORY_SOURCES_MAX)?;
    let knowledge = knowledge_of(&app)?;
    let overview = knowledge.overview(query.after, limit).await;
    Ok(Json(overview.map_err(ApiError::Knowledge)?))
}

/// Recall messages and knowledge about a question
///
/// Uses no model, only the words of the question and the extracted knowledge.
#[utoipa::path(
    get,
    path = "/memory/recall",
    tag = "memory",
    operation_id = "recall",
    params(RecallQuery),
    responses(
        (status = 200, description = "Messages and knowledge, best first", body = MemoryRecall),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn recall(
    State(app): State<App>,
    Query(query): Query<RecallQuery>,
) -> Result<Json<MemoryRecall>, ApiError> {
    let bytes = query.question.len();
    if query.question.trim().is_empty() || bytes > RECALL_QUESTION_BYTES_MAX {
        return Err(ApiError::invalid(
            format!("`question` has {bytes} bytes"),
            format!("give 1 to {RECALL_QUESTION_BYTES_MAX} bytes that are not only spaces"),
        ));
    }
    let limit = within("limit", query.limit.unwrap_or(MESSAGES), RECALLED_MESSAGES_MAX)?;
    let knowledge = knowledge_of(&app)?;
    let _room = app.recalls.try_acquire().map_err(|_| ApiError::TooMany {
        what: "too many recalls",
        limit: format!("{RECALLS_MAX} at once"),
        retry_after_s: 1,
    })?;
    let recalling = tokio::time::timeout(RECALL_WITHIN, knowledge.recall(query.question, limit));
    let recalled = recalling.await.map_err(|_| {
        let within_s = RECALL_WITHIN.as_secs();
        ApiError::Knowledge(format!("it did not answer within {within_s} s"))
    })?;
    Ok(Json(recalled.map_err(ApiError::Knowledge)?))
}

fn knowledge_of(app: &App) -> Result<&Arc<dyn Knowledge>, ApiError> {
    app.knowledge.get().ok_or(ApiError::NoKnowledge)
}

fn within(what: &str, number: usize, max: usize) -> Result<usize, ApiError> {
    if (1..=max).contains(&number) {
        return Ok(number);
    }
    Err(ApiError::invalid(
        format!("`{what}` is {number}"),
        format!("give 1 to {max}"),
    ))
}
