//! Stored knowledge: the items of consecutive refs as one JSON array, with a letter for the kind of each.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::knowledge::{Knowledge, KnowledgeKind};

/// Writes the letters of the kinds.
pub(super) fn kinds(knowledge: &[Knowledge]) -> String {
    let letters = knowledge.iter().map(|item| char::from(item.kind().letter()));
    letters.collect()
}

/// Writes the items as a JSON array, each in the form of its kind.
pub(super) fn pack(knowledge: &[Knowledge]) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(knowledge.len() * 128);
    for item in knowledge {
        bytes.push(if bytes.is_empty() { b'[' } else { b',' });
        let written = match item {
            Knowledge::Entity(entity) => serde_json::to_writer(&mut bytes, entity),
            Knowledge::Action(action) => serde_json::to_writer(&mut bytes, action),
            Knowledge::Topic(topic) => serde_json::to_writer(&mut bytes, topic),
            Knowledge::Tag(tag) => serde_json::to_writer(&mut bytes, tag),
        };
        written.map_err(|error| error.to_string())?;
    }
    bytes.push(b']');
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// Reads all items.
pub(super) fn unpack(kinds: &str, items: &str) -> Result<Vec<Knowledge>, String> {
    let raw: Vec<&RawValue> = serde_json::from_str(items).map_err(|error| error.to_string())?;
    kinds
        .bytes()
        .zip(raw)
        .map(|(letter, raw)| parse(letter, raw))
        .collect()
}

/// Reads one item; `None` if there are fewer.
pub(super) fn item(kinds: &str, items: &str, index: usize) -> Result<Option<Knowledge>, String> {
    let Some(&letter) = kinds.as_bytes().get(index) else {
        return Ok(None);
    };
    let raw: Vec<&RawValue> = serde_json::from_str(items).map_err(|error| error.to_string())?;
    let raw = raw.get(index).ok_or("an item is missing")?;
    parse(letter, raw).map(Some)
}

fn parse(letter: u8, raw: &RawValue) -> Result<Knowledge, String> {
    fn item<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, String> {
        serde_json::from_str(raw.get()).map_err(|error| error.to_string())
    }
    Ok(match KnowledgeKind::from_letter(letter) {
        Some(KnowledgeKind::Entity) => Knowledge::Entity(item(raw)?),
        Some(KnowledgeKind::Action) => Knowledge::Action(item(raw)?),
        Some(KnowledgeKind::Topic) => Knowledge::Topic(item(raw)?),
        Some(KnowledgeKind::Tag) => Knowledge::Tag(item(raw)?),
        None => return Err("an unknown kind".to_owned()),
    })
}
