//! Reads and describes the parameters of a tool.
//!
//! Clients send what a person typed: a number as a text, or an empty text or null for an absent value. The schemas use
//! only the types and formats of JSON Schema, because clients choose their input fields and check results by them.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The largest number of messages that a client may ask for.
pub const MESSAGES_MAX: u64 = 200;

/// A number of messages, which may be a text.
pub fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let given = Value::deserialize(deserializer)?;
    let whole = |number: f64| (number.fract() == 0.0 && number >= 0.0).then_some(number as u64);
    let number = match &given {
        Value::Null => return Ok(None),
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        _ => None,
    };
    match number {
        Some(number @ 1..=MESSAGES_MAX) => Ok(Some(number as usize)),
        _ => Err(D::Error::custom(format!(
            "`limit` is {given}: give 1 to {MESSAGES_MAX}"
        ))),
    }
}

/// A text. An empty one means an absent value.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let given = Option::<String>::deserialize(deserializer)?;
    Ok(given.filter(|text| !text.trim().is_empty()))
}

/// Several texts, or a single one.
pub fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a list of texts is wanted")]
    enum Given {
        One(String),
        Several(Vec<String>),
    }
    let given = match Option::<Given>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Given::One(text)) => vec![text],
        Some(Given::Several(texts)) => texts,
    };
    Ok(given.into_iter().filter(|text| !text.trim().is_empty()).collect())
}

/// Removes the formats and defaults that Rust's types add, and null beside a type. An optional field may be absent instead.
pub fn plain_schema(schema: &mut Map<String, Value>) {
    let is_of_rust = |format: &Value| {
        let format = format.as_str().unwrap_or_default();
        format.starts_with("uint") || format.starts_with("int") || ["double", "float"].contains(&format)
    };
    if schema.get("format").is_some_and(is_of_rust) {
        schema.remove("format");
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    for inner in schema.values_mut() {
        match inner {
            Value::Object(inner) => plain_schema(inner),
            Value::Array(several) => several
                .iter_mut()
                .filter_map(Value::as_object_mut)
                .for_each(plain_schema),
            _ => {}
        }
    }
}
