//! Completion hooks: a job that the store submits when a batch ends.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::invalid::{InvalidBatch, check_name};
use crate::limits::HOOK_URL_BYTES_MAX;

/// The kind of the jobs that post a summary to a URL.
pub const WEBHOOK_KIND: &str = "http";

/// The environment variable with the secret that signs webhooks. Scripts do not get it.
pub const WEBHOOK_SECRET_VARIABLE: &str = "GRISTMILL_HOOK_SECRET";

/// The recipient of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HookTarget {
    /// A job of this kind, whose payload is the summary.
    Kind(String),
    /// A job of [`WEBHOOK_KIND`], which posts the summary to this URL.
    Url(String),
}

/// The jobs that the store submits when all jobs of a batch have ended, in the transaction that ends the last job. The
/// store submits at most one of them, and only when the batch ends for the first time. They are on the queue of the
/// batch, with default options.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Hooks {
    /// The name of the work in the summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The recipient of the summary if all jobs completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_success: Option<HookTarget>,
    /// The recipient of the summary if a job is dead, cancelled or expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<HookTarget>,
}

/// The text is neither a kind nor a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseHookTargetError {
    /// The name of a kind is invalid.
    #[error(transparent)]
    Kind(#[from] InvalidBatch),
    /// The URL has another scheme, no host, or too many bytes.
    #[error(
        "`{0}` is not a URL for a hook: give http:// or https:// with a host, without blanks and fragment, of at most \
         {HOOK_URL_BYTES_MAX} bytes"
    )]
    Url(String),
}

impl HookTarget {
    /// The kind of the job that gets the summary.
    pub fn kind(&self) -> &str {
        match self {
            HookTarget::Kind(kind) => kind,
            HookTarget::Url(_) => WEBHOOK_KIND,
        }
    }
}

impl Hooks {
    /// The recipient of the summary of an ended batch.
    pub fn target(&self, all_completed: bool) -> Option<&HookTarget> {
        if all_completed {
            self.on_success.as_ref()
        } else {
            self.on_failure.as_ref()
        }
    }

    /// All recipients.
    pub fn targets(&self) -> impl Iterator<Item = &HookTarget> {
        self.on_success.iter().chain(&self.on_failure)
    }

    /// Makes hooks with these recipients; `None` if there are none.
    pub fn of(on_success: Option<HookTarget>, on_failure: Option<HookTarget>) -> Option<Box<Hooks>> {
        (on_success.is_some() || on_failure.is_some()).then(|| {
            Box::new(Hooks {
                name: None,
                on_success,
                on_failure,
            })
        })
    }

    /// Checks the name and the recipients.
    pub fn check(&self) -> Result<(), InvalidBatch> {
        if let Some(name) = &self.name {
            check_name("hook's work", name)?;
        }
        if self.targets().next().is_none() {
            return Err(InvalidBatch::HooksMissing);
        }
        for target in self.targets() {
            if let Err(error) = target.to_string().parse::<HookTarget>() {
                return Err(InvalidBatch::Hook(error.to_string()));
            }
        }
        Ok(())
    }
}

impl fmt::Display for HookTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HookTarget::Kind(text) | HookTarget::Url(text) => formatter.pad(text),
        }
    }
}

impl From<HookTarget> for String {
    fn from(target: HookTarget) -> String {
        match target {
            HookTarget::Kind(text) | HookTarget::Url(text) => text,
        }
    }
}

impl TryFrom<String> for HookTarget {
    type Error = ParseHookTargetError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl FromStr for HookTarget {
    type Err = ParseHookTargetError;

    /// Reads a URL (a text with `://`), or the name of a kind.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((scheme, rest)) = text.split_once("://") else {
            check_name("kind", text)?;
            return Ok(HookTarget::Kind(text.to_owned()));
        };
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let is_clean = !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#');
        let is_url = matches!(scheme, "http" | "https") && !host.is_empty();
        if is_url && is_clean && text.len() <= HOOK_URL_BYTES_MAX {
            return Ok(HookTarget::Url(text.to_owned()));
        }
        Err(ParseHookTargetError::Url(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_distinguished_from_urls() {
        assert_eq!("tell".parse(), Ok(HookTarget::Kind("tell".to_owned())));
        let url: HookTarget = "https://hooks.example/a?b=c".parse().unwrap();
        assert_eq!(
            (url.kind(), url.to_string().as_str()),
            ("http", "https://hooks.example/a?b=c")
        );
        let long = format!("https://hooks.example/{}", "x".repeat(HOOK_URL_BYTES_MAX));
        for wrong in [
            "",
            "a\nb",
            "file:///etc/passwd",
            "https://",
            "https:///path",
            "https://a b",
            "http://a/#b",
            &long,
        ] {
            assert!(wrong.parse::<HookTarget>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn hooks_are_stored_as_texts() {
        let hooks = Hooks::of(None, Some("tell".parse().unwrap())).unwrap();
        let text = serde_json::to_string(&hooks).unwrap();
        assert_eq!(text, r#"{"on_failure":"tell"}"#);
        assert_eq!(serde_json::from_str::<Hooks>(&text).unwrap(), *hooks);
        assert!(Hooks::default().check().is_err(), "no recipient");
        assert_eq!(Hooks::of(None, None), None);
    }
}
