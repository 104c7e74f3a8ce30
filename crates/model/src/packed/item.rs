//! Values inside an item, in the item's own text.
//!
//! An item stays JSON text. A number never becomes a float, which would round an id of 20 digits, write 1.10 as 1.1,
//! and refuse 1e400. Reading a field scans the item once, and builds none of its values.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The JSON text of a field; `None` unless the item is an object with this field. The last of several fields with one
/// name counts, as in most readers of JSON.
pub fn field<'i>(item: &'i str, name: &str) -> Option<&'i str> {
    let mut found = None;
    fields(item, |own, value| {
        if own == name {
            found = Some(value);
        }
    });
    found
}

/// The names of an item's fields, in order; `None` unless the item is an object.
pub fn field_names(item: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let is_object = fields(item, |name, _| names.push(name.to_owned()));
    is_object.then_some(names)
}

/// Writes a JSON text for people: a string without quotes and escapes, any other value unchanged.
pub fn plain_text(json: &str) -> String {
    if json.starts_with('"') {
        serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
    } else {
        json.to_owned()
    }
}

/// The text of a string, a number or a boolean; `None` for anything else.
pub fn scalar_text(json: &str) -> Option<String> {
    let is_scalar = !json.starts_with(['{', '[']) && json != "null";
    is_scalar.then(|| plain_text(json))
}

/// Calls `see` for each field, with its name and its text. Returns whether the item is an object.
fn fields<'i>(item: &'i str, see: impl FnMut(&str, &'i str)) -> bool {
    item.trim_ascii_start().starts_with('{')
        && serde_json::Deserializer::from_str(item)
            .deserialize_map(Each(see))
            .is_ok()
}

struct Each<F>(F);

impl<'i, F: FnMut(&str, &'i str)> Visitor<'i> for Each<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'i>>(mut self, mut map: A) -> Result<(), A::Error> {
        // A name with escapes cannot be borrowed from the item.
        while let Some((Name(name), value)) = map.next_entry::<Name<'i>, &'i RawValue>()? {
            (self.0)(&name, value.get());
        }
        Ok(())
    }
}

/// A field's name.
#[derive(Deserialize)]
struct Name<'i>(#[serde(borrow)] Cow<'i, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_the_text_of_the_item() {
        let item = r#"{"id": 123456789012345678901234567890, "price":1.10,"far":1e400 ,"nested":{"id":[1.0, 2]},
            "quo\"ted":"a\"\u00e9", "twice":1,"twice":2.0, "none":null, "yes":true}"#;
        for (name, text, scalar) in [
            (
                "id",
                "123456789012345678901234567890",
                Some("123456789012345678901234567890"),
            ),
            ("price", "1.10", Some("1.10")),
            ("far", "1e400", Some("1e400")),
            ("nested", r#"{"id":[1.0, 2]}"#, None),
            ("quo\"ted", r#""a\"\u00e9""#, Some("a\"\u{e9}")),
            ("twice", "2.0", Some("2.0")),
            ("none", "null", None),
            ("yes", "true", Some("true")),
        ] {
            assert_eq!(field(item, name), Some(text), "{name}");
            assert_eq!(scalar_text(text).as_deref(), scalar, "{name}");
        }
        assert_eq!((field(item, "absent"), field("[1]", "id")), (None, None));
        assert_eq!(field(r#""{\"id\":1}""#, "id"), None);
        assert_eq!(field_names(" {\"b\":1e999,\"a\":{\"c\":2}}").unwrap(), ["b", "a"]);
        assert_eq!((field_names("7"), field_names("{}")), (None, Some(Vec::new())));
        assert_eq!(plain_text("[1.0, 2]"), "[1.0, 2]");
    }
}
