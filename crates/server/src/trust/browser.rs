//! Data that browsers send: a cookie with a token, and the origin of the page that makes the request.

use axum::http::{HeaderMap, header};

use crate::error::ApiError;

/// The name of the cookie with the token.
pub const COOKIE: &str = "gristmill_token";

/// The token in a request's cookie.
pub fn token_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    cookies
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find(|(name, value)| *name == COOKIE && !value.is_empty())
        .map(|(_, token)| token)
}

/// Reports whether the server's own page or the user made the request, according to the browser. `None` if the browser
/// does not say. A page cannot forge the header.
pub fn site_is_own(headers: &HeaderMap) -> Option<bool> {
    let site = headers.get("sec-fetch-site")?.to_str().ok()?;
    Some(["same-origin", "none"].contains(&site))
}

/// Refuses requests that a page of another origin sends with this browser's rights. Programs that are not browsers send
/// neither header. For a browser without Sec-Fetch-Site, the Origin decides. A proxy must pass the Origin on with its
/// Host.
pub fn check_same_origin(headers: &HeaderMap) -> Result<(), ApiError> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin_is_own = || {
        headers.get(header::ORIGIN).is_none_or(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            let own = authority.zip(host);
            own.is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
        })
    };
    if site_is_own(headers).unwrap_or_else(origin_is_own) {
        return Ok(());
    }
    Err(ApiError::forbidden(
        "a page of another origin sent the request",
        "use the server's own page, or send a token in the Authorization header",
    ))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        for (cookies, token) in [
            (vec![], None),
            (vec![("cookie", "a=b; gristmill_token=x.y.z; c=d")], Some("x.y.z")),
            (
                vec![("cookie", "a=b"), ("cookie", "gristmill_token=x")],
                Some("x"),
            ),
            (vec![("cookie", "other_gristmill_token=x")], None),
            (vec![("cookie", "gristmill_token=")], None),
        ] {
            assert_eq!(token_of(&headers(&cookies)), token, "{cookies:?}");
        }
    }

    #[test]
    fn only_the_servers_own_page_is_of_the_same_origin() {
        for (fields, allowed) in [
            (vec![("host", "a:1")], true),
            (vec![("host", "a:1"), ("origin", "https://a:1")], true),
            (vec![("host", "a:1"), ("origin", "https://a:2")], false),
            (vec![("host", "a:1"), ("origin", "null")], false),
            (vec![("host", "a:1"), ("sec-fetch-site", "none")], true),
            (vec![("host", "a:1"), ("sec-fetch-site", "same-site")], false),
            (vec![("origin", "https://a")], false),
            // A proxy that sets its own Host header.
            (
                vec![
                    ("host", "a:1"),
                    ("origin", "https://b"),
                    ("sec-fetch-site", "same-origin"),
                ],
                true,
            ),
            (
                vec![("origin", "https://a"), ("sec-fetch-site", "same-origin")],
                true,
            ),
        ] {
            assert_eq!(
                check_same_origin(&headers(&fields)).is_ok(),
                allowed,
                "{fields:?}"
            );
        }
    }
}
