//! One ranking of messages from two: the ranking by texts and meaning, and the ranking by the match of the query.
//!
//! The text counts most. The match of the query adds a share of the best text's score. The share grows when the query
//! matches fewer messages.

use std::collections::HashSet;
use std::sync::Arc;

use crate::knowledge::RefOrdinal;
use crate::message::{MessageOrdinal, TimeRange};
use crate::recall::Scored;
use crate::recall::best::Best;
use crate::recall::text::TextScores;
use crate::recall::weights::Weights;
use crate::store::Columns;

/// The scores of texts, and the columns for which they were computed.
#[derive(Debug)]
pub(super) struct Fusion {
    pub(super) text: TextScores,
    pub(super) columns: Arc<Columns>,
}

/// The messages that may be returned.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// The refs that tag allowed messages; all messages are allowed if `None`.
    pub(super) tagged: Option<HashSet<u32>>,
    pub(super) time_range: Option<TimeRange>,
    /// The numbers of the allowed sources; all are allowed if `None`.
    pub(super) sources: Option<HashSet<u32>>,
    /// The messages of the allowed speakers; all are allowed if `None`.
    pub(super) spoken: Option<HashSet<u32>>,
    /// The digests of the allowed threads; all are allowed if `None`.
    pub(super) threads: Option<HashSet<u32>>,
}

impl Scope {
    /// Whether a message exists, and is of the named sources, speakers and threads.
    fn names(&self, columns: &Columns, message: u32) -> bool {
        let is_of = |allowed: &Option<HashSet<u32>>, number: u32| {
            allowed.as_ref().is_none_or(|allowed| allowed.contains(&number))
        };
        columns
            .source(message)
            .is_some_and(|source| is_of(&self.sources, source))
            && is_of(&self.spoken, message)
            && is_of(&self.threads, columns.thread(message))
    }
}

/// A ranking of messages that is being made.
#[derive(Debug)]
pub(super) struct Ranking {
    fusion: Arc<Fusion>,
    scope: Scope,
    scores: Vec<f64>,
    /// The score of which shares are taken.
    whole: f64,
}

impl Ranking {
    /// Begins with the ranking by texts.
    pub(super) fn new(fusion: Arc<Fusion>, scope: Scope) -> Ranking {
        let best = fusion.text.best();
        let mut scores = fusion.text.all().to_vec();
        assert!(
            scores.len() <= fusion.columns.message_end() as usize,
            "scores belong to messages of the columns"
        );
        scores.resize(fusion.columns.message_end() as usize, 0.0);
        Ranking {
            scores,
            whole: if best > 0.0 { best } else { 1.0 },
            fusion,
            scope,
        }
    }

    /// Adds the matches of the query: the best match adds a share of the best score.
    pub(super) fn add_matches(&mut self, matches: &[Scored<MessageOrdinal>], weights: &Weights) {
        let best = matches.iter().map(|found| found.score).fold(0.0, f64::max);
        if best <= 0.0 {
            return;
        }
        // A match of all messages says nothing, so its rarity is zero.
        let all = f64::from(self.fusion.columns.message_count().max(1));
        let rarity = ((all + 1.0) / (matches.len() as f64)).ln().max(0.0) / (all + 1.0).ln();
        for found in matches {
            let kind = self.fusion.columns.source_kind(found.value.0);
            self.add(
                found.value,
                weights.of(kind).matched * rarity * found.score / best,
            );
        }
    }

    /// Keeps the knowledge that is of the named sources, speakers and threads.
    pub(super) fn retain_named(&self, refs: &mut Vec<Scored<RefOrdinal>>) {
        let columns = &self.fusion.columns;
        refs.retain(|found| {
            let is_known = columns.kind(found.value.0).is_some();
            is_known && self.scope.names(columns, columns.message(found.value.0))
        });
    }

    fn add(&mut self, message: MessageOrdinal, share: f64) {
        // A message that was committed after the columns were read is left out.
        if let Some(score) = self.scores.get_mut(message.0 as usize) {
            *score += share * self.whole;
        }
    }

    /// Returns the best messages in scope. Messages with equal scores are in reading order.
    pub(super) fn best(&self, max: Option<usize>) -> Vec<Scored<MessageOrdinal>> {
        let columns = &self.fusion.columns;
        let tagged: Option<HashSet<u32>> = self.scope.tagged.as_ref().map(|refs| {
            let known = refs.iter().filter(|&&ordinal| columns.kind(ordinal).is_some());
            known.map(|&ordinal| columns.message(ordinal)).collect()
        });
        let is_in_scope = |message: u32| {
            let is_tagged = tagged.as_ref().is_none_or(|tagged| tagged.contains(&message));
            let range = self.scope.time_range;
            let is_timely =
                range.is_none_or(|range| columns.time(message).is_some_and(|at| range.contains(at)));
            is_tagged && is_timely && self.scope.names(columns, message)
        };
        let mut best = Best::new(max);
        for (message, &score) in (0_u32..).zip(&self.scores) {
            if score > 0.0 && best.admits(score) && is_in_scope(message) {
                best.add(Scored {
                    value: MessageOrdinal(message),
                    score,
                });
            }
        }
        best.into_sorted()
    }
}
