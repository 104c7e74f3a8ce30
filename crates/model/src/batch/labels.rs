//! The keys and tags of leased jobs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize, Serializer};

use crate::packed::{PackedArray, PackedIndex};
use crate::positions::Positions;
use crate::tag::Tag;

/// The keys and tags of some jobs of one batch, packed as they are stored. A job's labels are unpacked when they are needed.
#[derive(Debug, Clone)]
pub struct JobLabels {
    /// The positions of the jobs.
    positions: Positions,
    /// The key of each job, as a string or `null`.
    keys: Option<PackedArray>,
    tags: Vec<Tag>,
    weight_bytes: usize,
    index: OnceLock<LabelIndex>,
}

/// An index of the labels by job, for repeated selections.
#[derive(Debug, Clone)]
struct LabelIndex {
    keys: Option<PackedIndex>,
    /// The tags that all jobs have.
    of_all: Vec<usize>,
    /// The tags that some jobs have, job by job.
    of_some: Vec<usize>,
    /// The beginning of each job's tags in `of_some`, and the end of the last job's.
    starts: Vec<usize>,
}

/// The reason why texts are not labels of some jobs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLabels {
    /// There are more or fewer keys than jobs.
    #[error("{keys} keys for {jobs} jobs")]
    KeyCount {
        /// Number of keys.
        keys: u32,
        /// Number of jobs.
        jobs: u32,
    },
    /// A key is neither a string nor `null`.
    #[error("key {0} is not a string")]
    Key(usize),
    /// A tag belongs to other jobs.
    #[error("the tag `{0}` is of other jobs")]
    TagPositions(String),
    /// The text has another form.
    #[error("not an object of keys and tags: {0}")]
    Json(String),
}

/// Labels as they travel. The positions of their jobs travel separately.
#[derive(Serialize, Deserialize)]
struct PackedLabels<'l> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keys: Option<PackedArray>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", borrow)]
    tags: Vec<PackedTag<'l>>,
}

/// Name, value, and the positions of the jobs with the tag; `null` if all jobs have it.
type PackedTag<'l> = (Cow<'l, str>, Cow<'l, str>, Option<Positions>);

impl JobLabels {
    /// Makes the labels of these jobs: one key for each job, and tags with positions in the batch.
    ///
    /// # Errors
    ///
    /// There are more or fewer keys than jobs, or tags of other jobs.
    pub fn new(
        positions: Positions,
        keys: Option<PackedArray>,
        tags: Vec<Tag>,
    ) -> Result<JobLabels, InvalidLabels> {
        if let Some(keys) = &keys
            && keys.count() != positions.len()
        {
            return Err(InvalidLabels::KeyCount {
                keys: keys.count(),
                jobs: positions.len(),
            });
        }
        let is_of_others = |tag: &&Tag| {
            let of = tag.positions.as_ref();
            of.is_some_and(|of| !positions.contains_all(of))
        };
        if let Some(tag) = tags.iter().find(is_of_others) {
            return Err(InvalidLabels::TagPositions(tag.name.clone()));
        }
        Ok(JobLabels::of(positions, keys, tags))
    }

    fn of(positions: Positions, keys: Option<PackedArray>, tags: Vec<Tag>) -> JobLabels {
        let tags_bytes = tags.iter().map(Tag::weight_bytes);
        JobLabels {
            weight_bytes: keys.as_ref().map_or(0, |keys| keys.as_str().len()) + tags_bytes.sum::<usize>(),
            positions,
            keys,
            tags,
            index: OnceLock::new(),
        }
    }

    /// Reads labels of these jobs, which [`to_text`](JobLabels::to_text) wrote.
    ///
    /// # Errors
    ///
    /// The text is malformed, or has labels of other jobs.
    pub fn read(text: &str, positions: Positions) -> Result<JobLabels, InvalidLabels> {
        let packed: PackedLabels<'_> =
            serde_json::from_str(text).map_err(|error| InvalidLabels::Json(error.to_string()))?;
        let tags = packed.tags.into_iter().map(|(name, value, positions)| Tag {
            name: name.into_owned(),
            value: value.into_owned(),
            positions,
        });
        let is_key = |item: &str| item == "null" || item.starts_with('"');
        let keys = packed.keys.iter().flat_map(PackedArray::items);
        if let Some(index) = keys.into_iter().position(|item| !is_key(item)) {
            return Err(InvalidLabels::Key(index));
        }
        JobLabels::new(positions, packed.keys, tags.collect())
    }

    /// Writes a JSON object with `keys` and `tags`, if there are any.
    pub fn to_text(&self) -> String {
        // Serialising strings and lists cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Mean number of bytes of the key and the tags of one job.
    pub fn job_bytes(&self) -> usize {
        self.weight_bytes / self.positions.len().max(1) as usize
    }

    /// The key of each job, as a string or `null`, in the order of the positions; `None` if no job has a key.
    pub fn keys(&self) -> Option<&PackedArray> {
        self.keys.as_ref()
    }

    /// The tags.
    pub fn tags(&self) -> &[Tag] {
        &self.tags
    }

    /// Approximate number of bytes of the labels.
    pub fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Selects the labels of some of the jobs; `None` if these have none. The cost is proportional to the selection.
    pub fn select(&self, positions: &Positions) -> Option<JobLabels> {
        if *positions == self.positions {
            return Some(self.clone());
        }
        let index = self.index.get_or_init(|| self.index());
        let places = self.positions.indexes_of(positions);
        let keys = self.keys.as_ref().zip(index.keys.as_ref());
        let keys = keys.map(|(keys, index)| keys.select_indexed(&places, index));
        let mut found: BTreeMap<usize, Positions> = BTreeMap::new();
        for (place, position) in places.iter().map(|place| place as usize).zip(positions.iter()) {
            for tag in &index.of_some[index.starts[place]..index.starts[place + 1]] {
                found.entry(*tag).or_default().insert(position);
            }
        }
        let of_all = index.of_all.iter().map(|tag| (*tag, None));
        let of_some = found.into_iter().map(|(tag, of)| {
            let is_of_all = of.len() == positions.len();
            (tag, (!is_of_all).then_some(of))
        });
        let tags = of_all.chain(of_some).map(|(tag, positions)| Tag {
            positions,
            ..self.tags[tag].clone()
        });
        // A key is a string, and a missing key is `null`.
        let keys = keys.filter(|keys| keys.as_str().contains('"'));
        let selected = JobLabels::of(positions.clone(), keys, tags.collect());
        (selected.keys.is_some() || !selected.tags.is_empty()).then_some(selected)
    }

    /// The key of the job at a position of the batch.
    pub fn key_of(&self, position: u32) -> Option<String> {
        let selected = self.select(&one(position))?;
        let key = selected.keys?;
        serde_json::from_str(key.get(0)?).ok()?
    }

    /// The tags of the job at a position of the batch.
    pub fn tags_of(&self, position: u32) -> BTreeMap<String, String> {
        let selected = self.select(&one(position));
        let tags = selected.into_iter().flat_map(|selected| selected.tags);
        tags.map(|tag| (tag.name, tag.value)).collect()
    }

    fn index(&self) -> LabelIndex {
        let jobs = self.positions.len() as usize;
        let (mut of_all, mut counts) = (Vec::new(), vec![0; jobs]);
        let places = |tag: &Tag| Some(self.positions.indexes_of(tag.positions.as_ref()?));
        let places: Vec<Option<Positions>> = self.tags.iter().map(places).collect();
        for (tag, places) in places.iter().enumerate() {
            match places {
                None => of_all.push(tag),
                Some(places) => places.iter().for_each(|place| counts[place as usize] += 1),
            }
        }
        let mut starts = Vec::with_capacity(jobs + 1);
        let mut total = 0;
        for count in &mut counts {
            starts.push(total);
            total += std::mem::replace(count, total);
        }
        starts.push(total);
        // Each count has become the place for the next tag of its job.
        let (mut of_some, mut ends) = (vec![0; total], counts);
        for (tag, places) in places.iter().enumerate() {
            for place in places.iter().flat_map(Positions::iter) {
                let end = &mut ends[place as usize];
                of_some[*end] = tag;
                *end += 1;
            }
        }
        debug_assert!(
            ends.iter().zip(&starts[1..]).all(|(end, next)| end == next),
            "the tags of each job fill its part of the index"
        );
        LabelIndex {
            keys: self.keys.as_ref().map(PackedArray::index),
            of_all,
            of_some,
            starts,
        }
    }
}

impl PartialEq for JobLabels {
    fn eq(&self, other: &JobLabels) -> bool {
        (&self.positions, &self.keys, &self.tags) == (&other.positions, &other.keys, &other.tags)
    }
}

impl Eq for JobLabels {}

impl Serialize for JobLabels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tags = self.tags.iter();
        let packed = PackedLabels {
            keys: self.keys.clone(),
            tags: tags
                .map(|tag| ((&tag.name).into(), (&tag.value).into(), tag.positions.clone()))
                .collect(),
        };
        packed.serialize(serializer)
    }
}

fn one(position: u32) -> Positions {
    Positions::from(position..position.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag(name: &str, value: &str, positions: &str) -> Tag {
        Tag {
            positions: (!positions.is_empty()).then(|| positions.parse().unwrap()),
            ..Tag::all(name, value)
        }
    }

    fn labels() -> JobLabels {
        JobLabels::new(
            "3-5,9".parse().unwrap(),
            Some(PackedArray::parse(r#"["a",null,"say \"b\"",null]"#).unwrap()),
            vec![
                tag("tenant", "acme", ""),
                tag("part", "x", "3,9"),
                tag("part", "y", "5"),
            ],
        )
        .unwrap()
    }

    #[test]
    fn labels_are_of_single_jobs() {
        let labels = labels();
        let keys = [3, 4, 5, 9, 8].map(|position| labels.key_of(position));
        assert_eq!(
            keys.each_ref().map(Option::as_deref),
            [Some("a"), None, Some("say \"b\""), None, None]
        );
        let tags = [3, 4, 5].map(|position| format!("{:?}", labels.tags_of(position)));
        assert_eq!(
            tags,
            [
                r#"{"part": "x", "tenant": "acme"}"#,
                r#"{"tenant": "acme"}"#,
                r#"{"part": "y", "tenant": "acme"}"#
            ]
        );
    }

    #[test]
    fn selected_labels_are_packed_again() {
        let some = labels().select(&"4,9".parse().unwrap()).unwrap();
        assert_eq!(some.keys(), None, "none of the two has one");
        assert_eq!(some.tags(), [tag("tenant", "acme", ""), tag("part", "x", "9")]);
        let nested = labels().select(&"3,9".parse().unwrap()).unwrap();
        assert_eq!(nested.tags(), [tag("tenant", "acme", ""), tag("part", "x", "")]);
        let bare = JobLabels::new(
            "0-1".parse().unwrap(),
            Some(PackedArray::parse(r#"["a",null]"#).unwrap()),
            vec![tag("part", "x", "0")],
        );
        assert_eq!(bare.unwrap().select(&"1".parse().unwrap()), None);
    }

    #[test]
    fn labels_are_checked_when_they_are_read() {
        let read =
            |text: &str| JobLabels::read(text, "3-5,9".parse().unwrap()).map_err(|error| error.to_string());
        assert_eq!(read(&labels().to_text()), Ok(labels()));
        for (wrong, says) in [
            (r#"{"keys":["a"]}"#, "1 keys for 4 jobs"),
            (
                r#"{"tags":[["part","x","3-4,6"]]}"#,
                "the tag `part` is of other jobs",
            ),
            (r#"{"tags":[["part","x"]]}"#, "not an object of keys and tags"),
            ("3", "not an object of keys and tags"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(says), "{error} does not say `{says}`");
        }
    }

    proptest! {
        #[test]
        fn a_selection_agrees_with_the_whole(
            tags in proptest::collection::vec((0u8..3, 0u8..3, proptest::collection::btree_set(0u32..40, 0..20)), 0..6),
            selected in proptest::collection::btree_set(0u32..40, 1..20),
        ) {
            let tags = tags.iter().enumerate().map(|(number, (name, value, of))| Tag {
                name: format!("{name}{number}"),
                value: value.to_string(),
                positions: (!of.is_empty()).then(|| of.iter().copied().collect()),
            });
            let keys = (0..40).map(|number| if number % 3 == 0 { "null".to_owned() } else { format!("\"k{number}\"") });
            let keys = format!("[{}]", keys.collect::<Vec<_>>().join(","));
            let whole = JobLabels::new(Positions::all(40), Some(PackedArray::parse(&keys).unwrap()), tags.collect()).unwrap();
            let positions: Positions = selected.iter().copied().collect();
            let part = whole.select(&positions);
            for position in selected {
                let has = |tag: &&Tag| tag.positions.as_ref().is_none_or(|of| of.contains(position));
                let plain: BTreeMap<String, String> =
                    whole.tags().iter().filter(has).map(|tag| (tag.name.clone(), tag.value.clone())).collect();
                prop_assert_eq!(&whole.tags_of(position), &plain);
                prop_assert_eq!(part.as_ref().map_or_else(BTreeMap::new, |part| part.tags_of(position)), plain);
                let key = (position % 3 != 0).then(|| format!("k{position}"));
                prop_assert_eq!(part.as_ref().and_then(|part| part.key_of(position)), key);
            }
        }
    }
}
