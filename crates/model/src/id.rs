//! Ids. A job has no row of its own. Its id is the id of its batch, with its position in the batch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! integer_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

integer_id!(
    /// The id of a batch. The store counts upwards from 1 and never reuses an id.
    BatchId
);
integer_id!(
    /// The id of a lease. The store never reuses one, unless a power loss undid the lease without a trace.
    LeaseId
);
integer_id!(
    /// The id of a registered worker. The store never reuses one.
    WorkerId
);
integer_id!(
    /// The id of a run: one resumable stream of submitted batches.
    RunId
);

/// A job: its batch and its position in it (from 0), written `42:7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId {
    /// The batch that holds the job.
    pub batch: BatchId,
    /// The place in the batch, from 0.
    pub position: u32,
}

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.batch, self.position)
    }
}

/// The text is not a job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a job id: write the batch and the position, as in 42:7")]
pub struct ParseJobIdError(String);

impl FromStr for JobId {
    type Err = ParseJobIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        text.split_once(':')
            .filter(|(batch, position)| digits(batch) && digits(position))
            .and_then(|(batch, position)| {
                // Ranges end behind their last position, also in signed columns.
                let position = position
                    .parse::<u32>()
                    .ok()
                    .filter(|position| *position < i32::MAX.unsigned_abs())?;
                let batch = BatchId(batch.parse().ok()?);
                Some(JobId { batch, position })
            })
            .ok_or_else(|| ParseJobIdError(text.to_owned()))
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_read_back_as_written() {
        let id: JobId = "42:7".parse().unwrap();
        assert_eq!(
            id,
            JobId {
                batch: BatchId(42),
                position: 7
            }
        );
        assert_eq!(id.to_string(), "42:7");
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"42:7\"");
    }

    #[test]
    fn other_text_is_refused_with_the_form_named() {
        for text in [
            "",
            "42",
            ":",
            "42:",
            ":7",
            "-1:7",
            "42:+7",
            "42:7:1",
            "a:b",
            "99999999999999999999:0",
            "1:2147483647",
            "1:4294967295",
        ] {
            let error = text.parse::<JobId>().unwrap_err().to_string();
            assert!(error.contains("42:7"), "{error}");
        }
    }
}
