//! Digests: of sources, to recognise an unchanged one; of chunks, to send each only once.

use sha2::{Digest, Sha256};

/// Computes the SHA-256 of bytes, in hexadecimal.
pub fn of(bytes: &[u8]) -> String {
    of_parts(&[bytes])
}

/// Computes the SHA-256 of bytes.
pub fn bytes_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Computes the SHA-256 of several parts, in hexadecimal. The digest covers each part's length, so two different lists
/// with the same bytes have different digests.
pub fn of_parts(parts: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        if parts.len() > 1 {
            digest.update((part.len() as u64).to_le_bytes());
        }
        digest.update(part);
    }
    hexadecimal(&digest.finalize())
}

/// A SHA-256 of bytes that arrive in pieces.
#[derive(Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest, in hexadecimal.
    pub fn finish(self) -> String {
        hexadecimal(&self.0.finalize())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_with_the_same_bytes_have_different_digests() {
        assert_eq!(&of(b"")[..8], "e3b0c442");
        assert_ne!(of_parts(&[b"ab", b"c"]), of_parts(&[b"a", b"bc"]));
    }
}
