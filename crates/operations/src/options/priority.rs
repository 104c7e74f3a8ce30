//! Priorities, by number or by name.

use std::fmt;

use gristmill_model::parse_priority;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::refused::Refused;

/// A priority: -32768 to 32767, or background (-100), low (-10), normal (0), high (10) or urgent (100).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = PriorityName))]
#[serde(untagged)]
pub enum Priority {
    /// A number.
    #[cfg_attr(feature = "schema", schema(value_type = i64))]
    Number(serde_json::Number),
    /// A name.
    Level(String),
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PriorityVisitor)
    }
}

/// Reads a number or a text. Refuses everything else before it is in memory.
struct PriorityVisitor;

impl Visitor<'_> for PriorityVisitor {
    type Value = Priority;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number from -32768 to 32767, or background, low, normal, high or urgent")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Priority, E> {
        Ok(Priority::Number(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Priority, E> {
        Ok(Priority::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Priority, E> {
        let number = serde_json::Number::from_f64(number);
        number
            .map(Priority::Number)
            .ok_or_else(|| E::custom("a priority is a finite number"))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Priority, E> {
        Ok(Priority::Level(name.to_owned()))
    }
}

impl Priority {
    /// The priority in the form of a job.
    pub fn check(&self) -> Result<i16, Refused> {
        let read = match self {
            Priority::Number(number) => parse_priority(&number.to_string()),
            Priority::Level(name) => parse_priority(name),
        };
        read.map_err(|error| Refused::invalid(format!("`priority`: {error}"), "give one of those"))
    }
}
