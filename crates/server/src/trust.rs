//! Authentication: a token must be signed by a key of the trust folder, listed there, not expired and not revoked.
//!
//! The folder holds two files. Both are written as a whole and renamed into place, so that any number of servers can
//! read them at any time (from a shared or a copied folder):
//!
//! * `keys.json`: the signing keys, newest last. The newest key signs; all verify. Secret: only its owner can read it.
//! * `tokens.json`: every issued token without its signature, and the time of its revocation.
//!
//! A token that is not on the list is refused even if its signature is valid, so a lost list lets nobody in.

mod browser;
mod folder;
mod hmac;
mod token;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use gristmill_model::Clock;
use gristmill_operations::Access;
use gristmill_operations::access::QueueScope;

pub use browser::{COOKIE, check_same_origin};
pub use folder::{NewToken, TrustError, TrustFolder};
pub use token::TokenRecord;

use crate::caller::Caller;
use crate::error::ApiError;
use crate::limits::{CLOCK_SKEW_MS_MAX, TRUST_RELOADED_EVERY};
use folder::Contents;

/// Authenticates requests.
#[derive(Debug)]
pub enum Trust {
    /// Without a trust folder, the server listens on loopback only and gives every caller full access.
    Loopback,
    /// Tokens of a folder.
    Tokens(TokenTrust),
}

/// The tokens of a folder. The folder is read again when it changes.
pub struct TokenTrust {
    folder: TrustFolder,
    clock: Arc<dyn Clock>,
    reload_every: Duration,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    contents: Result<Arc<Contents>, String>,
    looked_at: Instant,
}

impl fmt::Debug for TokenTrust {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TokenTrust")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Trust {
    /// The tokens of a folder, which must be readable now.
    pub fn tokens(folder: PathBuf, clock: Arc<dyn Clock>) -> Result<Trust, TrustError> {
        Trust::reloading(folder, clock, TRUST_RELOADED_EVERY)
    }

    /// Like [`Trust::tokens`], with the interval of looking for changes. With zero, each request looks.
    pub fn reloading(
        folder: PathBuf,
        clock: Arc<dyn Clock>,
        reload_every: Duration,
    ) -> Result<Trust, TrustError> {
        let folder = TrustFolder::new(folder);
        let contents = Ok(Arc::new(folder.read()?));
        let loaded = Mutex::new(Loaded {
            contents,
            looked_at: Instant::now(),
        });
        Ok(Trust::Tokens(TokenTrust {
            folder,
            clock,
            reload_every,
            loaded,
        }))
    }

    /// The caller of a request with these headers.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        match self {
            Trust::Loopback => check_local(headers).map(|()| Caller::local()),
            Trust::Tokens(tokens) => tokens.authenticate(headers),
        }
    }

    /// Refuses a caller whose token has ended since [`Trust::authenticate`] accepted it. For streams and waiting requests.
    pub fn check_again(&self, caller: &Caller) -> Result<(), ApiError> {
        match self {
            Trust::Loopback => Ok(()),
            Trust::Tokens(tokens) => tokens.check_again(caller),
        }
    }

    /// Refuses requests of foreign pages to a server without tokens. With tokens, only a token or a cookie gives
    /// rights, and [`Trust::authenticate`] checks them.
    pub fn check_origin(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        match self {
            Trust::Loopback => check_local(headers),
            Trust::Tokens(_) => Ok(()),
        }
    }
}

impl TokenTrust {
    fn contents(&self) -> Result<Arc<Contents>, ApiError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.looked_at.elapsed() >= self.reload_every {
            loaded.looked_at = Instant::now();
            let stamp = self.folder.stamp();
            let known = loaded.contents.as_ref().ok().map(|contents| contents.stamp);
            if known.is_none() || known != Some(stamp) {
                loaded.contents = self
                    .folder
                    .read()
                    .map(Arc::new)
                    .map_err(|error| error.to_string());
            }
        }
        loaded.contents.clone().map_err(ApiError::Trust)
    }

    fn check_again(&self, caller: &Caller) -> Result<(), ApiError> {
        let contents = self.contents()?;
        let record = listed(&contents, &caller.token)?;
        if record.expires_at <= self.clock.now() {
            return Err(ApiError::Unauthorized("the token has expired".to_owned()));
        }
        Ok(())
    }

    fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        let refuse = |reason: &str| ApiError::Unauthorized(reason.to_owned());
        let text = match headers.get(header::AUTHORIZATION) {
            Some(header) => header
                .to_str()
                .ok()
                .and_then(|value| value.split_once(' '))
                .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
                .map(|(_, token)| token.trim())
                .ok_or_else(|| refuse("the Authorization header is not `Bearer TOKEN`"))?,
            None => {
                let token = browser::token_of(headers).ok_or_else(|| refuse("the request has no token"))?;
                // A browser adds a cookie to every request, so the page must belong to this server.
                browser::check_same_origin(headers)?;
                token
            }
        };
        let contents = self.contents()?;
        let claims = contents.verify(text).map_err(|reason| refuse(&reason))?;
        let now = self.clock.now();
        if claims.exp.saturating_mul(1_000) <= now.0 {
            return Err(refuse("the token has expired"));
        }
        if claims.iat.saturating_mul(1_000) > now.0.saturating_add(CLOCK_SKEW_MS_MAX) {
            return Err(refuse(
                "the token begins in the future: the clocks of its maker and of this server differ",
            ));
        }
        let record = listed(&contents, &claims.jti)?;
        // The list and the signed text must agree. A difference means that the list was changed.
        if record.subject != claims.sub
            || record.role != claims.role
            || record.queues != claims.queues
            || record.event != claims.event
        {
            return Err(refuse("the token and the server's list of tokens differ"));
        }
        Ok(Caller {
            access: Access {
                subject: claims.sub.as_str().into(),
                queues: QueueScope::new(claims.queues.iter().map(String::as_str)),
            },
            token: claims.jti.as_str().into(),
            role: Some(claims.role),
            event: claims.event.map(Arc::new),
        })
    }
}

/// The record of a token that is on the list and not revoked.
fn listed<'c>(contents: &'c Contents, jti: &str) -> Result<&'c TokenRecord, ApiError> {
    let refuse = |reason: &str| ApiError::Unauthorized(reason.to_owned());
    let record = contents
        .token(jti)
        .ok_or_else(|| refuse("the token is not on the server's list"))?;
    match record.revoked_at {
        None => Ok(record),
        Some(_) => Err(refuse("the token was revoked")),
    }
}

/// Without tokens, the server answers only programs on this machine. A web page in a browser sends its own origin, or a
/// foreign host name that resolves to this machine.
fn check_local(headers: &HeaderMap) -> Result<(), ApiError> {
    let names_this_machine = |authority: &str| {
        let host = authority.rsplit_once(':').map_or(authority, |(host, port)| {
            if port.bytes().all(|byte| byte.is_ascii_digit()) {
                host
            } else {
                authority
            }
        });
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost")
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = headers
        .get(header::ORIGIN)
        .map(|origin| origin.to_str().unwrap_or_default());
    let origin_host = origin.map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    // Another port of this machine is another origin. Anybody may have made its page.
    let origin_is_own = origin_host.is_none_or(|origin| match host {
        Some(host) => origin.eq_ignore_ascii_case(host),
        None => names_this_machine(origin),
    });
    // Pages of other sites may link to this server, but cannot load anything from it.
    let follows_link = headers
        .get("sec-fetch-mode")
        .is_some_and(|mode| mode == "navigate");
    let is_foreign = browser::site_is_own(headers) == Some(false) && !follows_link;
    if host.is_none_or(names_this_machine) && origin_is_own && !is_foreign {
        return Ok(());
    }
    Err(ApiError::forbidden(
        "a server without tokens answers only requests to its loopback address",
        "send them to 127.0.0.1, or start the server with --trust",
    ))
}

#[cfg(test)]
mod tests;
