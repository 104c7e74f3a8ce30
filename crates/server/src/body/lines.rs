//! Bodies of lines.

use utoipa::ToSchema;

/// The content type of one JSON a line.
pub const NDJSON_TYPE: &str = "application/x-ndjson";

/// JSON texts, one in each line. Described as bytes, which generated clients hand on as they are: they would read a text by its type,
/// and refuse this one.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code, reason = "it describes bodies")]
pub struct Lines(Vec<u8>);
