//! Posting segments: ascending refs as LEB128 differences.

/// Appends the differences of `refs` to `previous` and to each other.
pub(super) fn encode(previous: u32, refs: &[u32], bytes: &mut Vec<u8>) {
    let mut previous = previous;
    for &ordinal in refs {
        let mut difference = ordinal - previous;
        while difference >= 0x80 {
            bytes.push(difference as u8 | 0x80);
            difference >>= 7;
        }
        bytes.push(difference as u8);
        previous = ordinal;
    }
}

/// Appends the refs of a segment: its first one, and those that `bytes` tells the differences of. `None` where the
/// bytes are no such segment; some refs may have been appended then.
pub(super) fn decode(first: u32, bytes: &[u8], refs: &mut Vec<u32>) -> Option<()> {
    refs.push(first);
    let (mut last, mut difference, mut shift) = (first, 0_u32, 0_u32);
    for &byte in bytes {
        let bits = u32::from(byte & 0x7f);
        if shift > 28 || (shift == 28 && bits > 0xf) {
            return None;
        }
        difference |= bits << shift;
        if byte & 0x80 != 0 {
            shift += 7;
            continue;
        }
        last = last.checked_add(difference)?;
        refs.push(last);
        (difference, shift) = (0, 0);
    }
    (shift == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use gristmill_model::{Rng, SplitMix64};

    use super::*;

    #[test]
    fn gives_back_what_was_encoded() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..500 {
            let mut refs: Vec<u32> = (0..1 + rng.below(40))
                .map(|_| {
                    let bits = rng.below(33);
                    rng.below(1 << bits) as u32
                })
                .collect();
            refs.sort_unstable();
            let mut bytes = Vec::new();
            encode(refs[0], &refs[1..], &mut bytes);
            let mut decoded = Vec::new();
            assert_eq!(decode(refs[0], &bytes, &mut decoded), Some(()));
            assert_eq!(decoded, refs);
        }
    }

    #[test]
    fn refuses_what_is_no_segment() {
        let mut refs = Vec::new();
        assert_eq!(decode(0, &[0x80], &mut refs), None, "cut in a number");
        assert_eq!(decode(u32::MAX, &[1], &mut refs), None, "past the last number");
        assert_eq!(decode(0, &[0xff; 6], &mut refs), None, "too long a number");
    }
}
