//! An inverted file of vectors. Each vector is in the list of its nearest centre, and a search reads the lists of the
//! centres nearest to the question (Jégou, Douze and Schmid, "Product Quantization for Nearest Neighbor Search", 2011,
//! without the product). A list holds each number in one byte. The exact vectors are compared again afterwards.

use std::collections::HashMap;

use gristmill_model::Rng;
use ndarray::{Array2, ArrayView1, Axis};

use crate::embed::Vector;
use crate::embed::vector::Nearest;
use crate::limits::{LIST_SAMPLE_MAX, LISTS_MAX};
use crate::message::MessageOrdinal;

/// Rounds in which each centre moves to the middle of its list. Later rounds would move them little.
const ROUNDS: usize = 8;

/// Vectors that are compared with all centres in one product.
const VECTORS_AT_ONCE: usize = 1_024;

/// A search reads this share of the lists, and at least [`PROBED_MIN`].
const PROBED_SHARE: f64 = 0.125;
const PROBED_MIN: usize = 16;

/// The largest byte: it stands for the largest number of a vector.
const BYTE_MAX: f32 = 127.0;

/// Bytes of an entry before its numbers: its message, and the factor of its bytes.
const ENTRY_HEAD_BYTES: usize = 8;

/// The centres of lists, one in each row.
#[derive(Debug, Clone, PartialEq)]
pub struct Centres(Array2<f32>);

impl Centres {
    /// The number of lists for this many vectors.
    pub fn count_for(vectors: u64) -> usize {
        ((vectors as f64).sqrt() as usize).clamp(1, LISTS_MAX)
    }

    /// The number of vectors in the sample from which this many centres are computed.
    pub fn sample_for(count: usize) -> usize {
        (count * 64).min(LIST_SAMPLE_MAX)
    }

    /// Computes the centres for vectors like those in the sample, by spherical k-means. The sample is not empty, and
    /// all its vectors have the same number of dimensions.
    pub fn of(sample: &[Vector], count: usize, rng: &mut impl Rng) -> Centres {
        assert!(!sample.is_empty(), "centres come from a sample");
        let dimensions = sample.first().map_or(0, Vector::dimensions);
        debug_assert!(sample.iter().all(|vector| vector.dimensions() == dimensions));
        let mut rows = Array2::<f32>::zeros((sample.len(), dimensions));
        for (vector, mut row) in sample.iter().zip(rows.rows_mut()) {
            row.assign(&ArrayView1::from(vector.numbers()));
        }
        let mut any = || rng.below(sample.len() as u64) as usize;
        let mut centres = Array2::<f32>::zeros((count.min(sample.len()), dimensions));
        for mut centre in centres.rows_mut() {
            centre.assign(&rows.row(any()));
        }
        let mut centres = Centres(centres);
        for _ in 0..ROUNDS {
            let lists = centres.nearest_to_rows(&rows);
            let mut sums = Array2::<f32>::zeros(centres.0.dim());
            for (&list, row) in lists.iter().zip(rows.rows()) {
                let mut sum = sums.row_mut(list as usize);
                sum += &row;
            }
            for mut sum in sums.rows_mut() {
                let length = sum.dot(&sum).sqrt();
                if length > 0.0 {
                    sum /= length;
                } else {
                    // A list without vectors gets another vector as its centre.
                    sum.assign(&rows.row(any()));
                }
            }
            centres = Centres(sums);
        }
        centres
    }

    /// Finds the list of each vector.
    pub fn lists_of(&self, vectors: &[Vector]) -> Vec<u32> {
        let mut lists = Vec::with_capacity(vectors.len());
        for some in vectors.chunks(VECTORS_AT_ONCE) {
            let mut rows = Array2::<f32>::zeros((some.len(), self.0.ncols()));
            for (vector, mut row) in some.iter().zip(rows.rows_mut()) {
                row.assign(&ArrayView1::from(vector.numbers()));
            }
            lists.extend(self.nearest_to_rows(&rows));
        }
        assert_eq!(lists.len(), vectors.len(), "each vector has one list");
        lists
    }

    fn nearest_to_rows(&self, rows: &Array2<f32>) -> Vec<u32> {
        let mut lists = Vec::with_capacity(rows.nrows());
        for some in rows.axis_chunks_iter(Axis(0), VECTORS_AT_ONCE) {
            let cosines = some.dot(&self.0.t());
            for cosines in cosines.rows() {
                let nearest = cosines
                    .iter()
                    .enumerate()
                    .max_by(|left, right| left.1.total_cmp(right.1));
                lists.push(nearest.map_or(0, |(list, _)| list as u32));
            }
        }
        assert_eq!(lists.len(), rows.nrows(), "each vector has a list");
        lists
    }

    /// Chooses the lists that a search for a vector reads, nearest first.
    pub fn probed(&self, vector: &Vector) -> Vec<u32> {
        let cosines = self.0.dot(&ArrayView1::from(vector.numbers()));
        let mut lists: Vec<(f32, u32)> = cosines.iter().copied().zip(0..).collect();
        lists.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        let probed = ((self.0.nrows() as f64 * PROBED_SHARE).ceil() as usize).max(PROBED_MIN);
        lists.into_iter().take(probed).map(|(_, list)| list).collect()
    }

    /// Writes the centres as they are stored: 32-bit floats, little endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Reads stored centres; `None` if the bytes are not rows of this many dimensions.
    pub fn from_bytes(bytes: &[u8], dimensions: usize) -> Option<Centres> {
        let (numbers, rest) = bytes.as_chunks::<4>();
        if dimensions == 0 || !rest.is_empty() || !numbers.len().is_multiple_of(dimensions) {
            return None;
        }
        let numbers = numbers.iter().map(|&number| f32::from_le_bytes(number)).collect();
        let shape = (bytes.len() / 4 / dimensions, dimensions);
        Array2::from_shape_vec(shape, numbers).ok().map(Centres)
    }
}

/// Adds a vector to a list. All vectors of a list have the same number of dimensions.
pub fn push_entry(list: &mut Vec<u8>, message: MessageOrdinal, vector: &Vector) {
    let (scale, bytes) = in_bytes(vector);
    list.extend(message.0.to_le_bytes());
    list.extend(scale.to_le_bytes());
    list.extend(bytes.into_iter().map(|byte| byte as u8));
    assert!(
        list.len().is_multiple_of(ENTRY_HEAD_BYTES + vector.dimensions()),
        "a list holds whole entries"
    );
}

/// Converts the numbers of a vector to bytes, and returns the factor that converts them back.
fn in_bytes(vector: &Vector) -> (f32, Vec<i8>) {
    let most = vector
        .numbers()
        .iter()
        .fold(0.0_f32, |most, number| most.max(number.abs()));
    let scale = if most > 0.0 { most / BYTE_MAX } else { 1.0 };
    let bytes = vector
        .numbers()
        .iter()
        .map(|number| (number / scale).round() as i8);
    (scale, bytes.collect())
}

/// Searches lists for the messages nearest to a vector. Returns them with the approximate cosines of their nearest vectors.
pub fn look_through(
    lists: &[Vec<u8>],
    vector: &Vector,
    max: usize,
    cosine_min: f64,
) -> Vec<(MessageOrdinal, f64)> {
    let (scale, bytes) = in_bytes(vector);
    let mut best: HashMap<u32, f64> = HashMap::new();
    for entry in lists
        .iter()
        .flat_map(|list| list.chunks_exact(ENTRY_HEAD_BYTES + bytes.len()))
    {
        let [m0, m1, m2, m3, s0, s1, s2, s3, numbers @ ..] = entry else {
            continue;
        };
        let products = numbers
            .iter()
            .zip(&bytes)
            .map(|(&theirs, &ours)| i32::from(theirs as i8) * i32::from(ours));
        let product: i32 = products.sum();
        let cosine = f64::from(product as f32 * scale * f32::from_le_bytes([*s0, *s1, *s2, *s3]));
        if cosine >= cosine_min {
            let known = best
                .entry(u32::from_le_bytes([*m0, *m1, *m2, *m3]))
                .or_insert(cosine);
            *known = known.max(cosine);
        }
    }
    let mut nearest = Nearest::new(max, cosine_min);
    for (message, cosine) in best {
        nearest.look(MessageOrdinal(message), cosine);
    }
    nearest.into_best()
}
