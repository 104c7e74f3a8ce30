//! The trace of a submit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A sampled span of the submitter, as the header `traceparent` names it (<https://www.w3.org/TR/trace-context/>).
/// Spans of the jobs are its children. A context that is not sampled is dropped, because no span is recorded for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceParent {
    /// The id of the trace; not 0.
    pub trace_id: u128,
    /// The id of the submitter's span; not 0.
    pub span_id: u64,
}

/// The text is not a trace context.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a trace context: give 00-TRACE-SPAN-FLAGS with 32, 16 and 2 lower-case hexadecimal digits, as in \
     00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)]
pub struct ParseTraceParentError(String);

/// The flag of a sampled trace.
const SAMPLED: u8 = 1;

/// Characters of a malformed text that an error shows.
const SHOWN_CHARACTERS_MAX: usize = 80;

impl TraceParent {
    /// Reads a trace context; `None` if its trace is not sampled.
    ///
    /// # Errors
    ///
    /// The text is not a trace context.
    pub fn read(text: &str) -> Result<Option<TraceParent>, ParseTraceParentError> {
        let refused = || ParseTraceParentError(text.chars().take(SHOWN_CHARACTERS_MAX).collect());
        let fields = || {
            let mut fields = text.splitn(5, '-');
            let version = digits(fields.next()?, 2)? as u8;
            let trace_id = digits(fields.next()?, 32)?;
            let span_id = digits(fields.next()?, 16)? as u64;
            let flags = digits(fields.next()?, 2)? as u8;
            // Later versions may have further fields.
            let is_known = version != 0xff && (version > 0 || fields.next().is_none());
            (is_known && trace_id != 0 && span_id != 0).then_some((TraceParent { trace_id, span_id }, flags))
        };
        let (parent, flags) = fields().ok_or_else(refused)?;
        Ok((flags & SAMPLED != 0).then_some(parent))
    }
}

/// Reads exactly `count` lower-case hexadecimal digits.
fn digits(text: &str, count: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let are_digits = text.len() == count && text.bytes().all(is_digit);
    are_digits.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for TraceParent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{:032x}-{:016x}-01", self.trace_id, self.span_id)
    }
}

impl From<TraceParent> for String {
    fn from(parent: TraceParent) -> String {
        parent.to_string()
    }
}

impl FromStr for TraceParent {
    type Err = ParseTraceParentError;

    /// Reads the context of a sampled trace.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        TraceParent::read(text)?.ok_or_else(|| ParseTraceParentError(text.to_owned()))
    }
}

impl TryFrom<String> for TraceParent {
    type Error = ParseTraceParentError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn sampled_contexts_read_back_as_written() {
        let parent: TraceParent = TEXT.parse().unwrap();
        assert_eq!(parent.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(parent.span_id, 0xb7ad_6b71_6920_3331);
        assert_eq!(parent.to_string(), TEXT);
        let json = serde_json::to_string(&parent).unwrap();
        assert_eq!(serde_json::from_str::<TraceParent>(&json).unwrap(), parent);
        let later = format!("01{}-more", &TEXT[2..]);
        assert_eq!(TraceParent::read(&later), Ok(Some(parent)));
    }

    #[test]
    fn contexts_that_are_not_sampled_are_dropped() {
        let unsampled = TEXT.replace("-01", "-00");
        assert_eq!(TraceParent::read(&unsampled), Ok(None));
        assert!(unsampled.parse::<TraceParent>().is_err());
    }

    #[test]
    fn other_texts_are_refused() {
        let zero = "0".repeat(32);
        for wrong in [
            "",
            "00",
            &TEXT.to_uppercase(),
            &TEXT[..TEXT.len() - 1],
            &format!("{TEXT}-more"),
            &format!("ff{}", &TEXT[2..]),
            &format!("00-{zero}-b7ad6b7169203331-01"),
            &format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", &zero[..16]),
            &TEXT.replace('b', "+"),
        ] {
            assert!(TraceParent::read(wrong).is_err(), "{wrong}");
        }
    }
}
