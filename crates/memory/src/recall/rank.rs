//! Ranks matched refs and their messages.

use crate::knowledge::{KnowledgeKind, RefOrdinal};
use crate::message::MessageOrdinal;
use crate::recall::best::Best;
use crate::recall::matches::{Match, Matches, smooth};
use crate::recall::text::TextScores;
use crate::recall::{Found, Scored};
use crate::store::Columns;

/// Number of kinds of knowledge.
const KINDS: usize = KnowledgeKind::ALL.len();

/// The score of a kind without any ref.
const NO_REF: f64 = f64::NEG_INFINITY;

/// Ranks matched refs by kind, and the messages in which they occur, and keeps the best.
///
/// The score of a message is the score of its best ref. The kinds are compared in the order entity, action, topic, tag:
/// the message gets a hit for each kind whose best ref beats the kinds before it. If some messages have a hit for every
/// kind that matched at all, only these messages are returned.
pub fn rank(
    matches: &Matches,
    columns: &Columns,
    refs_max: Option<usize>,
    messages_max: Option<usize>,
) -> Found {
    let Found { refs, messages } = rank_refs(matches, columns, refs_max, |found, _| found.score);
    let mut best = Best::new(messages_max);
    messages.into_iter().for_each(|message| best.add(message));
    Found {
        refs,
        messages: best.into_sorted(),
    }
}

/// Ranks as [`rank`] does, but the text of a ref's message counts as much as the ref's match, and all matched messages
/// are returned, unordered.
pub fn rank_with_texts(
    matches: &Matches,
    columns: &Columns,
    texts: &TextScores,
    refs_max: Option<usize>,
) -> Found {
    let best = matches.iter().map(|found| found.score).fold(0.0, f64::max);
    let share = match texts.best() {
        best_text if best_text > 0.0 => best / best_text,
        _ => 0.0,
    };
    rank_refs(matches, columns, refs_max, |found, message| {
        found.score + share * texts.of(message)
    })
}

/// Finds the best refs of each kind by `score`, which gets a match and its message, and the messages of all refs by
/// their matches.
fn rank_refs(
    matches: &Matches,
    columns: &Columns,
    refs_max: Option<usize>,
    score: impl Fn(&Match, u32) -> f64,
) -> Found {
    let mut refs = KnowledgeKind::ALL.map(|kind| (kind, Best::new(refs_max), false));
    let mut messages = Matches::new(columns.message_end());
    // The best score of each kind, by the message's place.
    let mut best: Vec<[f64; KINDS]> = Vec::new();
    // These loops are separate because their lookups miss the caches, and the processor overlaps many of them only in a
    // short loop.
    let places: Vec<(Option<KnowledgeKind>, u32)> = matches
        .iter()
        .map(|found| (columns.kind(found.ordinal), columns.message(found.ordinal)))
        .collect();
    let scores = matches
        .iter()
        .zip(&places)
        .map(|(found, (_, message))| score(found, *message));
    let scores: Vec<f64> = scores.collect();
    for ((found, (kind, message)), score) in matches.iter().zip(places).zip(scores) {
        let Some(kind) = kind else {
            continue;
        };
        let (_, best_refs, is_found) = &mut refs[kind as usize];
        *is_found = true;
        best_refs.add(Scored {
            value: RefOrdinal(found.ordinal),
            score,
        });
        let place = messages.place_of(message);
        assert!(place <= best.len(), "a new message gets the next place");
        if place == best.len() {
            best.push([NO_REF; KINDS]);
        }
        let best = &mut best[place][kind as usize];
        *best = best.max(found.score);
    }
    let kinds = refs.iter().filter(|(_, _, is_found)| *is_found).count() as u32;
    let found = refs.into_iter().filter(|(_, _, is_found)| *is_found);
    Found {
        refs: found.map(|(kind, best, _)| (kind, best.into_sorted())).collect(),
        messages: rank_messages(&messages, &best, kinds),
    }
}

/// Ranks the messages whose refs matched enough of `kinds` kinds.
fn rank_messages(messages: &Matches, best: &[[f64; KINDS]], kinds: u32) -> Vec<Scored<MessageOrdinal>> {
    let hits_and_score = |by_kind: &[f64; KINDS]| {
        by_kind.iter().fold((0, NO_REF), |(hits, best), &score| {
            if score > best {
                (hits + 1, score)
            } else {
                (hits, best)
            }
        })
    };
    assert_eq!(
        messages.iter().len(),
        best.len(),
        "each message has its best scores"
    );
    let hits_max = best.iter().map(|by_kind| hits_and_score(by_kind).0).max();
    let hits_min = if hits_max >= Some(kinds) { kinds } else { 0 };
    let scored = messages.iter().zip(best).filter_map(|(message, by_kind)| {
        let (hits, score) = hits_and_score(by_kind);
        (hits >= hits_min).then(|| Scored {
            value: MessageOrdinal(message.ordinal),
            score: smooth(score, hits),
        })
    });
    scored.collect()
}
