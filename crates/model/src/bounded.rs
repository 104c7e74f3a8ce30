//! Lists and maps of untrusted texts. They are read entry by entry, so that a limit stops the reader before they take
//! much memory.
//!
//! A few bytes of JSON can become much memory: `{},` becomes an object of some hundred bytes. So each list has a limit
//! of its own, and [`within`] bounds the entries of all lists and maps of one text together.

pub mod near;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

thread_local! {
    /// The number of entries that the text being read by this thread may still have.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Reads one text that may have `entries_max` entries in all its bounded lists and maps together.
pub fn within<R>(entries_max: usize, read: impl FnOnce() -> R) -> R {
    let before = LEFT.replace(entries_max);
    let read = read();
    LEFT.set(before);
    read
}

/// Counts one entry of the text.
fn count<E: Error>() -> Result<(), E> {
    match LEFT.get().checked_sub(1) {
        Some(left) => {
            LEFT.set(left);
            Ok(())
        }
        None => Err(E::custom(
            "the text has too many entries in its lists and objects",
        )),
    }
}

/// A list with at most `MAX` entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T, const MAX: usize>(pub Vec<T>);

/// Reads a list with at most `MAX` entries.
pub fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    List::<T, MAX>::deserialize(deserializer).map(|list| list.0)
}

/// Reads a list with at most `MAX` entries, or `null`.
pub fn optional_list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Option::<List<T, MAX>>::deserialize(deserializer)?;
    Ok(list.map(|list| list.0))
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
    type Value = List<T, MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a sequence with at most {MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element()? {
            if list.len() >= MAX {
                return Err(A::Error::custom(format!("a list has more than {MAX} entries")));
            }
            count()?;
            list.push(entry);
        }
        Ok(List(list))
    }
}

/// An object of texts with at most `MAX` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts<const MAX: usize>(pub BTreeMap<String, String>);

/// Reads an object of texts with at most `MAX` names.
pub fn texts<'de, D, const MAX: usize>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    Texts::<MAX>::deserialize(deserializer).map(|texts| texts.0)
}

impl<'de, const MAX: usize> Deserialize<'de> for Texts<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextsVisitor::<MAX>)
    }
}

/// Reads an object of texts.
struct TextsVisitor<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for TextsVisitor<MAX> {
    type Value = Texts<MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an object with at most {MAX} texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some((name, text)) = entries.next_entry()? {
            count()?;
            texts.insert(name, text);
            if texts.len() > MAX {
                return Err(A::Error::custom(format!("an object has more than {MAX} entries")));
            }
        }
        Ok(Texts(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Result<List<u32, 3>, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_ends_at_its_limit() {
        assert_eq!(numbers("[1,2,3]"), Ok(List(vec![1, 2, 3])));
        // The text ends behind the fourth entry, and nothing after it is read.
        let error = numbers("[1,2,3,4").unwrap_err();
        assert!(error.starts_with("a list has more than 3 entries"), "{error}");
        assert!(
            numbers("{}")
                .unwrap_err()
                .contains("a sequence with at most 3 entries")
        );
    }

    #[test]
    fn an_object_ends_at_its_limit() {
        let read = |text: &str| serde_json::from_str::<Texts<2>>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"a":"1","b":"2"}"#).unwrap().0.len(), 2);
        let error = read(r#"{"a":"1","b":"2","c":"3","#).unwrap_err();
        assert!(error.starts_with("an object has more than 2 entries"), "{error}");
    }

    #[test]
    fn the_lists_of_one_text_share_a_limit() {
        type Lists = List<List<u32, 3>, 3>;
        let read = |text: &str| serde_json::from_str::<Lists>(text).map_err(|error| error.to_string());
        // Two lists and four numbers.
        assert!(within(6, || read("[[1,2],[3,4]]")).is_ok());
        let error = within(5, || read("[[1,2],[3,4]]")).unwrap_err();
        assert!(error.starts_with("the text has too many entries"), "{error}");
        assert!(read("[[1,2],[3,4]]").is_ok(), "the limit ends with the text");
    }
}
