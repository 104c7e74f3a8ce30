//! Digests: of sources, to tell an unchanged one; of chunks, to never send one twice.

use sha2::{Digest, Sha256};

/// The SHA-256 of some bytes, in hexadecimal.
pub fn of(bytes: &[u8]) -> String {
    of_parts(&[bytes])
}

/// The SHA-256 of some bytes.
pub fn bytes_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The SHA-256 of several parts, in hexadecimal. Each part's length counts, so that no two lists of parts are told
/// as one.
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

/// A SHA-256 of bytes that come piece by piece.
#[derive(Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// The next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest, in hexadecimal.
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
    fn tells_lists_of_parts_apart() {
        assert_eq!(&of(b"")[..8], "e3b0c442");
        assert_ne!(of_parts(&[b"ab", b"c"]), of_parts(&[b"a", b"bc"]));
    }
}
