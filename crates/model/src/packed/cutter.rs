//! Cuts payloads into batches.

use std::{fmt, mem};

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{PackedArray, PackedBuilder, PackedError};
use crate::limits::{BATCH_BYTES_TARGET, BATCH_JOBS_MAX, SUBMIT_BATCH_JOBS};

/// The size of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Jobs in a batch at most.
    pub jobs_max: u32,
    /// Bytes of packed payloads in a batch at most; a single larger payload has a batch to itself.
    pub bytes_max: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        BatchLimits {
            jobs_max: SUBMIT_BATCH_JOBS,
            bytes_max: BATCH_BYTES_TARGET,
        }
    }
}

impl BatchLimits {
    /// As many jobs as a batch can hold.
    pub const FULL: BatchLimits = BatchLimits {
        jobs_max: BATCH_JOBS_MAX,
        bytes_max: BATCH_BYTES_TARGET,
    };
}

/// Packs payloads one by one, and returns each batch once it is full.
#[derive(Debug)]
pub struct PackedCutter {
    limits: BatchLimits,
    builder: PackedBuilder,
    /// Payloads of the batches before.
    cut: u32,
}

impl PackedCutter {
    /// A cutter without payloads yet.
    pub fn new(limits: BatchLimits) -> Self {
        PackedCutter {
            limits,
            builder: PackedBuilder::new(),
            cut: 0,
        }
    }

    /// Checks the JSON text of a payload and adds it. Returns a batch that takes no further payload, if there is one now. On an
    /// error nothing is added.
    pub fn push(&mut self, payload: &str) -> Result<Option<PackedArray>, PackedError> {
        self.add(payload.len(), |builder| builder.push(payload))
    }

    /// Serialises a payload and adds it, as [`push`](PackedCutter::push).
    pub fn push_value<T: Serialize + ?Sized>(
        &mut self,
        payload: &T,
    ) -> Result<Option<PackedArray>, PackedError> {
        let text = self.builder.serialise(payload)?;
        self.add(text.len(), |builder| builder.push_serialised(&text))
    }

    /// Packs values.
    pub fn cut_values<T: Serialize>(
        limits: BatchLimits,
        payloads: impl IntoIterator<Item = T>,
    ) -> Result<Vec<PackedArray>, PackedError> {
        let mut cutter = PackedCutter::new(limits);
        let mut batches = Vec::new();
        for payload in payloads {
            batches.extend(cutter.push_value(&payload)?);
        }
        batches.extend(cutter.rest());
        Ok(batches)
    }

    /// The last batch, unless it is empty.
    pub fn rest(&mut self) -> Option<PackedArray> {
        (self.builder.count() > 0).then(|| self.take())
    }

    fn add(
        &mut self,
        bytes: usize,
        push: impl FnOnce(&mut PackedBuilder) -> Result<(), PackedError>,
    ) -> Result<Option<PackedArray>, PackedError> {
        let is_first = self.builder.count() == 0;
        let place = self.cut + self.builder.count();
        if is_first || self.builder.bytes() + bytes <= self.limits.bytes_max {
            push(&mut self.builder).map_err(|error| error.at(place))?;
            assert!(
                self.builder.count() <= self.limits.jobs_max,
                "batches have limits"
            );
            let is_full =
                self.builder.count() >= self.limits.jobs_max || self.builder.bytes() >= self.limits.bytes_max;
            return Ok(is_full.then(|| self.take()));
        }
        let full = mem::take(&mut self.builder);
        if let Err(error) = push(&mut self.builder) {
            self.builder = full;
            return Err(error.at(place));
        }
        self.cut += full.count();
        Ok(Some(full.finish()))
    }

    fn take(&mut self) -> PackedArray {
        self.cut += self.builder.count();
        mem::take(&mut self.builder).finish()
    }
}

/// A list of payloads of any length, packed into batches as large as they may be.
#[derive(Debug)]
pub struct CutList(pub Vec<PackedArray>);

impl<'de> Deserialize<'de> for CutList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(CuttingVisitor)
    }
}

struct CuttingVisitor;

impl<'de> Visitor<'de> for CuttingVisitor {
    type Value = CutList;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of payloads")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut payloads: A) -> Result<CutList, A::Error> {
        let mut cutter = PackedCutter::new(BatchLimits::FULL);
        let mut batches = Vec::new();
        while let Some(payload) = payloads.next_element::<&RawValue>()? {
            batches.extend(cutter.push(payload.get()).map_err(A::Error::custom)?);
        }
        batches.extend(cutter.rest());
        Ok(CutList(batches))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The batches of these payloads.
    fn cut(limits: BatchLimits, payloads: &[&str]) -> Vec<String> {
        let mut cutter = PackedCutter::new(limits);
        let mut batches = Vec::new();
        for payload in payloads {
            batches.extend(cutter.push(payload).unwrap());
        }
        batches.extend(cutter.rest());
        batches.iter().map(|batch| batch.as_str().to_owned()).collect()
    }

    #[test]
    fn a_batch_ends_at_its_limit_of_jobs() {
        let limits = BatchLimits {
            jobs_max: 2,
            ..BatchLimits::default()
        };
        assert_eq!(cut(limits, &["1", "2", "3"]), ["[1\n,2]", "[3]"]);
        assert_eq!(cut(limits, &["1", "2"]), ["[1\n,2]"]);
        assert!(cut(limits, &[]).is_empty());
    }

    #[test]
    fn a_payload_that_no_longer_fits_begins_a_batch() {
        let limits = BatchLimits {
            jobs_max: 9,
            bytes_max: 12,
        };
        let long = "\"xxxxxxxxxxxxxxxxxx\"";
        let batches = cut(limits, &["1", long, "2", "3", "44", "5"]);
        assert_eq!(batches, ["[1]", &format!("[{long}]"), "[2\n,3\n,44\n,5]"]);
    }

    #[test]
    fn a_list_of_any_length_is_cut() {
        let list: CutList = serde_json::from_str(&format!("[{}1]", "1,".repeat(10_000))).unwrap();
        let counts: Vec<u32> = list.0.iter().map(PackedArray::count).collect();
        assert_eq!(counts, [10_000, 1]);
    }

    #[test]
    fn a_payload_that_is_refused_loses_no_batch() {
        let limits = BatchLimits {
            jobs_max: 9,
            bytes_max: 4,
        };
        let mut cutter = PackedCutter::new(limits);
        assert_eq!(cutter.push("12").unwrap(), None);
        let error = cutter.push("wrong").unwrap_err();
        assert!(error.to_string().starts_with("item 1 is not JSON"), "{error}");
        assert_eq!(cutter.push_value(&34).unwrap().unwrap().as_str(), "[12]");
        assert_eq!(cutter.rest().unwrap().as_str(), "[34]");
    }
}
