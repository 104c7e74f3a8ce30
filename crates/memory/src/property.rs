//! The terms under which knowledge is found.

use crate::knowledge::{Action, Entity, Facet, FacetValue, Knowledge, Parameter};

/// The role of a term in a piece of knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Property {
    /// An entity's name.
    Name = 1,
    /// An entity's type.
    Type = 2,
    /// The name of an entity's facet.
    FacetName = 3,
    /// The value of an entity's facet.
    FacetValue = 4,
    /// An action's verb.
    Verb = 5,
    /// An action's subject.
    Subject = 6,
    /// An action's object.
    Object = 7,
    /// An action's indirect object.
    IndirectObject = 8,
    /// A topic.
    Topic = 9,
    /// A tag.
    Tag = 10,
    /// A parameter of an action, or a facet of its subject. Only its term finds it, not its role.
    Parameter = 11,
}

impl Property {
    /// Looks up the property with this number in a store.
    pub const fn from_number(number: u8) -> Option<Property> {
        Some(match number {
            1 => Property::Name,
            2 => Property::Type,
            3 => Property::FacetName,
            4 => Property::FacetValue,
            5 => Property::Verb,
            6 => Property::Subject,
            7 => Property::Object,
            8 => Property::IndirectObject,
            9 => Property::Topic,
            10 => Property::Tag,
            11 => Property::Parameter,
            _ => return None,
        })
    }

    /// The name in a query: `name`, `facet.name`, `indirectObject`, …
    pub const fn name(self) -> &'static str {
        match self {
            Property::Name => "name",
            Property::Type => "type",
            Property::FacetName => "facet.name",
            Property::FacetValue => "facet.value",
            Property::Verb => "verb",
            Property::Subject => "subject",
            Property::Object => "object",
            Property::IndirectObject => "indirectObject",
            Property::Topic => "topic",
            Property::Tag => "tag",
            Property::Parameter => "parameter",
        }
    }

    /// Looks up a property by the name that queries use. Facets have names of their own.
    pub fn from_name(name: &str) -> Option<Property> {
        Some(match name {
            "name" => Property::Name,
            "type" => Property::Type,
            "verb" => Property::Verb,
            "subject" => Property::Subject,
            "object" => Property::Object,
            "indirectObject" => Property::IndirectObject,
            "topic" => Property::Topic,
            "tag" => Property::Tag,
            _ => return None,
        })
    }
}

/// Converts a term to the form that is stored and looked up: lower case.
pub fn normalize_term(text: &str) -> String {
    text.to_lowercase()
}

/// Calls `add` with every term under which `knowledge` is found, and its role. A term with two roles, or one that
/// occurs twice, is passed twice. An empty term is left out.
pub fn terms(knowledge: &Knowledge, mut add: impl FnMut(Property, String)) {
    let mut add = |property, text: &str| {
        if !text.is_empty() {
            add(property, normalize_term(text));
        }
    };
    match knowledge {
        Knowledge::Entity(entity) => entity_terms(entity, &mut add),
        Knowledge::Action(action) => action_terms(action, &mut add),
        Knowledge::Topic(topic) => add(Property::Topic, &topic.text),
        Knowledge::Tag(tag) => add(Property::Tag, &tag.text),
    }
}

fn entity_terms(entity: &Entity, add: &mut impl FnMut(Property, &str)) {
    add(Property::Name, &entity.name);
    for text in &entity.types {
        add(Property::Type, text);
    }
    for facet in &entity.facets {
        facet_terms(facet, Property::FacetName, Property::FacetValue, add);
    }
}

fn action_terms(action: &Action, add: &mut impl FnMut(Property, &str)) {
    add(Property::Verb, &action.verb());
    for (property, name) in [
        (Property::Subject, &action.subject_entity_name),
        (Property::Object, &action.object_entity_name),
        (Property::IndirectObject, &action.indirect_object_entity_name),
    ] {
        if let Some(name) = name {
            add(property, name);
        }
    }
    for parameter in &action.params {
        match parameter {
            Parameter::Text(text) => add(Property::Parameter, text),
            Parameter::Named { name, value } => {
                add(Property::Parameter, name);
                if let FacetValue::Text(text) = value {
                    add(Property::Parameter, text);
                }
            }
        }
    }
    if let Some(facet) = &action.subject_entity_facet {
        facet_terms(facet, Property::Parameter, Property::Parameter, add);
    }
}

fn facet_terms(facet: &Facet, name: Property, value: Property, add: &mut impl FnMut(Property, &str)) {
    add(name, &facet.name);
    if let Some(text) = &facet.value {
        add(value, &text.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_belongs_to_its_property() {
        for number in 0..=u8::MAX {
            if let Some(property) = Property::from_number(number) {
                assert_eq!(property as u8, number);
            }
        }
    }

    #[test]
    fn a_term_is_passed_once_for_each_role() {
        let entity = Knowledge::Entity(Entity {
            name: "Podcast".into(),
            types: vec!["podcast".into()],
            facets: vec![Facet {
                name: "episodes".into(),
                value: Some(FacetValue::Number(53.into())),
            }],
        });
        let mut found = Vec::new();
        terms(&entity, |property, term| found.push((property, term)));
        assert_eq!(
            found,
            [
                (Property::Name, "podcast".to_owned()),
                (Property::Type, "podcast".to_owned()),
                (Property::FacetName, "episodes".to_owned()),
                (Property::FacetValue, "53".to_owned()),
            ]
        );
    }
}
