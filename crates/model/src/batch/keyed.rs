//! Batches with deduplication keys.

use serde::Serialize;

use super::invalid::InvalidBatch;
use super::unique::{Debounce, OnDuplicate, Unique};
use crate::batch::NewBatch;
use crate::limits::{KEY_BYTES_MAX, KEY_PERIOD_MS_MAX};
use crate::packed::{PackedArray, PackedBuilder, PackedError};

/// A batch whose jobs have at most one deduplication key each. Of several jobs in the batch with the same key, the last
/// one stays (or the batch is refused, if duplicates are). A job that replaces one with prerequisites
/// ([`after`](NewBatch::after)) waits for these too. Jobs that run once more ([`Rerun`](OnDuplicate::Rerun)) or are
/// debounced cannot have prerequisites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedBatch {
    /// The jobs. [`BatchOptions::unique`](crate::BatchOptions::unique) has the rules of their keys.
    pub batch: NewBatch,
    /// The key of each job, as a string; `null` for a job without a key.
    pub keys: PackedArray,
}

impl AsMut<NewBatch> for KeyedBatch {
    fn as_mut(&mut self) -> &mut NewBatch {
        &mut self.batch
    }
}

impl AsRef<NewBatch> for KeyedBatch {
    fn as_ref(&self) -> &NewBatch {
        &self.batch
    }
}

impl KeyedBatch {
    /// Gives keys to the jobs of a batch.
    pub fn new(mut batch: NewBatch, keys: PackedArray, unique: Unique) -> Self {
        batch.options.unique = Some(unique);
        KeyedBatch { batch, keys }
    }

    /// Gives the jobs of a batch the next of these keys.
    pub fn with_keys<K: Serialize>(
        batch: NewBatch,
        keys: impl Iterator<Item = K>,
        unique: Unique,
    ) -> Result<Self, PackedError> {
        let mut packed = PackedBuilder::new();
        for key in keys.take(batch.payloads.count() as usize) {
            packed.push_value(&key)?;
        }
        Ok(KeyedBatch::new(batch, packed.finish(), unique))
    }

    /// How the keys are meant.
    pub fn unique(&self) -> Unique {
        self.batch.options.unique.unwrap_or_default()
    }

    /// Checks the batch without a store, and reads the keys.
    pub fn check(&self) -> Result<Vec<Option<String>>, InvalidBatch> {
        let Some(unique) = self.batch.options.unique else {
            return Err(InvalidBatch::KeysUnexpected);
        };
        let mut jobs = self.batch.clone();
        jobs.options.unique = None;
        jobs.check()?;
        if self.batch.options.hooks.is_some() {
            return Err(InvalidBatch::KeyedHooks);
        }
        let comes_later = unique.on_duplicate == OnDuplicate::Rerun || unique.debounce.is_some();
        if !self.batch.after.is_empty() && comes_later {
            return Err(InvalidBatch::KeysAfter);
        }
        if self.batch.options.cached_ms.is_some() {
            return Err(InvalidBatch::CachedOptions);
        }
        if self.keys.count() != self.batch.payloads.count() {
            return Err(InvalidBatch::KeyCount {
                keys: self.keys.count(),
                jobs: self.batch.payloads.count(),
            });
        }
        if unique
            .period_ms
            .is_some_and(|period_ms| period_ms == 0 || period_ms > KEY_PERIOD_MS_MAX)
        {
            return Err(InvalidBatch::KeyPeriod);
        }
        let keys = self.keys.items().zip(0..);
        let keys: Vec<Option<String>> = keys
            .map(|(item, index)| read_key(item, index))
            .collect::<Result<_, _>>()?;
        if let Some(debounce) = unique.debounce {
            self.check_debounce(unique, debounce, &keys)?;
        }
        Ok(keys)
    }

    fn check_debounce(
        &self,
        unique: Unique,
        debounce: Debounce,
        keys: &[Option<String>],
    ) -> Result<(), InvalidBatch> {
        let wait_ms_max = debounce.wait_ms_max.unwrap_or(KEY_PERIOD_MS_MAX);
        if debounce.delay_ms == 0 || debounce.delay_ms > wait_ms_max || wait_ms_max > KEY_PERIOD_MS_MAX {
            return Err(InvalidBatch::DebounceDelay);
        }
        let is_plain = unique.on_duplicate == OnDuplicate::Skip
            && unique.period_ms.is_none()
            && self.batch.options.run_at.is_none();
        if !is_plain {
            return Err(InvalidBatch::DebounceOptions);
        }
        let is_rejected = |index: u32| {
            let rejected = &self.batch.rejected;
            rejected.iter().any(|rejected| rejected.position == index)
        };
        let keyless = keys.iter().zip(0..).find(|(key, _)| key.is_none());
        match keyless {
            Some((_, index)) if !is_rejected(index) => Err(InvalidBatch::DebounceKey(index)),
            _ => Ok(()),
        }
    }
}

fn read_key(item: &str, index: u32) -> Result<Option<String>, InvalidBatch> {
    let wrong = || InvalidBatch::Key {
        index,
        key: item.chars().take(80).collect(),
    };
    let key: Option<String> = serde_json::from_str(item).map_err(|_| wrong())?;
    match key {
        Some(key) if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) => {
            Err(wrong())
        }
        key => Ok(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unique::DebouncedPayloads;

    fn keyed(keys: &str) -> KeyedBatch {
        let jobs = NewBatch::new("work", PackedArray::parse("[1,2]").unwrap());
        KeyedBatch::new(jobs, PackedArray::parse(keys).unwrap(), Unique::default())
    }

    #[test]
    fn keys_are_read_and_checked() {
        let keys = keyed(r#"["a",null]"#).check().unwrap();
        assert_eq!(keys, [Some("a".to_owned()), None]);
        let long = format!("[\"{}\",\"b\"]", "x".repeat(KEY_BYTES_MAX + 1));
        for wrong in [
            r#"["a"]"#,
            r#"["a",1]"#,
            r#"["a",""]"#,
            r#"["a","b\u0000"]"#,
            &long,
        ] {
            assert!(keyed(wrong).check().is_err(), "{wrong}");
        }
        let mut period = keyed(r#"["a","b"]"#);
        period.batch.options.unique = Some(Unique {
            period_ms: Some(0),
            ..Unique::default()
        });
        assert_eq!(period.check(), Err(InvalidBatch::KeyPeriod));
        let mut waiting = keyed(r#"["a","b"]"#);
        waiting.batch.after = vec![crate::After {
            prerequisite: crate::dependency::Prerequisite::Batch(crate::BatchId(1)),
            positions: None,
            on_failure: crate::OnFailure::Cancel,
        }];
        assert!(waiting.check().is_ok());
        waiting.batch.options.unique = Some(Unique {
            on_duplicate: OnDuplicate::Rerun,
            ..Unique::default()
        });
        assert_eq!(waiting.check(), Err(InvalidBatch::KeysAfter));
        let debounced = |delay_ms, wait_ms_max| {
            let mut batch = keyed(r#"["a","b"]"#);
            batch.batch.options.unique = Some(Unique {
                debounce: Some(Debounce {
                    delay_ms,
                    wait_ms_max,
                    payloads: DebouncedPayloads::Last,
                }),
                ..Unique::default()
            });
            batch
        };
        assert!(debounced(5, Some(5)).check().is_ok());
        for (delay_ms, wait_ms_max) in [(0, None), (5, Some(4)), (5, Some(KEY_PERIOD_MS_MAX + 1))] {
            let refused = debounced(delay_ms, wait_ms_max).check();
            assert_eq!(refused, Err(InvalidBatch::DebounceDelay));
        }
        let mut at = debounced(5, None);
        at.batch.options.run_at = Some(crate::Timestamp(1));
        assert_eq!(at.check(), Err(InvalidBatch::DebounceOptions));
        let mut keyless = debounced(5, None);
        keyless.keys = PackedArray::parse(r#"["a",null]"#).unwrap();
        assert_eq!(keyless.check(), Err(InvalidBatch::DebounceKey(1)));
        assert_eq!(period.batch.check(), Err(InvalidBatch::KeysMissing));
    }
}
