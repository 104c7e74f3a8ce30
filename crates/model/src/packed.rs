//! Packed JSON: the items of a batch as one JSON array, in the form that is stored and sent.
//!
//! The text is a valid JSON array with one item on each line: `[1\n,{"a":2}\n,"x"]`. A JSON string never holds a raw
//! line feed (RFC 8259, section 7), so line feeds separate the items. Some positions of a batch are cut out by
//! searching for line feeds, without parsing any item.

pub mod cutter;
pub mod item;

use std::ops::Range;
use std::sync::Arc;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::limits::{BATCH_JOBS_MAX, JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX, WRAPPED_DEPTH_MAX};
use crate::positions::Positions;

/// The reason why a text is not an item or a packed array.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackedError {
    /// An item is not JSON.
    #[error("item {index} is not JSON: {reason}")]
    NotJson {
        /// The index of the item, from 0.
        index: u32,
        /// The parser's message.
        reason: String,
    },
    /// The text is not a JSON array.
    #[error("not a JSON array: {0}")]
    NotAnArray(String),
    /// An item exceeds its limit.
    #[error("item {index} is {bytes} bytes long; the limit is {bytes_max}")]
    ItemTooLarge {
        /// The index of the item, from 0.
        index: u32,
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// An item has too many levels of lists and objects.
    #[error("item {index} nests deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep {
        /// The index of the item, from 0.
        index: u32,
    },
    /// There are more items than a batch holds.
    #[error("more than {BATCH_JOBS_MAX} items in one batch")]
    TooManyItems,
}

impl PackedError {
    /// The same error, where the item stands in this place of a longer list.
    fn at(self, place: u32) -> Self {
        match self {
            PackedError::NotJson { reason, .. } => PackedError::NotJson { index: place, reason },
            PackedError::ItemTooLarge { bytes, bytes_max, .. } => PackedError::ItemTooLarge {
                index: place,
                bytes,
                bytes_max,
            },
            PackedError::TooDeep { .. } => PackedError::TooDeep { index: place },
            other => other,
        }
    }
}

/// The packed items of a batch. Clones share the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedArray {
    text: Arc<str>,
    count: u32,
}

impl PackedArray {
    /// Reads any JSON array and packs it. Costs one pass over the text.
    pub fn parse(text: &str) -> Result<PackedArray, PackedError> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let builder = deserializer
            .deserialize_seq(PackingVisitor)
            .and_then(|builder| deserializer.end().map(|()| builder))
            .map_err(|error| PackedError::NotAnArray(error.to_string()))??;
        Ok(builder.finish())
    }

    /// Takes text that a [`PackedBuilder`] made and that a store kept. Only counts its items, by a search for line feeds.
    pub fn from_stored(text: impl Into<Arc<str>>) -> PackedArray {
        let text = text.into();
        let count = if text.len() <= 2 {
            0
        } else {
            memchr::memchr_iter(b'\n', text.as_bytes()).count() as u32 + 1
        };
        PackedArray { text, count }
    }

    /// Makes an array that repeats one item `count` times, for handlers that return nothing.
    pub fn repeat(item: &str, count: u32) -> Result<PackedArray, PackedError> {
        let mut builder = PackedBuilder::new();
        if count > 0 {
            builder.push(item)?;
        }
        for _ in 1..count {
            builder.push_valid(item);
        }
        assert_eq!(builder.count(), count);
        Ok(builder.finish())
    }

    /// Number of items.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The packed text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The packed text, shared.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The JSON text of each item, in order.
    pub fn items(&self) -> impl Iterator<Item = &str> + '_ {
        let body = &self.text[1..self.text.len() - 1];
        let mut start = 0;
        let mut ends = memchr::memchr_iter(b'\n', body.as_bytes());
        let mut left = self.count;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            left -= 1;
            let end = ends.next().unwrap_or(body.len());
            let item = &body[start..end];
            start = end + 2;
            Some(item)
        })
    }

    /// The JSON text of one item.
    pub fn get(&self, index: u32) -> Option<&str> {
        self.items().nth(index as usize)
    }

    /// Selects the items at `positions` (indexes of this array, from 0). A selection of all items shares the text.
    pub fn select(&self, positions: &Positions) -> PackedArray {
        if positions.len() >= self.count {
            return self.clone();
        }
        let body = &self.text[1..self.text.len() - 1];
        let mut selected = String::with_capacity(body.len() / 2 + 2);
        selected.push('[');
        let mut count = 0;
        // The walk only goes forward: `at` is the beginning of item `index`.
        let (mut at, mut index) = (0, 0u32);
        let mut skip_to = |target: u32| -> Option<usize> {
            if target > index {
                let mut ends = memchr::memchr_iter(b'\n', &body.as_bytes()[at..]);
                match ends.nth((target - index - 1) as usize) {
                    Some(offset) => at += offset + 2,
                    None => at = body.len() + 2,
                }
                index = target;
            }
            (at <= body.len()).then_some(at)
        };
        for Range { start, end } in positions.ranges().iter().cloned() {
            let end = end.min(self.count);
            let Some(from) = (start < end).then(|| skip_to(start)).flatten() else {
                break;
            };
            let to = skip_to(end).map_or(body.len(), |next| next - 2);
            if count > 0 {
                selected.push_str("\n,");
            }
            selected.push_str(&body[from..to]);
            count += end - start;
        }
        selected.push(']');
        debug_assert_eq!(
            PackedArray::from_stored(&*selected).count(),
            count,
            "each selected item is on a line"
        );
        PackedArray {
            text: selected.into(),
            count,
        }
    }

    /// The start of each item, for repeated selections from the same array. Costs a search for line feeds.
    pub fn index(&self) -> PackedIndex {
        let body = &self.text.as_bytes()[1..self.text.len() - 1];
        let mut starts = Vec::with_capacity(self.count as usize + 1);
        if self.count > 0 {
            starts.push(0);
            starts.extend(memchr::memchr_iter(b'\n', body).map(|end| end + 2));
            // The end of the array, as if another item followed.
            starts.push(body.len() + 2);
        }
        debug_assert!(self.count == 0 || starts.len() == self.count as usize + 1);
        PackedIndex(starts.into())
    }

    /// Selects like [`select`](PackedArray::select), with the array's index. The cost is proportional to the selection.
    pub fn select_indexed(&self, positions: &Positions, index: &PackedIndex) -> PackedArray {
        if positions.len() >= self.count {
            return self.clone();
        }
        assert_eq!(
            index.0.len(),
            self.count as usize + 1,
            "the index belongs to this array"
        );
        let body = &self.text[1..self.text.len() - 1];
        let mut selected = String::from("[");
        let mut count = 0;
        for Range { start, end } in positions.ranges().iter().cloned() {
            let end = end.min(self.count);
            if start >= end {
                break;
            }
            if count > 0 {
                selected.push_str("\n,");
            }
            selected.push_str(&body[index.0[start as usize]..index.0[end as usize] - 2]);
            count += end - start;
        }
        selected.push(']');
        debug_assert_eq!(PackedArray::from_stored(&*selected).count(), count);
        PackedArray {
            text: selected.into(),
            count,
        }
    }

    /// Cuts the array into pieces with these numbers of items, from the first item on. Drops the rest.
    pub fn cut(&self, counts: impl IntoIterator<Item = u32>) -> Vec<PackedArray> {
        let mut items = self.items();
        let piece = |count: u32| {
            let mut builder = PackedBuilder::new();
            items
                .by_ref()
                .take(count as usize)
                .for_each(|item| builder.push_valid(item));
            builder.finish()
        };
        counts.into_iter().map(piece).collect()
    }

    /// Joins the items of all parts.
    pub fn concat<'a>(parts: impl IntoIterator<Item = &'a PackedArray>) -> PackedArray {
        let mut builder = PackedBuilder::new();
        for part in parts {
            builder.extend(part);
        }
        builder.finish()
    }
}

/// The beginning of each item of a [`PackedArray`].
#[derive(Debug, Clone)]
pub struct PackedIndex(Box<[usize]>);

impl Serialize for PackedArray {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The text is valid JSON by construction, so it is passed on without parsing.
        let raw: &RawValue = serde_json::from_str(&self.text).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PackedArray {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        PackedArray::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

/// Packs items one by one.
#[derive(Debug, Clone)]
pub struct PackedBuilder {
    text: String,
    count: u32,
    item_bytes_max: usize,
    depth_max: usize,
}

impl Default for PackedBuilder {
    fn default() -> Self {
        PackedBuilder::new()
    }
}

impl PackedBuilder {
    /// Makes an empty array whose items may have [`PAYLOAD_BYTES_MAX`] bytes.
    pub fn new() -> Self {
        PackedBuilder::with_item_bytes_max(PAYLOAD_BYTES_MAX)
    }

    /// Makes an empty array with its own limit for the bytes of an item.
    pub fn with_item_bytes_max(item_bytes_max: usize) -> Self {
        PackedBuilder {
            text: String::from("["),
            count: 0,
            item_bytes_max,
            depth_max: JSON_DEPTH_MAX,
        }
    }

    /// Allows the levels that Gristmill adds around other items.
    pub fn of_wrapped(mut self) -> Self {
        self.depth_max = JSON_DEPTH_MAX + WRAPPED_DEPTH_MAX;
        self
    }

    /// Number of items so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of bytes so far.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Checks one JSON text and adds it. After an error, nothing is added.
    pub fn push(&mut self, item: &str) -> Result<(), PackedError> {
        let item = item.trim_matches([' ', '\t', '\n', '\r']);
        self.check_room(item)?;
        check_json(item).map_err(|reason| PackedError::NotJson {
            index: self.count,
            reason,
        })?;
        if memchr::memchr2(b'\n', b'\r', item.as_bytes()).is_some() {
            // Outside of strings a line feed is white space, and a string cannot contain one.
            self.push_valid(&item.replace(['\n', '\r'], " "));
        } else {
            self.push_valid(item);
        }
        Ok(())
    }

    /// Serialises a value and adds it.
    pub fn push_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), PackedError> {
        let item = self.serialise(value)?;
        self.push_serialised(&item)
    }

    /// The JSON text of the next item.
    fn serialise<T: Serialize + ?Sized>(&self, value: &T) -> Result<String, PackedError> {
        serde_json::to_string(value).map_err(|error| PackedError::NotJson {
            index: self.count,
            reason: error.to_string(),
        })
    }

    /// Adds what `serialise` made.
    fn push_serialised(&mut self, item: &str) -> Result<(), PackedError> {
        self.check_room(item)?;
        self.push_valid(item);
        Ok(())
    }

    /// Adds all items of another packed array.
    pub fn extend(&mut self, other: &PackedArray) {
        if other.count > 0 {
            self.separate();
            self.text.push_str(&other.text[1..other.text.len() - 1]);
            self.count += other.count;
        }
    }

    /// Returns the packed array.
    pub fn finish(mut self) -> PackedArray {
        self.text.push(']');
        debug_assert_eq!(
            self.count > 1,
            memchr::memchr(b'\n', self.text.as_bytes()).is_some()
        );
        PackedArray {
            text: self.text.into(),
            count: self.count,
        }
    }

    fn check_room(&self, item: &str) -> Result<(), PackedError> {
        let bytes = item.len();
        if bytes > self.item_bytes_max {
            return Err(PackedError::ItemTooLarge {
                index: self.count,
                bytes,
                bytes_max: self.item_bytes_max,
            });
        }
        if self.count >= BATCH_JOBS_MAX {
            return Err(PackedError::TooManyItems);
        }
        if is_deeper(item.as_bytes(), self.depth_max) {
            return Err(PackedError::TooDeep { index: self.count });
        }
        Ok(())
    }

    fn separate(&mut self) {
        if self.count > 0 {
            self.text.push_str("\n,");
        }
    }

    fn push_valid(&mut self, item: &str) {
        self.separate();
        debug_assert!(memchr::memchr(b'\n', item.as_bytes()).is_none() && !item.is_empty());
        self.text.push_str(item);
        self.count += 1;
    }
}

/// Whether JSON text has more than `depth_max` levels of lists and objects. The parser that checks texts has no such
/// limit, because it keeps no value.
fn is_deeper(item: &[u8], depth_max: usize) -> bool {
    // A level has a bracket at both ends. Most texts are too short, or have too few brackets, to need a look at each byte.
    let mut openings = memchr::memchr2_iter(b'[', b'{', item);
    if item.len() <= 2 * depth_max || openings.nth(depth_max).is_none() {
        return false;
    }
    let (mut depth, mut at) = (0usize, 0);
    while let Some(byte) = item.get(at) {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at = end_of_string(item, at + 1),
            _ => {}
        }
        if depth > depth_max {
            return true;
        }
        at += 1;
    }
    false
}

/// The end of the string whose first byte is at `at`.
fn end_of_string(item: &[u8], mut at: usize) -> usize {
    while let Some(rest) = item.get(at..)
        && let Some(offset) = memchr::memchr2(b'"', b'\\', rest)
    {
        if rest[offset] == b'"' {
            return at + offset;
        }
        // Skip the backslash and the byte that it escapes.
        at += offset + 2;
    }
    item.len()
}

/// Checks that `item` is JSON whose strings are Unicode. The grammar alone allows a lone surrogate (`"\ud800"`), which
/// no store and few readers accept.
fn check_json(item: &str) -> Result<(), String> {
    serde_json::from_str::<serde::de::IgnoredAny>(item).map_err(|error| error.to_string())?;
    match memchr::memmem::find(item.as_bytes(), b"\\u").and_then(|_| lone_surrogate(item.as_bytes())) {
        Some(at) => Err(format!("lone surrogate in a hex escape at column {}", at + 1)),
        None => Ok(()),
    }
}

/// The place of an escaped surrogate without its other half.
fn lone_surrogate(item: &[u8]) -> Option<usize> {
    let escaped = |at: usize| -> Option<u16> {
        let digits = item.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut at = 0;
    while let Some(offset) = memchr::memchr(b'\\', item.get(at..)?) {
        at += offset;
        at += match escaped(at) {
            Some(0xD800..=0xDBFF) => match escaped(at + 6) {
                Some(0xDC00..=0xDFFF) => 12,
                _ => return Some(at),
            },
            Some(0xDC00..=0xDFFF) => return Some(at),
            // Any other escape: the backslash, and the byte that it escapes.
            _ => 2,
        };
    }
    None
}

struct PackingVisitor;

impl<'de> Visitor<'de> for PackingVisitor {
    type Value = Result<PackedBuilder, PackedError>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut builder = PackedBuilder::new();
        let mut refused = None;
        while let Some(item) = items.next_element::<&RawValue>()? {
            // The parser requires that the sequence is read to its end.
            if refused.is_none() {
                refused = builder.push(item.get()).err();
            }
        }
        Ok(refused.map_or(Ok(builder), Err))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn some_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            Just(Value::from("\n,\"[]\u{1f600}\\u0041")),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((any::<String>(), inner), 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_array_is_packed_and_gives_its_items_back(
            values in proptest::collection::vec(some_value(), 0..20),
            pretty in any::<bool>(),
            mask in any::<u32>(),
        ) {
            let text = if pretty { serde_json::to_string_pretty(&values) } else { serde_json::to_string(&values) }.unwrap();
            let packed = PackedArray::parse(&text).unwrap();
            prop_assert_eq!(packed.count() as usize, values.len());
            prop_assert_eq!(&serde_json::from_str::<Vec<Value>>(packed.as_str()).unwrap(), &values);
            let items: Vec<Value> = packed.items().map(|item| serde_json::from_str(item).unwrap()).collect();
            prop_assert_eq!(&items, &values);
            prop_assert_eq!(PackedArray::from_stored(packed.as_str()), packed.clone());

            let positions: Positions = (0..32).filter(|bit| mask >> bit & 1 == 1).collect();
            let expected: Vec<&Value> = values.iter().enumerate()
                .filter(|(index, _)| positions.contains(*index as u32) || positions.len() as usize >= values.len())
                .map(|(_, value)| value).collect();
            let selected = packed.select(&positions);
            prop_assert_eq!(&packed.select_indexed(&positions, &packed.index()), &selected);
            prop_assert_eq!(selected.count() as usize, expected.len());
            let selected: Vec<Value> = serde_json::from_str(selected.as_str()).unwrap();
            prop_assert_eq!(selected.iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn invalid_json_is_refused_and_adds_nothing() {
        let mut builder = PackedBuilder::new();
        builder.push("1").unwrap();
        for text in [
            "",
            "nul",
            "NaN",
            "{\"a\":}",
            "1 2",
            "\"\\ud800\"",
            "[\"a\\udc00b\"]",
            "\"\\ud800\\ud800\\udc00\"",
            "\"\\\\\\ud800x\"",
            "\"a\nb\"",
            "Infinity",
            "'x'",
        ] {
            assert!(
                matches!(builder.push(text), Err(PackedError::NotJson { index: 1, .. })),
                "{text}"
            );
        }
        builder
            .push(" {\"smile\": \"\\ud83d\\ude00\",\n \"b\": 2} ")
            .unwrap();
        PackedBuilder::new().push("\"\\\\ud800 \\u0041\"").unwrap();
        assert_eq!(
            builder.finish().as_str(),
            "[1\n,{\"smile\": \"\\ud83d\\ude00\",  \"b\": 2}]"
        );
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |levels: usize, inner: &str| {
            let (open, close) = (r#"{"a":["#.repeat(levels / 2), "]}".repeat(levels / 2));
            format!("{open}{inner}{close}")
        };
        // Brackets inside strings are not levels.
        let brackets = format!("[{}]", vec![r#""\\\"[[[[{\u005b""#; 200].join(","));
        for inner in ["1", r#""\u005b""#] {
            let mut builder = PackedBuilder::new();
            builder.push(&nested(JSON_DEPTH_MAX, inner)).unwrap();
            builder.push(&brackets).unwrap();
            let too_deep = Err(PackedError::TooDeep { index: 2 });
            assert_eq!(builder.push(&nested(JSON_DEPTH_MAX + 2, inner)), too_deep);
            assert_eq!(builder.push(&nested(20_000, inner)), too_deep);
            let mut builder = builder.of_wrapped();
            builder.push(&nested(JSON_DEPTH_MAX + 2, inner)).unwrap();
            assert_eq!(builder.finish().count(), 3);
        }
        let mut value = Value::from(1);
        for _ in 0..=JSON_DEPTH_MAX {
            value = Value::from(vec![value]);
        }
        let too_deep = PackedError::TooDeep { index: 0 };
        assert_eq!(PackedBuilder::new().push_value(&value), Err(too_deep.clone()));
        let list = format!("[{}]", nested(20_000, "1"));
        assert_eq!(PackedArray::parse(&list), Err(too_deep));
    }

    #[test]
    fn limits_are_named() {
        let mut builder = PackedBuilder::with_item_bytes_max(4);
        let error = builder.push("\"long\"").unwrap_err();
        assert_eq!(error.to_string(), "item 0 is 6 bytes long; the limit is 4");
        assert!(PackedArray::repeat("null", BATCH_JOBS_MAX).is_ok());
        let over = format!("[{}1]", "1,".repeat(BATCH_JOBS_MAX as usize));
        assert_eq!(PackedArray::parse(&over), Err(PackedError::TooManyItems));
        assert!(matches!(
            PackedArray::parse("{}"),
            Err(PackedError::NotAnArray(_))
        ));
        assert!(matches!(
            PackedArray::parse("[1"),
            Err(PackedError::NotAnArray(_))
        ));
        assert!(matches!(
            PackedArray::parse("[1] 2"),
            Err(PackedError::NotAnArray(_))
        ));
    }
}
