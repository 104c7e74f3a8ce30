//! Compiled queries: groups of terms within scopes. The serialised form is the recorded one.

use chrono::DateTime;
use gristmill_model::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::TimeRange;
use crate::property::Property;

/// The text that matches any term.
pub const WILDCARD: &str = "*";

/// A compiled search expression.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Expression {
    /// The selects, each evaluated by itself.
    pub select_expressions: Vec<Select>,
    /// The question from which the expression was compiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_query: Option<String>,
}

/// Terms to look for, and where.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Select {
    /// The search terms.
    pub search_term_group: Group,
    /// The messages to search; all if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
}

/// A filter of messages. A message passes if every part allows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct When {
    /// Allows messages that match these terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_defining_terms: Option<Group>,
    /// Allows messages of this time.
    #[serde(with = "time_range", skip_serializing_if = "Option::is_none")]
    pub date_range: Option<TimeRange>,
    /// Allows messages with one of these tags; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Terms that are matched together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The way in which the matches are combined.
    pub boolean_op: BooleanOp,
    /// The terms.
    pub terms: Vec<Node>,
}

/// The way in which the matches of a group's terms are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BooleanOp {
    /// Matches of all terms.
    And,
    /// Matches of any term.
    #[default]
    Or,
    /// Of the messages that match any term, those that match the most terms.
    OrMax,
}

/// A part of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Node {
    /// A group inside the group.
    Group(Group),
    /// A term in a role.
    Property(PropertyTerm),
    /// A term in any role.
    Term(SearchTerm),
}

/// A term in a role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PropertyTerm {
    /// The role.
    pub property_name: PropertyName,
    /// The term.
    pub property_value: SearchTerm,
}

/// A role, or the name of a facet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PropertyName {
    /// A role.
    #[serde(with = "property_name")]
    Known(Property),
    /// The name of a facet, which may be related to stored names.
    Facet(SearchTerm),
}

/// A term to search for, with other terms that may stand for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchTerm {
    /// The term.
    pub term: Term,
    /// Its related terms; `None` before they are looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related_terms: Option<Vec<Term>>,
    /// Whether all related terms count, including terms that other search terms of the group share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub related_terms_required: bool,
}

/// A text and the weight of a match with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// The text, in lower case.
    pub text: String,
    /// The weight; `None` is the weight of the search term that it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

impl SearchTerm {
    /// Makes a term in lower case.
    pub fn new(text: &str, weight: f64) -> SearchTerm {
        SearchTerm {
            term: Term {
                text: text.to_lowercase(),
                weight: Some(weight),
            },
            related_terms: None,
            related_terms_required: false,
        }
    }

    /// Whether it stands for any text.
    pub fn is_wildcard(&self) -> bool {
        self.term.text == WILDCARD
    }

    /// The related terms; none before they are looked up.
    pub fn related(&self) -> &[Term] {
        self.related_terms.as_deref().unwrap_or_default()
    }
}

impl Group {
    /// Calls `visit` for every search term in the group and its groups. In a property term, the facet's name comes
    /// before the value.
    pub fn for_each_term<'a>(&'a self, visit: &mut dyn FnMut(&'a SearchTerm)) {
        for node in &self.terms {
            match node {
                Node::Group(group) => group.for_each_term(visit),
                Node::Property(property) => {
                    if let PropertyName::Facet(name) = &property.property_name {
                        visit(name);
                    }
                    visit(&property.property_value);
                }
                Node::Term(term) => visit(term),
            }
        }
    }

    /// Calls `visit` once for each group, with the search terms that belong to that group directly.
    pub fn for_each_group_mut(&mut self, visit: &mut dyn FnMut(BooleanOp, Vec<&mut SearchTerm>)) {
        let mut own = Vec::new();
        for node in &mut self.terms {
            match node {
                Node::Group(group) => group.for_each_group_mut(visit),
                Node::Property(property) => {
                    if let PropertyName::Facet(name) = &mut property.property_name {
                        own.push(name);
                    }
                    own.push(&mut property.property_value);
                }
                Node::Term(term) => own.push(term),
            }
        }
        visit(self.boolean_op, own);
    }
}

mod property_name {
    use super::*;

    pub fn serialize<S: Serializer>(property: &Property, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(property.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Property, D::Error> {
        let name = String::deserialize(deserializer)?;
        Property::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("`{name}` is not a property of a query")))
    }
}

mod time_range {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Recorded {
        start: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<String>,
    }

    pub fn serialize<S: Serializer>(range: &Option<TimeRange>, serializer: S) -> Result<S::Ok, S::Error> {
        let recorded = range.map(|range| Recorded {
            start: range.start.to_string(),
            end: range.end.map(|end| end.to_string()),
        });
        recorded.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TimeRange>, D::Error> {
        let instant = |text: String| match DateTime::parse_from_rfc3339(&text) {
            Ok(at) => Ok(Timestamp(at.timestamp_millis())),
            Err(error) => Err(serde::de::Error::custom(format!(
                "`{text}` is not a date and time: {error}"
            ))),
        };
        let Some(recorded) = Option::<Recorded>::deserialize(deserializer)? else {
            return Ok(None);
        };
        Ok(Some(TimeRange {
            start: instant(recorded.start)?,
            end: recorded.end.map(instant).transpose()?,
        }))
    }
}
