//! Bodies of lines.

use utoipa::ToSchema;

/// The content type of bodies with one JSON text in each line.
pub const NDJSON_TYPE: &str = "application/x-ndjson";

/// JSON texts, one in each line. The API describes them as bytes, which generated clients pass on unchanged. Such a
/// client would parse a text by its type, and refuse this one.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code, reason = "it describes bodies")]
pub struct Lines(Vec<u8>);
