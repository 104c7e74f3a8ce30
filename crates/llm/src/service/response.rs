//! Reads the parts of an HTTP answer that are not the model's words: its error, its redirect, its limits.

use reqwest::header::HeaderMap;
use serde_json::Value;

use super::error::is_denial;
use super::limiter::RateHeaders;

/// Maximum bytes of one answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The status that an error in an answer of status 200 stands for, if it is one.
pub(super) fn error_status(text: &str) -> Option<u16> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let error = answer.get("error").filter(|error| !error.is_null())?;
    let named = [&error["code"], &error["status"], &answer["status"]];
    let status = named.into_iter().find_map(|code| {
        let code = code
            .as_u64()
            .or_else(|| code.as_str().and_then(|code| code.parse().ok()))?;
        u16::try_from(code).ok().filter(|code| (400..600).contains(code))
    });
    // Without a status it may pass, unless its words say otherwise.
    Some(status.unwrap_or(if is_denial(400, text) { 400 } else { 500 }))
}

/// The place to which an answer sends the caller. It is not followed: the key would go along.
pub(super) fn redirect(response: &reqwest::Response) -> Option<String> {
    if !response.status().is_redirection() {
        return None;
    }
    let location = response.headers().get("location").and_then(|to| to.to_str().ok());
    let to = location.and_then(|to| response.url().join(to).ok());
    let place = to
        .as_ref()
        .map_or("another place", |to| to.host_str().unwrap_or("another place"));
    let scheme = to.as_ref().map_or("", |to| to.scheme());
    Some(format!(
        "the service redirects to {place} ({scheme}), and is not followed, because the key would go along: if that is right, \
         name its address"
    ))
}

/// Reads the body, if it does not exceed the limit.
pub(super) async fn read_capped(mut response: reqwest::Response) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(without_address)? {
        bytes.extend_from_slice(&part);
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    String::from_utf8(bytes).map_err(|_| "its answer is not UTF-8".to_owned())
}

/// Writes the error without the address, which may contain secrets.
pub(super) fn without_address(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// Reads the headers `x-ratelimit-limit-tokens` and so on, or `anthropic-ratelimit-tokens-limit` and so on.
pub(super) fn rate_headers(headers: &HeaderMap, what: &str) -> RateHeaders {
    let number = |part: &str| {
        headers
            .get(format!("x-ratelimit-{part}-{what}"))
            .or_else(|| headers.get(format!("anthropic-ratelimit-{what}-{part}")))?
            .to_str()
            .ok()?
            .parse::<f64>()
            .ok()
    };
    RateHeaders {
        limit_per_minute: number("limit"),
        remaining: number("remaining"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_headers() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining-tokens", "77".parse().expect("a value"));
        assert_eq!(rate_headers(&headers, "tokens").remaining, Some(77.0));
        assert_eq!(rate_headers(&headers, "requests"), RateHeaders::default());
        headers.insert(
            "anthropic-ratelimit-requests-limit",
            "50".parse().expect("a value"),
        );
        assert_eq!(rate_headers(&headers, "requests").limit_per_minute, Some(50.0));
    }
}
