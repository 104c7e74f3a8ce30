//! The search query: a question in the JSON that a model answers with.
//!
//! The names are camelCase, as they are recorded. Names in snake_case are accepted too.

use chrono::NaiveDate;
use gristmill_model::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::message::TimeRange;

/// A parsed question.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchQuery {
    /// One expression for each part of the question.
    #[serde(alias = "search_expressions")]
    pub search_expressions: Vec<SearchExpression>,
}

/// One part of a question.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SearchExpression {
    /// The part as a question that is understandable on its own.
    #[serde(alias = "rewritten_query")]
    pub rewritten_query: String,
    /// The search terms; each is searched separately.
    #[serde(deserialize_with = "null_is_default")]
    pub filters: Vec<SearchFilter>,
}

/// The terms to search for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SearchFilter {
    /// Things, people, places.
    #[serde(
        alias = "entity_search_terms",
        deserialize_with = "entities",
        skip_serializing_if = "Option::is_none"
    )]
    pub entity_search_terms: Option<Vec<EntityTerm>>,
    /// An action.
    #[serde(alias = "action_search_term", skip_serializing_if = "Option::is_none")]
    pub action_search_term: Option<ActionTerm>,
    /// Other words. `None` asks for an overview if there are no other terms.
    #[serde(alias = "search_terms", skip_serializing_if = "Option::is_none")]
    pub search_terms: Option<Vec<String>>,
    /// The time.
    #[serde(alias = "time_range", skip_serializing_if = "Option::is_none")]
    pub time_range: Option<DateTimeRange>,
}

/// A thing, person or place to search for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EntityTerm {
    /// Its name; `*` matches any name.
    pub name: String,
    /// Whether the name is a pronoun, which is not searched for.
    #[serde(alias = "is_name_pronoun", deserialize_with = "null_is_default")]
    pub is_name_pronoun: bool,
    /// Its types.
    #[serde(
        rename = "type",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub types: Vec<String>,
    /// Its facets.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub facets: Vec<FacetTerm>,
}

/// A property of an entity to search for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FacetTerm {
    /// The name of the property; `*` matches any name.
    #[serde(alias = "facet_name")]
    pub facet_name: String,
    /// The value of the property; `*` matches any value.
    #[serde(alias = "facet_value")]
    pub facet_value: String,
}

/// The action, its subject and its object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ActionTerm {
    /// The verbs.
    #[serde(alias = "action_verbs", skip_serializing_if = "Option::is_none")]
    pub action_verbs: Option<VerbsTerm>,
    /// The subjects; `None` (`*` in JSON) is anyone.
    #[serde(
        alias = "actor_entities",
        deserialize_with = "entities",
        skip_serializing_if = "Option::is_none"
    )]
    pub actor_entities: Option<Vec<EntityTerm>>,
    /// The objects.
    #[serde(
        alias = "target_entities",
        deserialize_with = "entities",
        skip_serializing_if = "Option::is_none"
    )]
    pub target_entities: Option<Vec<EntityTerm>>,
    /// Further participants.
    #[serde(
        alias = "additional_entities",
        deserialize_with = "entities",
        skip_serializing_if = "Option::is_none"
    )]
    pub additional_entities: Option<Vec<EntityTerm>>,
    /// Whether the question asks for a fact, and not for speech or deeds. Such a question has no scope.
    #[serde(alias = "is_informational", deserialize_with = "null_is_default")]
    pub is_informational: bool,
}

/// Verbs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VerbsTerm {
    /// The verbs, each in one or a few words.
    pub words: Vec<String>,
    /// `Past`, `Present` or `Future`.
    pub tense: String,
}

/// A range of time in the zone of the knowledge base.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DateTimeRange {
    /// The first moment of the range.
    #[serde(alias = "start_date")]
    pub start_date: DateTime,
    /// The first moment after the range; `None` if it has no end.
    #[serde(alias = "stop_date", default, skip_serializing_if = "Option::is_none")]
    pub stop_date: Option<DateTime>,
}

/// A date and time without a zone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DateTime {
    /// The day.
    pub date: Date,
    /// The time of day; midnight if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// A day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Date {
    /// The day of the month, from 1.
    pub day: u32,
    /// The month, from 1.
    pub month: u32,
    /// The year of the common era.
    pub year: i32,
}

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Time {
    /// The hour, from 0 to 23.
    pub hour: u32,
    /// The minute, from 0 to 59.
    pub minute: u32,
    /// The second, from 0 to 59.
    pub seconds: u32,
}

impl DateTimeRange {
    /// Converts the range to instants, for clocks that are `zone_minutes` ahead of UTC. `None` if a date does not exist.
    pub fn in_zone(&self, zone_minutes: i16) -> Option<TimeRange> {
        let end = match &self.stop_date {
            Some(stop) => Some(stop.in_zone(zone_minutes)?),
            None => None,
        };
        Some(TimeRange {
            start: self.start_date.in_zone(zone_minutes)?,
            end,
        })
    }
}

impl DateTime {
    fn in_zone(&self, zone_minutes: i16) -> Option<Timestamp> {
        let time = self.time.unwrap_or_default();
        let local = NaiveDate::from_ymd_opt(self.date.year, self.date.month, self.date.day)?.and_hms_opt(
            time.hour,
            time.minute,
            time.seconds,
        )?;
        Some(Timestamp(
            local.and_utc().timestamp_millis() - i64::from(zone_minutes) * 60_000,
        ))
    }
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads entities. `"*"` and `null` become `None`.
fn entities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<EntityTerm>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Entities {
        List(Vec<EntityTerm>),
        Any(String),
        None(()),
    }
    match Entities::deserialize(deserializer)? {
        Entities::List(entities) => Ok(Some(entities)),
        Entities::Any(text) if text == "*" => Ok(None),
        Entities::Any(name) => Ok(Some(vec![EntityTerm {
            name,
            ..EntityTerm::default()
        }])),
        Entities::None(()) => Ok(None),
    }
}
