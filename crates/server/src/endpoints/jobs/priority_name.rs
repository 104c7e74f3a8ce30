//! Priorities, by number or by name.

use gristmill_model::parse_priority;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;

/// A priority: -32768 to 32767, or background (-100), low (-10), normal (0), high (10) or urgent (100).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "a priority is a whole number from -32768 to 32767, or background, low, normal, high or urgent"
)]
pub enum PriorityName {
    /// As a number.
    #[schema(value_type = i64)]
    Number(serde_json::Number),
    /// By name.
    Level(String),
}

impl PriorityName {
    /// As jobs have it.
    pub fn check(&self) -> Result<i16, ApiError> {
        let read = match self {
            PriorityName::Number(number) => parse_priority(&number.to_string()),
            PriorityName::Level(name) => parse_priority(name),
        };
        read.map_err(|error| ApiError::invalid(format!("`priority`: {error}"), "give one of those"))
    }
}
