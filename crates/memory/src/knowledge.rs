//! Knowledge from messages: entities, actions, topics.
//!
//! The serialised form is the form of the recorded indexes, in camelCase. The snake_case names in models' answers are
//! accepted too.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

use crate::message::TextRange;

/// The number of a semantic ref in its knowledge base. Numbers are dense from 0 and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RefOrdinal(pub u32);

/// A thing, person, place or idea that a text names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Entity {
    /// Its name, as specific as the text allows.
    pub name: String,
    /// Its types: `book`, `person`, …
    #[serde(rename = "type", deserialize_with = "one_or_many")]
    pub types: Vec<String>,
    /// Its facets.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub facets: Vec<Facet>,
}

/// A property of an entity: `{"name": "genre", "value": "science fiction"}`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facet {
    /// The name of the property.
    pub name: String,
    /// Its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<FacetValue>,
}

/// The value of a facet or parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FacetValue {
    /// A flag.
    Flag(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
    /// A number with a unit.
    Quantity {
        /// The number.
        amount: Number,
        /// The unit.
        units: String,
    },
    /// Any other JSON of a model.
    Other(Value),
}

impl FacetValue {
    /// The text by which the value is indexed: `true`, `12`, `12 books`.
    pub fn text(&self) -> String {
        match self {
            FacetValue::Flag(flag) => flag.to_string(),
            FacetValue::Number(number) => number_text(number),
            FacetValue::Text(text) => text.clone(),
            FacetValue::Quantity { amount, units } => format!("{} {units}", number_text(amount)),
            FacetValue::Other(value) => value.to_string(),
        }
    }
}

/// Writes a number; `12.0` becomes `12`.
fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
        _ => number.to_string(),
    }
}

/// An action in the past, present or future.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Action {
    /// The verb, with its particles: `["turn", "out"]`.
    #[serde(deserialize_with = "one_or_many")]
    pub verbs: Vec<String>,
    /// The tense of the verb.
    #[serde(alias = "verb_tense")]
    pub verb_tense: Tense,
    /// The subject.
    #[serde(
        alias = "subject_entity_name",
        deserialize_with = "entity_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub subject_entity_name: Option<String>,
    /// The object.
    #[serde(
        alias = "object_entity_name",
        deserialize_with = "entity_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub object_entity_name: Option<String>,
    /// The person or thing for whom or to which it is done.
    #[serde(
        alias = "indirect_object_entity_name",
        deserialize_with = "entity_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub indirect_object_entity_name: Option<String>,
    /// Parameters: manner, place, instrument.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub params: Vec<Parameter>,
    /// A property of the subject that the action mentions.
    #[serde(alias = "subject_entity_facet", skip_serializing_if = "Option::is_none")]
    pub subject_entity_facet: Option<Facet>,
}

impl Action {
    /// The verb as it is indexed: its words, joined by spaces.
    pub fn verb(&self) -> String {
        self.verbs.join(" ")
    }
}

/// The time of an action, relative to the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tense {
    /// Before the text.
    #[serde(alias = "Past")]
    Past,
    /// At the time of the text, or always.
    #[default]
    #[serde(alias = "Present")]
    Present,
    /// After the text.
    #[serde(alias = "Future")]
    Future,
}

/// A parameter of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Parameter {
    /// A text without a name.
    Text(String),
    /// A name with its value.
    Named {
        /// The name of the parameter.
        name: String,
        /// Its value.
        value: FacetValue,
    },
}

/// The topic of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topic {
    /// The topic in a few words.
    pub text: String,
}

/// A label.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tag {
    /// The label.
    pub text: String,
}

/// One piece of knowledge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "knowledgeType", content = "knowledge", rename_all = "lowercase")]
pub enum Knowledge {
    /// A thing, person, place or idea.
    Entity(Entity),
    /// An action. An inverse action (`be written by`) is one too.
    Action(Action),
    /// The topic of a text.
    Topic(Topic),
    /// A label.
    Tag(Tag),
}

impl Knowledge {
    /// The kind of this knowledge.
    pub fn kind(&self) -> KnowledgeKind {
        match self {
            Knowledge::Entity(_) => KnowledgeKind::Entity,
            Knowledge::Action(_) => KnowledgeKind::Action,
            Knowledge::Topic(_) => KnowledgeKind::Topic,
            Knowledge::Tag(_) => KnowledgeKind::Tag,
        }
    }
}

/// The kinds of knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KnowledgeKind {
    /// [`Knowledge::Entity`].
    Entity,
    /// [`Knowledge::Action`].
    Action,
    /// [`Knowledge::Topic`].
    Topic,
    /// [`Knowledge::Tag`].
    Tag,
}

impl KnowledgeKind {
    /// All kinds.
    pub const ALL: [KnowledgeKind; 4] = [
        KnowledgeKind::Entity,
        KnowledgeKind::Action,
        KnowledgeKind::Topic,
        KnowledgeKind::Tag,
    ];

    /// The letter that stands for the kind in a store: `e`, `a`, `t`, `g`.
    pub const fn letter(self) -> u8 {
        match self {
            KnowledgeKind::Entity => b'e',
            KnowledgeKind::Action => b'a',
            KnowledgeKind::Topic => b't',
            KnowledgeKind::Tag => b'g',
        }
    }

    /// The kind for a letter.
    pub const fn from_letter(letter: u8) -> Option<KnowledgeKind> {
        match letter {
            b'e' => Some(KnowledgeKind::Entity),
            b'a' => Some(KnowledgeKind::Action),
            b't' => Some(KnowledgeKind::Topic),
            b'g' => Some(KnowledgeKind::Tag),
            _ => None,
        }
    }
}

/// Knowledge, and the text from which it was extracted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SemanticRef {
    /// Its number.
    pub ordinal: RefOrdinal,
    /// The chunk from which it was extracted.
    pub range: TextRange,
    /// The knowledge.
    #[serde(flatten)]
    pub knowledge: Knowledge,
}

/// The knowledge that an extractor finds in one chunk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Extraction {
    /// The things that the chunk names.
    pub entities: Vec<Entity>,
    /// The actions that the chunk mentions.
    pub actions: Vec<Action>,
    /// The same actions as seen by their objects: `be written by`.
    #[serde(alias = "inverseActions")]
    pub inverse_actions: Vec<Action>,
    /// The topics of the chunk.
    pub topics: Vec<String>,
}

impl Extraction {
    /// Lists the knowledge in this order: entities, actions, inverse actions, topics. Leaves out entities without a
    /// name, actions without a verb and empty topics.
    pub fn into_knowledge(self) -> Vec<Knowledge> {
        let entities = self
            .entities
            .into_iter()
            .filter(|entity| !entity.name.trim().is_empty());
        let actions = self.actions.into_iter().chain(self.inverse_actions);
        let actions = actions.filter(|action| !action.verb().trim().is_empty());
        let topics = self.topics.into_iter().filter(|text| !text.trim().is_empty());
        entities
            .map(Knowledge::Entity)
            .chain(actions.map(Knowledge::Action))
            .chain(topics.map(|text| Knowledge::Topic(Topic { text })))
            .collect()
    }
}

/// Reads the name of an entity. `none`, an empty text and `null` are no name.
fn entity_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    Ok(name.filter(|name| !name.is_empty() && name != "none"))
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a list of texts. Models may write a single text where a list is requested.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
        None(()),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
        OneOrMany::None(()) => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_answers_of_models() {
        let extraction: Extraction = serde_json::from_str(
            r#"{"entities":[{"name":"Tin Drum","type":"band","facets":null}],
                "actions":[{"verbs":["play"],"verb_tense":"past","subject_entity_name":"Ada","object_entity_name":"none",
                            "params":["loudly",{"name":"for","value":{"amount":2.0,"units":"hours"}}]}],
                "inverse_actions":[],"topics":["music", " "]}"#,
        )
        .expect("valid");
        let knowledge = extraction.into_knowledge();
        assert_eq!(knowledge.len(), 3);
        let Knowledge::Action(action) = &knowledge[1] else {
            panic!("an action: {:?}", knowledge[1])
        };
        assert_eq!(action.object_entity_name, None);
        let Parameter::Named { value, .. } = &action.params[1] else {
            panic!("named: {:?}", action.params)
        };
        assert_eq!(value.text(), "2 hours");
    }

    #[test]
    fn writes_the_recorded_form() {
        let reference = SemanticRef {
            ordinal: RefOrdinal(7),
            range: TextRange::default(),
            knowledge: Knowledge::Topic(Topic { text: "bees".into() }),
        };
        let json = serde_json::to_value(&reference).expect("serialises");
        assert_eq!(json["knowledgeType"], "topic");
        assert_eq!(json["knowledge"]["text"], "bees");
    }
}
