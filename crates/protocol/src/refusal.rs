//! The body of a refusal.

use serde::{Deserialize, Serialize};

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// The kind of refusal, for programs: one stable word.
    pub code: String,
    /// The problem, and its place.
    pub error: String,
    /// The remedy.
    pub remedy: String,
}
