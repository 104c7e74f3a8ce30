//! Priorities, by number or by name.

use std::fmt;

use gristmill_model::parse_priority;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;

/// A priority: -32768 to 32767, or background (-100), low (-10), normal (0), high (10) or urgent (100).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum PriorityName {
    /// As a number.
    #[schema(value_type = i64)]
    Number(serde_json::Number),
    /// By name.
    Level(String),
}

impl<'de> Deserialize<'de> for PriorityName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PriorityVisitor)
    }
}

/// Reads a number or a text, and refuses all else before it is in memory.
struct PriorityVisitor;

impl Visitor<'_> for PriorityVisitor {
    type Value = PriorityName;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number from -32768 to 32767, or background, low, normal, high or urgent")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<PriorityName, E> {
        Ok(PriorityName::Number(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<PriorityName, E> {
        Ok(PriorityName::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<PriorityName, E> {
        let number = serde_json::Number::from_f64(number);
        number
            .map(PriorityName::Number)
            .ok_or_else(|| E::custom("a priority is a finite number"))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<PriorityName, E> {
        Ok(PriorityName::Level(name.to_owned()))
    }
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
