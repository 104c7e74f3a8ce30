//! The common parts of all submits: the trace of the request, and the stored jobs.

use axum::http::HeaderMap;
use gristmill_model::TraceParent;
use gristmill_operations::JobCutter;
use gristmill_operations::submit::submitted;
pub use gristmill_operations::submit::submitted::Submitted;

use crate::app::App;
use crate::error::ApiError;

/// The header that names the trace of a request.
const TRACEPARENT: &str = "traceparent";

/// The trace of a request, if it is sampled. A malformed header is ignored, as the specification requires.
pub fn traceparent(headers: &HeaderMap) -> Option<TraceParent> {
    let header = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let read = header.map(TraceParent::read).and_then(Result::ok);
    read.flatten()
}

/// Stores all jobs of a request, or none, and counts them.
pub async fn store(cutter: JobCutter, app: &App) -> Result<Submitted, ApiError> {
    let submitted = submitted::store(cutter, &app.engine).await?;
    app.metrics.submitted(submitted.jobs);
    Ok(submitted)
}
