//! HMAC-SHA-256 for `jsonwebtoken`. The crate's own backend also brings RSA and elliptic curves, which our tokens do not use.

use hmac::{Hmac, KeyInit, Mac};
use jsonwebtoken::Algorithm;
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Signer, Verifier};
use sha2::Sha256;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| Ok(Box::new(HmacSha256::new(*algorithm, key.as_bytes())?)),
    verifier_factory: |algorithm, key| Ok(Box::new(HmacSha256::new(*algorithm, key.try_get_as_bytes()?)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` sign and verify by this module. A second call changes nothing.
pub(super) fn install() {
    let _already_installed = PROVIDER.install_default();
}

struct HmacSha256(Hmac<Sha256>);

impl HmacSha256 {
    fn new(algorithm: Algorithm, secret: &[u8]) -> Result<Self> {
        if algorithm != Algorithm::HS256 {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        let keyed = Hmac::new_from_slice(secret).map_err(|_| ErrorKind::InvalidKeyFormat)?;
        Ok(HmacSha256(keyed))
    }
}

impl Signer<Vec<u8>> for HmacSha256 {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        Ok(self
            .0
            .clone()
            .chain_update(message)
            .finalize()
            .into_bytes()
            .to_vec())
    }
}

impl Verifier<Vec<u8>> for HmacSha256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let computed = self.0.clone().chain_update(message);
        computed.verify_slice(signature).map_err(Error::from_source)
    }
}

impl JwtSigner for HmacSha256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl JwtVerifier for HmacSha256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::{DecodingKey, EncodingKey};

    use super::*;

    /// The example of RFC 7515, appendix A.1.
    #[test]
    fn a_token_is_signed_as_in_the_rfc() {
        install();
        let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let secret = URL_SAFE_NO_PAD.decode(secret).unwrap();
        let key = EncodingKey::from_secret(&secret);
        let message = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
                       eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
        assert_eq!(signature, "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");

        let key = DecodingKey::from_secret(&secret);
        let verify = |signature: &str, algorithm| {
            jsonwebtoken::crypto::verify(signature, message.as_bytes(), &key, algorithm)
        };
        assert!(verify(&signature, Algorithm::HS256).unwrap());
        assert!(!verify(&signature.replace('d', "e"), Algorithm::HS256).unwrap());
        assert!(verify(&signature, Algorithm::HS512).is_err());
    }
}
