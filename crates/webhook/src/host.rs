//! The hosts that the operator allows.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;

use crate::error::WebhookError;

/// A host that may get webhooks: a scheme, a name or address, and a port. All three must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    scheme: String,
    host: String,
    port: u16,
}

impl AllowedHost {
    /// The host of a URL without user information. `None` if a request cannot be sent to it.
    fn of(url: &Url) -> Option<Self> {
        let is_plain = url.username().is_empty() && url.password().is_none();
        (is_plain && matches!(url.scheme(), "http" | "https")).then_some(())?;
        Some(AllowedHost {
            scheme: url.scheme().to_owned(),
            host: url.host_str()?.trim_end_matches('.').to_ascii_lowercase(),
            port: url.port_or_known_default()?,
        })
    }

    /// Reports whether the host of the URL is in the list.
    pub(crate) fn allow(allowed: &[AllowedHost], url: &Url) -> bool {
        AllowedHost::of(url).is_some_and(|host| allowed.contains(&host))
    }
}

impl FromStr for AllowedHost {
    type Err = WebhookError;

    /// Reads `hooks.example`, `hooks.example:8443` or `http://127.0.0.1:9000`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || WebhookError::Host(text.chars().take(80).collect());
        let url = if text.contains("://") {
            Url::parse(text)
        } else {
            Url::parse(&format!("https://{text}"))
        };
        let url = url.map_err(|_| refuse())?;
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() || text.ends_with('/') {
            return Err(refuse());
        }
        AllowedHost::of(&url).ok_or_else(refuse)
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}:{}", self.scheme, self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_hosts_are_allowed() {
        let allowed: Vec<AllowedHost> = [
            "hooks.example",
            "b.example:8443",
            "http://127.0.0.1:9000",
            "[::1]",
        ]
        .map(|text| text.parse().unwrap())
        .to_vec();
        for (url, is) in [
            ("https://hooks.example/a?b", true),
            ("https://HOOKS.example:443/", true),
            ("https://hooks.example./", true),
            ("http://hooks.example/", false),
            ("https://hooks.example:444/", false),
            ("https://hooks.example@evil.example/", false),
            ("https://user@hooks.example/", false),
            ("https://hooks.example.evil.example/", false),
            ("https://evil.example/hooks.example", false),
            ("https://b.example:8443/", true),
            ("http://127.0.0.1:9000/x", true),
            ("http://2130706433:9000/x", true),
            ("http://127.0.0.1/x", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("https://[::1]/", true),
            ("file:///etc/passwd", false),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(AllowedHost::allow(&allowed, &url), is, "{url}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_host_is_refused() {
        for wrong in [
            "",
            "a b",
            "ftp://a",
            "https://a/path",
            "a?b",
            "a/",
            "user@a",
            "a:99999",
        ] {
            let error = wrong.parse::<AllowedHost>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
