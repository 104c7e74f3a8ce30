//! Vectors of length 1.

/// A direction in the space of an embedding model: 32-bit floats of length 1, or all zeros for a text without meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector(Vec<f32>);

impl Vector {
    /// Makes the direction of these numbers. Infinities and NaN count as 0.
    pub fn new(mut numbers: Vec<f32>) -> Vector {
        for number in &mut numbers {
            if !number.is_finite() {
                *number = 0.0;
            }
        }
        let length = numbers
            .iter()
            .map(|&number| f64::from(number) * f64::from(number))
            .sum::<f64>()
            .sqrt();
        if length > 0.0 {
            for number in &mut numbers {
                *number = (f64::from(*number) / length) as f32;
            }
        }
        debug_assert!(
            numbers.iter().all(|number| *number == 0.0)
                || (numbers.iter().map(|number| number * number).sum::<f32>() - 1.0).abs() < 1e-2,
            "a direction has length 1, or is zero"
        );
        Vector(numbers)
    }

    /// Number of dimensions.
    pub fn dimensions(&self) -> usize {
        self.0.len()
    }

    /// The numbers, one for each dimension.
    pub fn numbers(&self) -> &[f32] {
        &self.0
    }

    /// Writes the vector as it is stored: 32-bit floats, little endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Reads a stored vector.
    pub fn from_bytes(bytes: &[u8]) -> Vector {
        let (numbers, _) = bytes.as_chunks::<4>();
        Vector(numbers.iter().map(|&number| f32::from_le_bytes(number)).collect())
    }

    /// Computes the cosine of the angle to a stored vector, from -1 to 1: 1 is the same direction. `None` if the stored
    /// vector has another number of dimensions.
    pub fn cosine_to_bytes(&self, bytes: &[u8]) -> Option<f64> {
        if bytes.len() != self.0.len() * 4 {
            return None;
        }
        // The compiler keeps eight partial sums in one register.
        let mut sums = [0.0_f32; 8];
        let mut ours = self.0.chunks_exact(8);
        let mut theirs = bytes.chunks_exact(32);
        for (ours, theirs) in ours.by_ref().zip(theirs.by_ref()) {
            for (lane, sum) in sums.iter_mut().enumerate() {
                let at = lane * 4;
                let their = [theirs[at], theirs[at + 1], theirs[at + 2], theirs[at + 3]];
                *sum += ours[lane] * f32::from_le_bytes(their);
            }
        }
        let mut total: f32 = sums.iter().sum();
        for (our, their) in ours.remainder().iter().zip(theirs.remainder().chunks_exact(4)) {
            total += our * f32::from_le_bytes([their[0], their[1], their[2], their[3]]);
        }
        debug_assert!(!total.is_nan(), "directions have numbers");
        Some(f64::from(total))
    }
}

/// Keeps the nearest of many candidates, best first.
#[derive(Debug, Clone)]
pub struct Nearest<K> {
    found: Vec<(f64, K)>,
    max: usize,
    cosine_min: f64,
}

impl<K: Ord + Copy> Nearest<K> {
    /// Keeps at most `max` candidates with at least this cosine.
    pub fn new(max: usize, cosine_min: f64) -> Nearest<K> {
        Nearest {
            found: Vec::new(),
            max,
            cosine_min,
        }
    }

    /// Considers a candidate.
    pub fn look(&mut self, key: K, cosine: f64) {
        if cosine < self.cosine_min || self.max == 0 {
            return;
        }
        self.found.push((cosine, key));
        // Sorting from time to time costs less than keeping a heap in order.
        if self.found.len() >= self.max.saturating_mul(4) + 64 {
            self.cut();
            if let Some((worst, _)) = self.found.last() {
                self.cosine_min = self.cosine_min.max(*worst);
            }
        }
    }

    /// Returns the kept candidates with their cosines, best first.
    pub fn into_best(mut self) -> Vec<(K, f64)> {
        assert!(self.found.len() < self.max.saturating_mul(4) + 64, "few are kept");
        self.cut();
        self.found
            .into_iter()
            .map(|(cosine, key)| (key, cosine))
            .collect()
    }

    fn cut(&mut self) {
        self.found
            .sort_by(|left, right| right.0.total_cmp(&left.0).then_with(|| left.1.cmp(&right.1)));
        self.found.truncate(self.max);
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::{Rng, SplitMix64};

    use super::*;

    #[test]
    fn has_length_1() {
        let vector = Vector::new(vec![3.0, 4.0]);
        assert_eq!(vector.numbers(), [0.6, 0.8]);
        assert_eq!(vector.cosine_to_bytes(&vector.to_bytes()), Some(1.0));
        assert_eq!(vector.cosine_to_bytes(&[0; 12]), None);
        assert_eq!(Vector::new(vec![0.0, f32::NAN]).numbers(), [0.0, 0.0]);
    }

    #[test]
    fn cosines_are_right_for_any_number_of_dimensions() {
        let mut rng = SplitMix64::new(3);
        for dimensions in 0..40 {
            let mut numbers = || -> Vec<f32> {
                (0..dimensions)
                    .map(|_| rng.below(2_000) as f32 / 1_000.0 - 1.0)
                    .collect()
            };
            let (left, right) = (Vector::new(numbers()), Vector::new(numbers()));
            let expected: f64 = left
                .numbers()
                .iter()
                .zip(right.numbers())
                .map(|(left, right)| f64::from(left * right))
                .sum();
            let found = left
                .cosine_to_bytes(&right.to_bytes())
                .expect("the same dimensions");
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }

    #[test]
    fn keeps_the_nearest() {
        let mut rng = SplitMix64::new(4);
        let cosines: Vec<f64> = (0..1_000).map(|_| rng.below(1_000) as f64 / 1_000.0).collect();
        let mut nearest = Nearest::new(7, 0.5);
        for (key, &cosine) in cosines.iter().enumerate() {
            nearest.look(key, cosine);
        }
        let mut expected: Vec<(usize, f64)> = cosines.iter().copied().enumerate().collect();
        expected.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        expected.truncate(7);
        assert_eq!(nearest.into_best(), expected);
    }
}
