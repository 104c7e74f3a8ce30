//! The keys and tags of random sequences, and searches for them.

use gristmill_model::{Clock, JobId, PackedArray, Tag, TagCondition};
use gristmill_store::{Change, JobFilter};

use crate::fixture::change;
use crate::machine::Machine;

/// Keys that contain each other. JSON writes some of them with escapes: always, or by the choice of a client.
const KEYS: [&str; 5] = ["a", "a\"b", "a\\b", "\\", "caf\u{e9} \u{1F980}"];

/// The tag of jobs with a key. Its value is the key.
const TAG: &str = "the \"key\" \\ caf\u{e9}";

/// The key with this number.
pub(super) fn key(number: u8) -> &'static str {
    KEYS[usize::from(number) % KEYS.len()]
}

/// Keys as JSON, with more escapes than necessary.
pub(super) fn packed<'k>(keys: impl Iterator<Item = Option<&'k str>>) -> PackedArray {
    let keys: Vec<_> = keys.collect();
    let text = serde_json::to_string(&keys).unwrap().replace('\u{e9}', "\\u00e9");
    PackedArray::parse(&text).unwrap()
}

/// The tags of jobs with these keys.
pub(super) fn tags(keys: &[Option<String>]) -> Vec<Tag> {
    let tags = KEYS.into_iter().map(|value| Tag {
        positions: Some(
            (0..)
                .zip(keys)
                .filter(|(_, key)| key.as_deref() == Some(value))
                .map(|(position, _)| position)
                .collect(),
        ),
        ..Tag::all(TAG, value)
    });
    tags.filter(|tag| tag.positions.as_ref().is_some_and(|of| !of.is_empty()))
        .collect()
}

fn by_key(key: &str) -> JobFilter {
    JobFilter {
        key: Some(key.to_owned()),
        ..JobFilter::default()
    }
}

impl Machine<'_> {
    /// Finds the jobs with a key, with a prefix of a key, and with the tag.
    pub(super) async fn find(&self, key: &str) {
        let by_prefix = JobFilter {
            key_prefix: Some(key.to_owned()),
            ..JobFilter::default()
        };
        let by_tag = JobFilter {
            tags: vec![TagCondition {
                name: TAG.to_owned(),
                prefix: false,
                value: Some(key.to_owned()),
            }],
            ..JobFilter::default()
        };
        for (filter, expected) in [
            (by_key(key), self.reference.with_key(|own| own == key)),
            (by_prefix, self.reference.with_key(|own| own.starts_with(key))),
            (by_tag, self.reference.with_tag(key)),
        ] {
            let found = self.store.job_ids(&filter, None, u32::MAX).await.unwrap();
            let found = found.iter().flat_map(|found| {
                let positions = found.positions.iter();
                positions.map(|position| JobId {
                    batch: found.batch,
                    position,
                })
            });
            assert_eq!(found.collect::<Vec<_>>(), expected, "{filter:?}");
        }
    }

    /// Cancels the jobs with a key.
    pub(super) async fn cancel_keyed(&mut self, key: &str) {
        let now = self.database.clock().now();
        let changed = change(&*self.store, by_key(key), Change::Cancel).await;
        let jobs = self.reference.with_key(|own| own == key);
        assert_eq!(changed.changed, self.reference.cancel(jobs, now));
    }
}
