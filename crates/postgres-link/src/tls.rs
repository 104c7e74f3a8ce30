//! TLS, with the meaning that libpq gives to `sslmode`.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How much is asked of the server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verification {
    /// Nothing: `sslmode=prefer` (the default) and `require` protect from eavesdropping, not from an impostor.
    None,
    /// That it is the host's, signed by the machine's authorities, or by those in this file: `sslmode=verify-full`.
    Full {
        /// `sslrootcert`.
        authorities: Option<String>,
    },
}

/// Takes what tokio-postgres does not know out of a URL.
pub(crate) fn split(url: &str) -> Result<(String, Verification), String> {
    let Some((place, query)) = url.split_once('?').filter(|_| url.contains("://")) else {
        return Ok((url.to_owned(), Verification::None));
    };
    let mut authorities = None;
    let mut full = false;
    let mut rest = Vec::new();
    for part in query.split('&') {
        match part.split_once('=') {
            Some(("sslrootcert", file)) => authorities = Some(file.to_owned()),
            Some(("sslmode", "verify-full")) => {
                full = true;
                rest.push("sslmode=require");
            }
            Some(("sslmode", mode)) if !["disable", "prefer", "require"].contains(&mode) => {
                return Err(format!(
                    "sslmode is disable, prefer, require or verify-full, and not `{mode}`"
                ));
            }
            _ => rest.push(part),
        }
    }
    let verification = match (full, authorities) {
        (true, authorities) => Verification::Full { authorities },
        (false, Some(_)) => return Err("sslrootcert needs sslmode=verify-full".to_owned()),
        (false, None) => Verification::None,
    };
    let url = match rest.is_empty() {
        true => place.to_owned(),
        false => format!("{place}?{}", rest.join("&")),
    };
    Ok((url, verification))
}

/// What makes TLS connections.
pub(crate) fn connector(verification: &Verification) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    let config = match verification {
        Verification::None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider)))
            .with_no_client_auth(),
        Verification::Full { authorities } => builder
            .with_root_certificates(roots(authorities.as_deref())?)
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(file) => {
            let certificates = CertificateDer::pem_file_iter(file)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| format!("sslrootcert `{file}` cannot be read: {error}"))?;
            roots.add_parsable_certificates(certificates);
        }
    }
    match roots.is_empty() {
        true => Err(match file {
            Some(file) => format!("sslrootcert `{file}` has no certificate in it"),
            None => {
                "sslmode=verify-full needs authorities, and this machine has none: name a file by sslrootcert"
                    .to_owned()
            }
        }),
        false => Ok(roots),
    }
}

/// Takes any certificate whose key the server has.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_told_apart() {
        let full = |authorities: Option<&str>| Verification::Full {
            authorities: authorities.map(str::to_owned),
        };
        for (url, rest, verification) in [
            ("postgresql://h/d", "postgresql://h/d", Verification::None),
            (
                "postgresql://h/d?sslmode=require",
                "postgresql://h/d?sslmode=require",
                Verification::None,
            ),
            (
                "postgresql://h/d?sslmode=verify-full",
                "postgresql://h/d?sslmode=require",
                full(None),
            ),
            (
                "postgresql://h/d?user=u&sslmode=verify-full&sslrootcert=ca.pem",
                "postgresql://h/d?user=u&sslmode=require",
                full(Some("ca.pem")),
            ),
        ] {
            assert_eq!(split(url).unwrap(), (rest.to_owned(), verification));
        }
        split("postgresql://h/d?sslmode=verify-ca").unwrap_err();
        split("postgresql://h/d?sslrootcert=ca.pem").unwrap_err();
    }

    #[test]
    fn authorities_are_needed() {
        connector(&Verification::None).unwrap();
        let error = connector(&Verification::Full {
            authorities: Some("missing.pem".to_owned()),
        });
        assert!(error.err().unwrap().contains("missing.pem"));
    }
}
