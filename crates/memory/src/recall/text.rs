//! Ranking messages by what they say.
//!
//! The score of a message is that of its words by BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework",
//! 2009), to which the messages beside it in the conversation add a part of theirs: an answer stands beside its question,
//! and seldom repeats its words. A message of a speaker whom the question names, and one of the time that it tells, counts
//! more.
//!
//! The meaning, where an embedder tells it, counts like a word: before neighbours and speakers add to it. All weights are
//! [in one place](crate::recall::weights).

use std::collections::HashMap;
use std::sync::Arc;

use crate::embed::Embedder;
use crate::error::MemoryError;
use crate::limits::{QUESTION_WORDS_MAX, SPELLINGS_COMPARED_MAX};
use crate::message::{MessageOrdinal, TimeRange};
use crate::recall::nearest::nearest;
use crate::recall::weights::Weights;
use crate::store::conversations::{Conversations, are_beside};
use crate::store::{Columns, KnowledgeStore};
use crate::words::{Language, Languages, nearest_spelling, speaker_word, spelling_prefix, split, stems};

/// Words that ask for all that there is: with them alone, a time or a speaker is asked for.
const ASKING_FOR_ALL: [&str; 22] = [
    "anything",
    "describe",
    "discussed",
    "else",
    "happen",
    "happened",
    "happening",
    "list",
    "mentioned",
    "occurred",
    "overview",
    "said",
    "say",
    "saying",
    "says",
    "show",
    "summarise",
    "summarize",
    "summary",
    "talk",
    "talked",
    "tell",
];

/// The question to the texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TextQuestion {
    /// The question as it was asked.
    pub text: String,
    /// The words of the question without those that tell a time.
    pub words: Vec<String>,
    /// The time that it tells.
    pub time: Option<TimeRange>,
}

/// The scores of all messages, by their numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TextScores {
    scores: Vec<f64>,
    best: f64,
    is_for_all: bool,
}

impl TextScores {
    /// The score of a message: 0 where its text has nothing of the question.
    pub fn of(&self, message: u32) -> f64 {
        self.scores.get(message as usize).copied().unwrap_or(0.0)
    }

    /// Whether all messages of a time or a speaker are asked for, which are listed in reading order.
    pub fn is_for_all(&self) -> bool {
        self.is_for_all
    }

    /// The score of the best message.
    pub fn best(&self) -> f64 {
        self.best
    }
}

/// A word of the question with the messages in which it stands.
struct Asked {
    /// Ascending, each as often as the word stands in it.
    messages: Vec<u32>,
    weight: f64,
}

/// Scores all messages for a question: by their words, and with an embedder also by their meaning.
///
/// # Errors
///
/// Errors of the store or the embedder.
pub async fn score(
    store: &dyn KnowledgeStore,
    question: TextQuestion,
    embedder: Option<&dyn Embedder>,
    languages: Languages,
    weights: Weights,
) -> Result<(TextScores, Arc<Columns>), MemoryError> {
    let text = question.text.clone();
    let mut looked_up = LookedUp::new(store, question, languages, weights).await?;
    if let Some(embedder) = embedder
        && !looked_up.is_for_all
    {
        let unnamed = without_names(&text, &looked_up.names);
        looked_up.nearest = nearest(store, &unnamed, embedder, weights.cosine_min).await?;
    }
    // After the words: what a commit adds in between is in the columns alone, which is harmless.
    let columns = store.columns().await?;
    let shared = columns.clone();
    let scores = crate::store::blocking(move || Ok(looked_up.score(&shared))).await?;
    Ok((scores, columns))
}

/// What the index says of a question's words.
struct LookedUp {
    words: Vec<Asked>,
    /// The words that are names of speakers.
    names: Vec<String>,
    /// The messages of named speakers.
    spoken: Vec<u32>,
    /// Whether nothing is asked but the time or the speaker.
    is_for_all: bool,
    time: Option<TimeRange>,
    /// The messages nearest in meaning, with their nearness from 0 to 1.
    nearest: Vec<(MessageOrdinal, f64)>,
    weights: Weights,
}

/// A question without the names of speakers, by which every message that names one would be near. Of nothing but names, all is
/// left.
fn without_names(question: &str, names: &[String]) -> String {
    let is_name = |piece: &str| split(piece).next().is_some_and(|word| names.contains(&word));
    let kept: Vec<&str> = question
        .split_whitespace()
        .filter(|piece| !is_name(piece))
        .collect();
    match kept.is_empty() {
        true => question.to_owned(),
        false => kept.join(" "),
    }
}

impl LookedUp {
    async fn new(
        store: &dyn KnowledgeStore,
        question: TextQuestion,
        languages: Languages,
        weights: Weights,
    ) -> Result<LookedUp, MemoryError> {
        let words = content_words(&question.words);
        let (mut lookups, mut forms) = (Vec::new(), Vec::new());
        for word in &words {
            let stems = stems(word, languages);
            forms.push((lookups.len(), stems.len()));
            lookups.extend(stems);
            lookups.push(speaker_word(word));
        }
        let mut found = store.messages_with(lookups.clone()).await?;
        let mut asked = Vec::new();
        let mut names = Vec::new();
        let mut spoken = Vec::new();
        let mut unknown = Vec::new();
        let mut is_for_all = true;
        for (word, (at, count)) in words.iter().zip(forms) {
            let by_speaker = std::mem::take(&mut found[at + count]);
            let is_speaker = !by_speaker.is_empty();
            spoken.extend(by_speaker);
            let messages = united(&mut found[at..at + count]);
            let asks_for_all = ASKING_FOR_ALL.contains(&word.as_str());
            is_for_all &= is_speaker || asks_for_all;
            if messages.is_empty() && !is_speaker && !asks_for_all {
                unknown.extend(lookups[at..at + count].iter().cloned());
            }
            let weight = if is_speaker { weights.name } else { 1.0 };
            asked.push(Asked { messages, weight });
            names.extend(is_speaker.then(|| word.clone()));
        }
        for messages in corrected(store, unknown).await? {
            asked.push(Asked {
                messages,
                weight: weights.spelling,
            });
        }
        spoken.sort_unstable();
        spoken.dedup();
        Ok(LookedUp {
            is_for_all: is_for_all && (question.time.is_some() || !spoken.is_empty()),
            words: asked,
            names,
            spoken,
            time: question.time,
            nearest: Vec::new(),
            weights,
        })
    }

    fn score(&self, columns: &Columns) -> TextScores {
        let mut scores = match self.is_for_all {
            true => self.all(columns),
            false => self.by_signs(columns),
        };
        if let Some(time) = self.time {
            for (message, score) in (0..).zip(&mut scores) {
                if *score > 0.0 && columns.time(message).is_some_and(|at| time.contains(at)) {
                    *score *= self.weights.time;
                }
            }
        }
        TextScores {
            best: scores.iter().copied().fold(0.0, f64::max),
            is_for_all: self.is_for_all,
            scores,
        }
    }

    /// By words and meaning, with neighbours and speakers.
    fn by_signs(&self, columns: &Columns) -> Vec<f64> {
        let end = columns.message_end();
        let mut own = self.by_words(columns, Units::Messages(columns));
        self.add_meaning(&mut own);
        let mut scores = with_neighbours(&own, columns, &self.weights);
        if self.weights.conversation > 0.0 {
            let conversations = columns.conversations();
            let by_conversation = self.by_words(columns, Units::Conversations(conversations));
            for (message, score) in (0..).zip(&mut scores) {
                if *score > 0.0 {
                    *score += self.weights.conversation * by_conversation[conversations.of(message) as usize];
                }
            }
        }
        if self.weights.brevity > 0.0 {
            for (message, score) in (0..).zip(&mut scores) {
                let length = f64::from(columns.length(message));
                *score *= length / (length + self.weights.brevity);
            }
        }
        let spoken = self.spoken.iter().filter(|&&message| message < end);
        spoken.for_each(|&message| scores[message as usize] *= self.weights.speaker);
        scores
    }

    /// Adds what the messages nearest in meaning gain.
    fn add_meaning(&self, own: &mut [f64]) {
        let best = own.iter().copied().fold(0.0, f64::max);
        let whole = if best > 0.0 { best } else { 1.0 };
        for (message, nearness) in &self.nearest {
            // A message of a later commit than the columns is left out.
            if let Some(score) = own.get_mut(message.0 as usize) {
                *score += self.weights.meaning * whole * nearness;
            }
        }
    }

    /// All messages of the time, or of the named speakers.
    fn all(&self, columns: &Columns) -> Vec<f64> {
        let mut scores = vec![0.0; columns.message_end() as usize];
        if self.spoken.is_empty() {
            for (message, score) in (0..).zip(&mut scores) {
                let at = columns.time(message).zip(self.time);
                *score = f64::from(at.is_some_and(|(at, time)| time.contains(at)));
            }
        } else {
            let spoken = self
                .spoken
                .iter()
                .filter(|&&message| columns.has_message(message));
            spoken.for_each(|&message| scores[message as usize] = 1.0);
        }
        scores
    }

    /// BM25 over units of text: messages or conversations.
    fn by_words(&self, columns: &Columns, units: Units<'_>) -> Vec<f64> {
        let mut scores = vec![0.0; units.end() as usize];
        let (all, mean_length) = (f64::from(units.count()), units.mean_length());
        let Weights {
            saturation,
            length_share,
            ..
        } = self.weights;
        for word in &self.words {
            let known = word
                .messages
                .iter()
                .filter(|&&message| columns.has_message(message));
            let of_units: Vec<u32> = known.map(|&message| units.of(message)).collect();
            // Messages ascend, and so do their units.
            let counts = || of_units.chunk_by(|left, right| left == right);
            let with_word = counts().count() as f64;
            let rarity = (1.0 + (all - with_word + 0.5).max(0.0) / (with_word + 0.5)).ln();
            for run in counts() {
                let (unit, count) = (run[0], run.len() as f64);
                let length = f64::from(units.length(unit)) / mean_length;
                let norm = saturation * (1.0 - length_share + length_share * length);
                scores[unit as usize] += word.weight * rarity * count * (saturation + 1.0) / (count + norm);
            }
        }
        scores
    }
}

/// What BM25 counts as one text: a message or a conversation.
#[derive(Clone, Copy)]
enum Units<'a> {
    Messages(&'a Columns),
    Conversations(&'a Conversations),
}

impl Units<'_> {
    fn of(&self, message: u32) -> u32 {
        match self {
            Units::Messages(_) => message,
            Units::Conversations(conversations) => conversations.of(message),
        }
    }

    /// Beyond the number of every unit.
    fn end(&self) -> u32 {
        match self {
            Units::Messages(columns) => columns.message_end(),
            Units::Conversations(conversations) => conversations.count(),
        }
    }

    fn count(&self) -> u32 {
        match self {
            Units::Messages(columns) => columns.message_count(),
            Units::Conversations(conversations) => conversations.count(),
        }
    }

    /// Words of a unit.
    fn length(&self, unit: u32) -> u32 {
        match self {
            Units::Messages(columns) => columns.length(unit),
            Units::Conversations(conversations) => conversations.length(unit),
        }
    }

    fn mean_length(&self) -> f64 {
        match self {
            Units::Messages(columns) => columns.mean_length(),
            Units::Conversations(conversations) => conversations.mean_length(),
        }
    }
}

/// Adds to each score a part of those beside it in the same conversation.
fn with_neighbours(own: &[f64], columns: &Columns, weights: &Weights) -> Vec<f64> {
    let mut scores = own.to_vec();
    for (message, &score) in (0_u32..).zip(own) {
        if score == 0.0 {
            continue;
        }
        for (distance, share) in (1_u32..).zip(weights.neighbours) {
            for other in [message.checked_sub(distance), message.checked_add(distance)] {
                if let Some(other) = other.filter(|&other| are_beside(columns, message, other)) {
                    scores[other as usize] += share * score;
                }
            }
        }
    }
    scores
}

/// The words of a question that are no function words of its language, each once, in lower case.
fn content_words(words: &[String]) -> Vec<String> {
    let language = Language::of(words.iter().map(String::as_str));
    let mut content: Vec<String> = Vec::new();
    for word in words.iter().flat_map(|word| split(word)) {
        if content.len() < QUESTION_WORDS_MAX && !language.is_function_word(&word) && !content.contains(&word)
        {
            content.push(word);
        }
    }
    content
}

/// The messages of several forms of a word.
fn united(forms: &mut [Vec<u32>]) -> Vec<u32> {
    match forms {
        [] => Vec::new(),
        [only] => std::mem::take(only),
        several => {
            let mut all = several.concat();
            all.sort_unstable();
            all
        }
    }
}

/// The messages of the words that unknown ones are misspellings of.
async fn corrected(store: &dyn KnowledgeStore, unknown: Vec<String>) -> Result<Vec<Vec<u32>>, MemoryError> {
    let mut candidates: HashMap<String, Vec<String>> = HashMap::new();
    let mut meant = Vec::new();
    for word in unknown {
        let prefix = spelling_prefix(&word);
        if !candidates.contains_key(&prefix) {
            let known = store.words_beginning(&prefix, SPELLINGS_COMPARED_MAX).await?;
            candidates.insert(prefix.clone(), known);
        }
        if let Some(nearest) = nearest_spelling(&word, candidates[&prefix].iter().map(String::as_str))
            && !meant.iter().any(|known| known == nearest)
        {
            meant.push(nearest.to_owned());
        }
    }
    match meant.is_empty() {
        true => Ok(Vec::new()),
        false => store.messages_with(meant).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeds_a_question_without_the_names_of_speakers() {
        let names = ["ada".to_owned(), "ben".to_owned()];
        assert_eq!(
            without_names("What did Ada's bees tell Ben, then?", &names),
            "What did bees tell then?"
        );
        assert_eq!(without_names("Ada and Adam", &names), "and Adam");
        assert_eq!(without_names("Ada? Ben!", &names), "Ada? Ben!");
    }
}
