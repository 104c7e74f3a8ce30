//! Signatures of requests by the scheme of Standard Webhooks: `v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.body`.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::WebhookError;
use crate::limits::SECRET_BYTES_MIN;

/// The prefix of a secret in base64.
const PREFIX: &str = "whsec_";

/// The secret that the sender and the recipients of webhooks share.
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WebhookSecret(…)")
    }
}

impl FromStr for WebhookSecret {
    type Err = WebhookError;

    /// Reads `whsec_` and base64. Any other text is used as it is.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let bytes = match text.strip_prefix(PREFIX) {
            Some(encoded) => BASE64_STANDARD
                .decode(encoded)
                .map_err(|_| WebhookError::Secret)?,
            None => text.as_bytes().to_vec(),
        };
        if bytes.len() >= SECRET_BYTES_MIN {
            Ok(WebhookSecret(bytes))
        } else {
            Err(WebhookError::Secret)
        }
    }
}

impl WebhookSecret {
    /// The value of the header `webhook-signature`. The timestamp is in seconds since 1970.
    pub(crate) fn sign(&self, id: &str, timestamp: i64, body: &str) -> Result<String, WebhookError> {
        assert!(
            self.0.len() >= SECRET_BYTES_MIN,
            "a secret that was accepted has at least {SECRET_BYTES_MIN} bytes"
        );
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).map_err(|_| WebhookError::Secret)?;
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        Ok(format!(
            "v1,{}",
            BASE64_STANDARD.encode(mac.finalize().into_bytes())
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values come from Python's `hmac` and `base64`.
    #[test]
    fn signatures_match_the_scheme() {
        let secret: WebhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let signed = secret.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signed.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(format!("{secret:?}"), "WebhookSecret(…)");
        for wrong in [
            "",
            "short",
            "whsec_",
            "whsec_c2hvcnQ=",
            "whsec_%%%%%%%%%%%%%%%%%%%%%%%%",
        ] {
            assert!(wrong.parse::<WebhookSecret>().is_err(), "{wrong}");
        }
    }
}
