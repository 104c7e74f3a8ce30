//! The progress of an ingestion, for people.

use std::sync::Arc;
use std::time::Duration;

use gristmill_memory::pipeline::Progress as IngestProgress;

use super::shown::plain;
use crate::output::progress::{Shown, show_rate};
use crate::span::{show_count, show_number_of, show_seconds};

/// Characters of a service's reason for a pause that are shown.
const PAUSE_REASON_CHARACTERS: usize = 80;

/// The prices of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// The price of input tokens.
    pub input: f64,
    /// The price of output tokens.
    pub output: f64,
}

impl Prices {
    /// The cost of the calls so far.
    pub fn cost(&self, progress: &IngestProgress) -> f64 {
        let usage = &progress.usage;
        (usage.input_tokens as f64 * self.input + usage.output_tokens as f64 * self.output) / 1e6
    }
}

/// The state of an ingestion at one time.
#[derive(Debug, Clone, Default)]
pub struct IngestSnapshot {
    /// The committed progress.
    pub progress: IngestProgress,
    /// True if vectors are computed, which continues after the last message.
    pub embeds: bool,
    /// The prices of tokens.
    pub prices: Option<Prices>,
    /// The pause of the model service: for how long, and its reason.
    pub pause: Option<(Duration, Arc<str>)>,
}

impl Shown for IngestSnapshot {
    fn done(&self) -> u64 {
        self.progress.chunks
    }

    fn total(&self) -> Option<u64> {
        (self.progress.chunks_total > 0).then_some(self.progress.chunks_total)
    }

    fn describe(&self, rate: Option<f64>) -> String {
        let progress = &self.progress;
        let mut parts = vec![format!(
            "{} of {} chunks",
            show_count(progress.chunks),
            show_count(progress.chunks_total)
        )];
        if progress.failures > 0 {
            parts.push(format!("{} failed", show_count(progress.failures)));
        }
        if let Some(rate) = rate {
            parts.push(format!("{} chunks/s", show_rate(rate)));
        }
        parts.extend(costs(progress, self.prices));
        let left = progress.chunks_total.saturating_sub(progress.chunks);
        match rate.filter(|rate| *rate > 0.0) {
            Some(rate) if left > 0 => {
                let seconds = left as f64 / rate;
                parts.push(format!("{} left", show_seconds(seconds.ceil() as u64)));
            }
            _ if left == 0 && progress.chunks > 0 && self.embeds => parts.push("making vectors".to_owned()),
            _ => {}
        }
        if let Some((left, reason)) = &self.pause {
            let reason: String = plain(reason).chars().take(PAUSE_REASON_CHARACTERS).collect();
            parts.push(format!(
                "the model service pauses for {}: {reason}",
                show_seconds(left.as_secs() + 1)
            ));
        }
        parts.join(", ")
    }
}

/// The cost of the model calls so far, as text.
pub fn costs(progress: &IngestProgress, prices: Option<Prices>) -> Vec<String> {
    let usage = &progress.usage;
    let mut parts = Vec::new();
    if usage.calls > 0 || usage.retries > 0 {
        parts.push(show_number_of(u64::from(usage.calls), "model call"));
        parts.push(show_number_of(usage.input_tokens + usage.output_tokens, "token"));
    }
    if usage.retries > 0 {
        parts.push(format!("{} retries", show_count(u64::from(usage.retries))));
    }
    if let Some(prices) = prices {
        parts.push(format!("cost {:.4} so far", prices.cost(progress)));
    }
    parts
}

#[cfg(test)]
mod tests {
    use gristmill_memory::extract::Usage;

    use super::*;

    #[test]
    fn a_line_shows_the_progress_and_the_cost() {
        let mut now = IngestSnapshot {
            progress: IngestProgress {
                chunks: 1_200,
                chunks_total: 5_000,
                ..IngestProgress::default()
            },
            embeds: true,
            prices: None,
            pause: None,
        };
        assert_eq!(now.describe(None), "1,200 of 5,000 chunks");
        now.progress.failures = 3;
        now.progress.usage = Usage {
            calls: 1_210,
            retries: 7,
            input_tokens: 2_000_000,
            output_tokens: 500_000,
        };
        now.prices = Some(Prices {
            input: 2.5,
            output: 10.0,
        });
        assert_eq!(
            now.describe(Some(100.0)),
            "1,200 of 5,000 chunks, 3 failed, 100 chunks/s, 1,210 model calls, 2,500,000 tokens, 7 retries, cost 10.0000 \
             so far, 38s left"
        );
        now.progress.chunks = 5_000;
        assert!(now.describe(Some(0.0)).ends_with("making vectors"));
        now.pause = Some((Duration::from_millis(11_500), "status 429: too many".into()));
        assert!(
            now.describe(None)
                .ends_with("the model service pauses for 12s: status 429: too many")
        );
    }
}
