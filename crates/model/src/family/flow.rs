//! Flows: jobs that run step by step, and wait between their steps.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// When a step of a flow that waits runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wake {
    /// When all children that the job ever spawned have ended.
    #[default]
    All,
    /// When one more child has ended than the job has seen. Children that are together ([`ChildBatch::together`]) count once all
    /// of them have ended.
    ///
    /// [`ChildBatch::together`]: crate::spawn::ChildBatch::together
    Any,
    /// At once, from its beginning: the memo of this step replaces those of all steps before. Their children are no longer
    /// its own, and those that are open are cancelled. Its attempts count from 1 again.
    Anew,
}

impl Wake {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Wake::All => "all",
            Wake::Any => "any",
            Wake::Anew => "anew",
        }
    }
}

/// The text is not a [`Wake`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not say when a flow runs again: give all, any or anew")]
pub struct ParseWakeError(String);

impl FromStr for Wake {
    type Err = ParseWakeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Wake::All, Wake::Any, Wake::Anew]
            .into_iter()
            .find(|wake| wake.name() == text)
            .ok_or_else(|| ParseWakeError(text.to_owned()))
    }
}
