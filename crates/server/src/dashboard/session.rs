//! The session of a browser: a token in a cookie that the page's script cannot read.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::app::App;
use crate::caller::{Caller, Role};
use crate::error::ApiError;
use crate::limits::{SESSION_COOKIE_BYTES_MAX, SESSION_COOKIE_S};
use crate::trust::{COOKIE, Trust, check_same_origin};

/// The caller, as the page shows it.
#[derive(Debug, Serialize)]
struct SessionView<'a> {
    subject: &'a str,
    role: Option<Role>,
    queues: String,
    /// True if the server uses tokens, so that the user can sign out.
    tokens: bool,
    version: &'static str,
}

/// `GET /dashboard/session`: the caller, or status 401.
pub async fn show(State(app): State<App>, headers: HeaderMap) -> Result<Response, ApiError> {
    let caller = app.trust.authenticate(&headers)?;
    app.rate.take(&caller.token)?;
    Ok(view(&app, &caller).into_response())
}

/// `POST /dashboard/session`: keeps the token of the Authorization header in a cookie.
pub async fn sign_in(State(app): State<App>, headers: HeaderMap) -> Result<Response, ApiError> {
    check_same_origin(&headers)?;
    let caller = app.trust.authenticate(&headers)?;
    app.rate.take(&caller.token)?;
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .map(|(_, token)| token.trim());
    let mut response = view(&app, &caller).into_response();
    if let (Trust::Tokens(_), Some(token)) = (&app.trust, token) {
        let cookie = cookie(token, SESSION_COOKIE_S, is_secure(&headers))?;
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `DELETE /dashboard/session`: forgets the token. The token itself stays valid.
pub async fn sign_out(headers: HeaderMap) -> Result<Response, ApiError> {
    check_same_origin(&headers)?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    let cookie = cookie("", 0, is_secure(&headers))?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

fn view(app: &App, caller: &Caller) -> impl IntoResponse {
    let view = SessionView {
        subject: &caller.access.subject,
        role: caller.role,
        queues: caller.access.queues.to_string(),
        tokens: matches!(app.trust, Trust::Tokens(_)),
        version: env!("CARGO_PKG_VERSION"),
    };
    ([(header::CACHE_CONTROL, "no-store")], Json(view)).into_response()
}

fn cookie(token: &str, life_s: u32, secure: bool) -> Result<HeaderValue, ApiError> {
    let secure = if secure { "; Secure" } else { "" };
    let text = format!("{COOKIE}={token}; Path=/; Max-Age={life_s}; HttpOnly; SameSite=Strict{secure}");
    if text.len() > SESSION_COOKIE_BYTES_MAX {
        return Err(ApiError::TooLarge {
            what: "a token in a cookie".to_owned(),
            limit: format!("{SESSION_COOKIE_BYTES_MAX} bytes: use one with fewer queues, or with `*`"),
        });
    }
    HeaderValue::from_str(&text)
        .map_err(|_| ApiError::invalid("the token has bytes that no token has", "copy it again"))
}

/// Reports whether the page came by HTTPS. Browsers send the page's scheme in the Origin of each POST and DELETE, so
/// this also works behind a proxy.
fn is_secure(headers: &HeaderMap) -> bool {
    headers
        .get(header::ORIGIN)
        .is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}
