//! Tags: names with values, by which jobs are found.
//!
//! A store keeps one row for each pair of name and value in a batch, with the positions of its jobs. A filter on tags,
//! keys or parents first becomes positions of batches; queries and changes then work on these.
//!
//! A claim returns the keys and tags of a batch beside its slices (`labels`), packed, and reads them once for each
//! batch. The options of a batch say whether it has any. Agents get them as a segment, and scripts get them with the
//! identity of a micro-batch. They are unpacked when a job asks for them.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::invalid::InvalidBatch;
use crate::limits::{TAG_NAME_BYTES_MAX, TAG_VALUE_BYTES_MAX, TAGS_PER_JOB_MAX};
use crate::positions::Positions;

/// One tag, and the jobs of a batch that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// The name. A job has at most one value of it.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The positions of the jobs with the tag; all jobs if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<Positions>,
}

impl Tag {
    /// Approximate number of bytes, including the positions.
    pub fn weight_bytes(&self) -> usize {
        let ranges = self.positions.as_ref().map_or(0, |of| of.ranges().len());
        self.name.len() + self.value.len() + size_of::<Tag>() + 8 * ranges
    }

    /// Makes a tag of all jobs of a batch.
    pub fn all(name: impl Into<String>, value: impl Into<String>) -> Self {
        Tag {
            name: name.into(),
            value: value.into(),
            positions: None,
        }
    }
}

/// Packs the tags of jobs, given in the order of the jobs. Equal tags become one.
pub fn pack_tags<'t>(jobs: impl IntoIterator<Item = &'t BTreeMap<String, String>>) -> Vec<Tag> {
    let mut packed: BTreeMap<(&str, &str), Positions> = BTreeMap::new();
    let mut count = 0;
    for (tags, position) in jobs.into_iter().zip(0..) {
        for (name, value) in tags {
            packed.entry((name, value)).or_default().insert(position);
        }
        count = position + 1;
    }
    let tags = packed.into_iter().map(|((name, value), positions)| Tag {
        name: name.to_owned(),
        value: value.to_owned(),
        positions: (positions.len() < count).then_some(positions),
    });
    tags.collect()
}

/// A condition on the tags of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagCondition {
    /// The name, or its prefix.
    pub name: String,
    /// Whether `name` is a prefix of the name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefix: bool,
    /// The value; any value if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl TagCondition {
    /// Reads `name=value`, `name` (with any value), or `name*` (a prefix of the name), also with `=value`.
    pub fn parse(text: &str) -> Self {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        TagCondition {
            name: name.strip_suffix('*').unwrap_or(name).to_owned(),
            prefix: name.ends_with('*'),
            value,
        }
    }
}

/// Checks the tags of a batch of `count` jobs, in one step for each job of each tag.
pub(crate) fn check_tags(tags: &[Tag], count: u32) -> Result<(), InvalidBatch> {
    let mut named: HashMap<&str, Tagged> = HashMap::new();
    let mut for_all = 0;
    let mut by_job: Vec<u32> = Vec::new();
    for tag in tags {
        check_texts(tag)?;
        let before = named.entry(&tag.name).or_default();
        let is_new = match &tag.positions {
            None => {
                for_all += 1;
                before.add_all()
            }
            Some(positions) => {
                if positions.last().is_none_or(|last| last >= count) {
                    return Err(InvalidBatch::TagPositions(tag.name.clone()));
                }
                by_job.resize(count as usize, 0);
                positions
                    .iter()
                    .for_each(|position| by_job[position as usize] += 1);
                before.add(positions, count)
            }
        };
        if !is_new {
            return Err(InvalidBatch::TagTwice(tag.name.clone()));
        }
    }
    match for_all + by_job.into_iter().max().unwrap_or(0) {
        most if most > TAGS_PER_JOB_MAX => Err(InvalidBatch::TooManyTags(most)),
        _ => Ok(()),
    }
}

fn check_texts(tag: &Tag) -> Result<(), InvalidBatch> {
    let is_text = |text: &str, bytes_max| text.len() <= bytes_max && !text.chars().any(char::is_control);
    if tag.name.is_empty()
        || tag.name.contains(['=', '*'])
        || !is_text(&tag.name, TAG_NAME_BYTES_MAX)
        || !is_text(&tag.value, TAG_VALUE_BYTES_MAX)
    {
        return Err(InvalidBatch::Tag {
            name: tag.name.chars().take(80).collect(),
            value: tag.value.chars().take(80).collect(),
        });
    }
    Ok(())
}

/// The jobs with a tag of one name.
#[derive(Default)]
struct Tagged {
    all: bool,
    /// Whether a job has the tag, by position; empty before the first tag of some jobs.
    some: Vec<bool>,
}

impl Tagged {
    /// Gives the tag to all jobs. Returns whether no job had it before.
    fn add_all(&mut self) -> bool {
        !std::mem::replace(&mut self.all, true) && self.some.is_empty()
    }

    /// Gives the tag to some jobs. Returns whether none of these had it before.
    fn add(&mut self, positions: &Positions, count: u32) -> bool {
        self.some.resize(count as usize, false);
        !self.all
            && positions
                .iter()
                .all(|position| !std::mem::replace(&mut self.some[position as usize], true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(name: &str, value: &str, positions: &str) -> Tag {
        Tag {
            positions: (!positions.is_empty()).then(|| positions.parse().unwrap()),
            ..Tag::all(name, value)
        }
    }

    #[test]
    fn tags_are_packed_and_checked() {
        let job = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let packed = pack_tags(&[
            job(&[("a", "1"), ("b", "x")]),
            job(&[("a", "1"), ("b", "y")]),
            job(&[("a", "1")]),
        ]);
        assert_eq!(
            packed,
            [tag("a", "1", ""), tag("b", "x", "0"), tag("b", "y", "1")]
        );
        assert_eq!(check_tags(&packed, 3), Ok(()));
        let many: Vec<Tag> = (0..33).map(|number| tag(&number.to_string(), "", "1")).collect();
        for wrong in [
            vec![tag("", "1", "")],
            vec![tag("a=b", "1", "")],
            vec![tag("a", &"x".repeat(TAG_VALUE_BYTES_MAX + 1), "")],
            vec![tag("a", "1", "3")],
            vec![tag("a", "1", ""), tag("a", "2", "0")],
            vec![tag("a", "2", "0"), tag("a", "1", "")],
            vec![tag("a", "1", ""), tag("a", "2", "")],
            vec![tag("a", "1", "0-1"), tag("b", "1", ""), tag("a", "2", "1-2")],
            many,
        ] {
            assert!(check_tags(&wrong, 3).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn conditions_are_read() {
        let condition = |text| TagCondition::parse(text);
        assert_eq!(
            (condition("a=b=c").name, condition("a=b=c").value),
            ("a".to_owned(), Some("b=c".to_owned()))
        );
        assert!(condition("a*").prefix && !condition("a=b*").prefix);
        assert_eq!(condition("a*").name, "a");
    }
}
