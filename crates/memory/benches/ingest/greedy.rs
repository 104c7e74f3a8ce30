//! The bound of an ingestion.

/// The end of a greedy schedule in seconds: each free slot takes the next latency at once, without any other cost. Nobody
/// can be sure to be faster without knowing the latencies beforehand.
pub fn end(latencies: &[f64], slots: usize) -> f64 {
    let mut slots = vec![0.0_f64; slots];
    for latency in latencies {
        if let Some(first) = slots.iter_mut().min_by(|left, right| left.total_cmp(right)) {
            *first += latency;
        }
    }
    slots.into_iter().fold(0.0, f64::max)
}
