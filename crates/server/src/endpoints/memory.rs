//! `GET /memory` and `GET /memory/recall`: the knowledge base of a server that serves one.

use std::str::FromStr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::Query;
use crate::error::{ApiError, Refusal};
use crate::knowledge::{Knowledge, MemoryOverview, MemoryRecall, RecallError, RecallQuestion};
use crate::limits::{
    MEMORY_SOURCES_MAX, RECALL_NAMES_BYTES_MAX, RECALL_NAMES_MAX, RECALL_QUESTION_BYTES_MAX,
    RECALL_SPEAKER_BYTES_MAX, RECALL_WITHIN, RECALLED_MESSAGES_MAX, RECALLS_MAX,
};

/// The default number of sources in an answer.
const SOURCES: usize = 100;

/// The default number of messages in an answer.
const MESSAGES: usize = 20;

/// Characters of a parameter in an error.
const GIVEN_CHARACTERS_MAX: usize = 100;

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

impl FromRequestParts<App> for RecallQuestion {
    type Rejection = ApiError;

    /// Unlike other queries, this one has parameters that come several times.
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, app).await?;
        let mut question = RecallQuestion::default();
        for (name, text) in pairs {
            match name.as_str() {
                "tag" => question.tags.push(text),
                "source" => question.sources.push(text),
                "speaker" => question.speakers.push(text),
                "thread" => question.threads.push(text),
                "question" => once(&name, &mut question.question, text)?,
                "since" => once(&name, &mut question.since, text)?,
                "until" => once(&name, &mut question.until, text)?,
                "zone" => once(&name, &mut question.zone, text)?,
                "limit" => once(
                    &name,
                    &mut question.limit,
                    read(&name, &text, "give a whole number")?,
                )?,
                "explain" => once(
                    &name,
                    &mut question.explain,
                    read(&name, &text, "give `true` or `false`")?,
                )?,
                _ => {
                    return Err(ApiError::invalid(
                        format!("`{name}` is no parameter of this operation"),
                        "see this operation in /api/v1/openapi.json",
                    ));
                }
            }
        }
        Ok(question)
    }
}

fn once<T>(name: &str, value: &mut Option<T>, given: T) -> Result<(), ApiError> {
    match value.replace(given) {
        None => Ok(()),
        Some(_) => Err(ApiError::invalid(format!("`{name}` comes twice"), "give it once")),
    }
}

fn read<T: FromStr>(name: &str, text: &str, remedy: &str) -> Result<T, ApiError> {
    let read = text.parse();
    let told = || text.chars().take(GIVEN_CHARACTERS_MAX).collect::<String>();
    read.map_err(|_| ApiError::invalid(format!("`{name}` is `{}`", told()), remedy))
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
/// Uses no model, only the words of the question and the extracted knowledge. At most 50 tags, sources, speakers and threads, with
/// 2,000 bytes together and 200 in a speaker. A server answers four recalls at once, each within 20 s.
#[utoipa::path(
    get,
    path = "/memory/recall",
    tag = "memory",
    operation_id = "recall",
    params(RecallQuestion),
    responses(
        (status = 200, description = "Messages and knowledge, best first", body = MemoryRecall),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn recall(
    State(app): State<App>,
    mut question: RecallQuestion,
) -> Result<Json<MemoryRecall>, ApiError> {
    check_question(&question)?;
    question.limit = Some(within(
        "limit",
        question.limit.unwrap_or(MESSAGES),
        RECALLED_MESSAGES_MAX,
    )?);
    let knowledge = knowledge_of(&app)?;
    let _room = app.recalls.try_acquire().map_err(|_| ApiError::TooMany {
        what: "too many recalls",
        limit: format!("{RECALLS_MAX} at once"),
        retry_after_s: 1,
    })?;
    let recalling = tokio::time::timeout(RECALL_WITHIN, knowledge.recall(question));
    let recalled = recalling.await.map_err(|_| {
        let within_s = RECALL_WITHIN.as_secs();
        ApiError::Knowledge(format!("it did not answer within {within_s} s"))
    })?;
    let recalled = recalled.map_err(|error| match error {
        RecallError::Question(problem) => {
            ApiError::invalid(problem, "see this operation in /api/v1/openapi.json")
        }
        RecallError::Failed(problem) => ApiError::Knowledge(problem),
    })?;
    Ok(Json(recalled))
}

/// A question has words, or names that say which messages to list.
fn check_question(question: &RecallQuestion) -> Result<(), ApiError> {
    let named = [
        &question.tags,
        &question.sources,
        &question.speakers,
        &question.threads,
    ];
    let names: usize = named.iter().map(|names| names.len()).sum();
    if names > RECALL_NAMES_MAX {
        return Err(ApiError::invalid(
            format!("the question has {names} tags, sources, speakers and threads"),
            format!("give at most {RECALL_NAMES_MAX}"),
        ));
    }
    let bytes: usize = named.into_iter().flatten().map(String::len).sum();
    if bytes > RECALL_NAMES_BYTES_MAX {
        return Err(ApiError::invalid(
            format!("the tags, sources, speakers and threads have {bytes} bytes"),
            format!("give at most {RECALL_NAMES_BYTES_MAX} together"),
        ));
    }
    let longest = question.speakers.iter().map(String::len).max();
    if let Some(bytes) = longest.filter(|bytes| *bytes > RECALL_SPEAKER_BYTES_MAX) {
        return Err(ApiError::invalid(
            format!("a `speaker` has {bytes} bytes"),
            format!("give at most {RECALL_SPEAKER_BYTES_MAX}"),
        ));
    }
    let is_limited = names > 0 || question.since.is_some() || question.until.is_some();
    let text = question.question.as_deref();
    let bytes = text.map_or(0, str::len);
    if bytes > RECALL_QUESTION_BYTES_MAX || text.map_or(!is_limited, |text| text.trim().is_empty()) {
        return Err(ApiError::invalid(
            format!("`question` has {bytes} bytes"),
            format!(
                "give 1 to {RECALL_QUESTION_BYTES_MAX} bytes that are not only spaces; or none, and `since`, `until`, `source`, \
                 `speaker`, `thread` or `tag`"
            ),
        ));
    }
    Ok(())
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
