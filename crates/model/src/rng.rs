//! Randomness is a parameter: code that needs it takes an [`Rng`].

/// A source of random numbers. Not for secrets.
pub trait Rng: Send {
    /// The next 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// A number below `bound`, or 0 if `bound` is 0. Uses multiplication (Lemire 2019), whose bias is below 2^-32 for
    /// the delays that it serves.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough for jitter and tests.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Makes a generator that gives the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }
}

impl Rng for SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_the_bound_and_reach_it() {
        let mut rng = SplitMix64::new(7);
        let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| rng.below(10)).collect();
        assert_eq!(drawn, (0..10).collect());
        assert_eq!(rng.below(0), 0);
    }
}
