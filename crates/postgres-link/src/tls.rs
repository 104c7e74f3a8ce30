//! TLS, with the meaning that libpq gives to `sslmode`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The requirements for the server's certificate.
#[derive(Debug)]
pub(crate) enum Verification {
    /// None: `sslmode=prefer` (the default) and `require` protect against eavesdropping, but not against an impostor.
    None,
    /// The certificate must be the host's, signed by the machine's authorities or by those in this file:
    /// `sslmode=verify-full`.
    Full {
        /// The file in `sslrootcert`.
        authorities: Option<PathBuf>,
    },
}

/// The requirements for TLS connections.
#[derive(Debug)]
pub(crate) struct Asked {
    pub verification: Verification,
    /// The files of this end's certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// True if TLS 1.3 is the oldest accepted version.
    pub newest_alone: bool,
    /// True if TLS starts without a request in PostgreSQL's protocol.
    pub direct: bool,
}

/// The maker of TLS connections.
pub(crate) fn connector(asked: &Asked) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions: &[&rustls::SupportedProtocolVersion] = if asked.newest_alone {
        &[&rustls::version::TLS13]
    } else {
        rustls::DEFAULT_VERSIONS
    };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    let builder = match &asked.verification {
        Verification::None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider))),
        Verification::Full { authorities } => builder.with_root_certificates(roots(authorities.as_deref())?),
    };
    let mut config = match &asked.certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates("sslcert", certificate)?;
            let unusable = |reason: &dyn std::fmt::Display| {
                format!("sslkey `{}` cannot be used: {reason}", key.display())
            };
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(&error))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| unusable(&error))?
        }
    };
    if asked.direct {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

fn certificates(setting: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("{setting} `{}` cannot be read: {error}", file.display()))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(match file {
        None => rustls_native_certs::load_native_certs().certs,
        Some(file) => certificates("sslrootcert", file)?,
    });
    if roots.is_empty() {
        Err(match file {
            Some(file) => format!("sslrootcert `{}` has no certificate in it", file.display()),
            None => {
                "sslmode=verify-full needs authorities, and this machine has none: name a file by sslrootcert"
                    .to_owned()
            }
        })
    } else {
        Ok(roots)
    }
}

/// Accepts any certificate whose key the server has.
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

    fn asked(verification: Verification) -> Asked {
        Asked {
            verification,
            certificate: None,
            newest_alone: false,
            direct: false,
        }
    }

    #[test]
    fn authorities_are_needed() {
        connector(&asked(Verification::None)).unwrap();
        let error = connector(&asked(Verification::Full {
            authorities: Some("missing.pem".into()),
        }));
        assert!(error.err().unwrap().contains("missing.pem"));
    }
}
