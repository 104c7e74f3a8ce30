//! The cost of attempts that failed, in the words of their errors.

use gristmill_model::JobError;

use crate::service::TokenUsage;

/// The words before the cost of a failure.
const PAID: &str = " (paid all the same";

/// The reason of a failure, with what it has cost all the same.
pub(super) fn paid(reason: &str, tokens: Option<TokenUsage>, cost: Option<f64>) -> String {
    let cost = cost.map_or_else(String::new, |cost| format!(", cost {cost:.6}"));
    match tokens {
        Some(tokens) => format!(
            "{reason}{PAID}: {} tokens in, {} out{cost})",
            tokens.prompt_tokens, tokens.completion_tokens
        ),
        None => format!("{reason}{PAID}, perhaps: the service does not count tokens)"),
    }
}

/// The failure for an equal request, which did not pay.
pub(super) fn unpaid(mut failed: JobError) -> JobError {
    if let Some((reason, _)) = failed.message.split_once(PAID) {
        failed.message = format!("{reason} (an equal request has the cost)");
    }
    failed
}
