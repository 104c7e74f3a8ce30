//! Ranks the first recalled messages again, by a cross-encoder or in an order that a model tells.

use crate::embed::CrossEncoder;
use crate::error::MemoryError;
use crate::limits::{RERANKED_CHARACTERS_BEFORE, RERANKED_MESSAGES};
use crate::recall::RecalledMessage;

/// Ranks the first messages by how well the cross-encoder says that each answers.
pub(super) async fn rerank(
    encoder: &CrossEncoder,
    question: &str,
    messages: &mut Vec<RecalledMessage>,
) -> Result<(), MemoryError> {
    let count = messages.len().min(RERANKED_MESSAGES);
    if count < 2 {
        return Ok(());
    }
    let texts = messages[..count].iter().map(shown).collect();
    let scores = encoder.scores(question, texts).await?;
    let mut places: Vec<usize> = (0..count).collect();
    // The sort is stable: messages of one score stay in their order.
    places.sort_by(|left, right| scores[*right].total_cmp(&scores[*left]));
    put_first(messages, places.into_iter(), "cross-encoder");
    Ok(())
}

/// The part of a message that the cross-encoder reads: its subject, and its text from a little before the first word of the question.
fn shown(recalled: &RecalledMessage) -> String {
    let message = &recalled.message.message;
    let first = recalled.highlights.first();
    let chunk = first.map_or(0, |highlight| highlight.chunk as usize);
    let text = message.text_chunks.get(chunk).map_or("", String::as_str);
    let begin = first.map_or(0, |highlight| {
        highlight.start.saturating_sub(RERANKED_CHARACTERS_BEFORE)
    });
    let text: String = text.chars().skip(begin as usize).collect();
    match &message.subject {
        Some(subject) if !text.starts_with(subject.as_str()) => format!("{subject}\n{text}"),
        _ => text,
    }
}

/// Moves the messages at these places to the front, and the others behind them in their order. The scores keep their places, so that
/// they descend. A place that is named twice counts once.
pub(crate) fn put_first(
    messages: &mut Vec<RecalledMessage>,
    places: impl Iterator<Item = usize>,
    part: &'static str,
) {
    let scores: Vec<f64> = messages.iter().map(|message| message.score).collect();
    let places = places.chain(0..scores.len());
    let mut left: Vec<Option<RecalledMessage>> = messages.drain(..).map(Some).collect();
    messages.extend(places.filter_map(|place| left[place].take()));
    assert_eq!(
        messages.len(),
        scores.len(),
        "ranking again keeps each message once"
    );
    for (message, score) in messages.iter_mut().zip(scores) {
        message.gain(part, score - message.score);
    }
}
