//! From matched refs to ranked refs and messages.

use crate::knowledge::{KnowledgeKind, RefOrdinal};
use crate::message::MessageOrdinal;
use crate::recall::matches::{Matches, smooth};
use crate::recall::text::TextScores;
use crate::recall::{Found, Scored};
use crate::store::Columns;

/// Ranks matched refs by kind, and the messages that they came from, and keeps the best.
///
/// A message scores by its best ref. It gains a hit with every kind of knowledge, in the order entity, action, topic,
/// tag, whose best ref beats those of the kinds before. Messages with a hit for every kind that matched at all, where
/// there are any, are the only ones that count.
pub fn rank(
    matches: Matches,
    columns: &Columns,
    refs_max: Option<usize>,
    messages_max: Option<usize>,
) -> Found {
    let mut by_kind = by_kind(&matches, columns);
    let mut messages = rank_messages(&by_kind, columns);
    keep_best(&mut messages, messages_max);
    for (_, refs) in &mut by_kind {
        keep_best(refs, refs_max);
    }
    Found {
        refs: by_kind,
        messages,
    }
}

/// As [`rank`], but the text of the message that a ref came from counts as much as its match, and all messages that
/// matched are returned, in no order.
pub fn rank_with_texts(
    matches: Matches,
    columns: &Columns,
    texts: &TextScores,
    refs_max: Option<usize>,
) -> Found {
    let mut by_kind = by_kind(&matches, columns);
    let messages = rank_messages(&by_kind, columns);
    let all = by_kind.iter().flat_map(|(_, refs)| refs);
    let best = all.map(|found| found.score).fold(0.0, f64::max);
    for (_, refs) in &mut by_kind {
        for found in &mut *refs {
            let by_text = texts.of(columns.message(found.value.0)) / texts.best().max(f64::MIN_POSITIVE);
            found.score += best * by_text;
        }
        keep_best(refs, refs_max);
    }
    Found {
        refs: by_kind,
        messages,
    }
}

/// The matched refs by kind.
fn by_kind(matches: &Matches, columns: &Columns) -> Vec<(KnowledgeKind, Vec<Scored<RefOrdinal>>)> {
    let mut by_kind: Vec<(KnowledgeKind, Vec<Scored<RefOrdinal>>)> =
        KnowledgeKind::ALL.map(|kind| (kind, Vec::new())).into();
    let mut counts = [0_usize; KnowledgeKind::ALL.len()];
    let kinds = matches.iter().map(|found| columns.kind(found.ordinal));
    kinds.flatten().for_each(|kind| counts[kind as usize] += 1);
    for ((_, refs), count) in by_kind.iter_mut().zip(counts) {
        refs.reserve_exact(count);
    }
    for found in matches.iter() {
        let Some(kind) = columns.kind(found.ordinal) else {
            continue;
        };
        by_kind[kind as usize].1.push(Scored {
            value: RefOrdinal(found.ordinal),
            score: found.score,
        });
    }
    by_kind.retain(|(_, refs)| !refs.is_empty());
    by_kind
}

fn rank_messages(
    by_kind: &[(KnowledgeKind, Vec<Scored<RefOrdinal>>)],
    columns: &Columns,
) -> Vec<Scored<MessageOrdinal>> {
    let mut messages = Matches::new(columns.message_end());
    for (_, refs) in by_kind {
        let mut best = Matches::new(columns.message_end());
        for found in refs {
            best.add_best(columns.message(found.value.0), found.score);
        }
        for found in best.iter() {
            messages.add_best(found.ordinal, found.score);
        }
    }
    let kinds = by_kind.len() as u32;
    if messages.hits_max() >= kinds {
        messages.retain(|found| found.hits >= kinds);
    }
    let scored = messages.iter().map(|found| Scored {
        value: MessageOrdinal(found.ordinal),
        score: smooth(found.score, found.hits),
    });
    scored.collect()
}

/// Sorts by score, best first, then by number, and keeps at most `max`.
pub(super) fn keep_best<T: Ord>(scored: &mut Vec<Scored<T>>, max: Option<usize>) {
    let better = |left: &Scored<T>, right: &Scored<T>| {
        let by_score = right.score.total_cmp(&left.score);
        by_score.then_with(|| left.value.cmp(&right.value))
    };
    if let Some(max) = max
        && max < scored.len()
    {
        scored.select_nth_unstable_by(max, better);
        scored.truncate(max);
    }
    scored.sort_unstable_by(better);
}
