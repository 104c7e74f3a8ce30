//! The values of a tag.

use gristmill_engine::Engine;
use gristmill_model::limits::PAGE_ROWS_MAX;
use serde::{Deserialize, Serialize};

use crate::read::check_rows;
use crate::refused::Refused;

/// The default number of values on a page.
const PAGE_ROWS: u32 = 100;

/// The listed values.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct TagQuery {
    /// Only values after this one: `next` of the previous page.
    #[serde(default)]
    after: Option<String>,
    /// The maximum number of values on the page; 100 by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 10_000))]
    limit: Option<u32>,
}

/// One value of a tag.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TagValueView {
    /// The value.
    value: String,
    /// The number of jobs with this value.
    jobs: u64,
}

/// A page of values.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TagValues {
    /// In their order.
    values: Vec<TagValueView>,
    /// The `after` of the next page, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Lists the values of a tag of all stored jobs.
pub async fn tag_values(engine: &Engine, tag: &str, query: TagQuery) -> Result<TagValues, Refused> {
    let limit = check_rows(query.limit, PAGE_ROWS, PAGE_ROWS_MAX)?;
    let values = engine
        .store()
        .tag_values(tag, query.after.as_deref(), limit)
        .await?;
    let next = values.last().filter(|_| values.len() == limit as usize);
    Ok(TagValues {
        next: next.map(|last| last.value.clone()),
        values: values
            .into_iter()
            .map(|value| TagValueView {
                value: value.value,
                jobs: value.jobs,
            })
            .collect(),
    })
}
