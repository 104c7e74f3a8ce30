//! Ranks messages by their texts.
//!
//! The score of a message begins with its words, by BM25 (Robertson and Zaragoza, "The Probabilistic Relevance
//! Framework", 2009). The neighbouring messages of the conversation add a part of their scores, because an answer is
//! next to its question and seldom repeats its words. A message counts more if the question names its speaker or its
//! time.
//!
//! With an embedder, the meaning counts like a word, before neighbours and speakers add to the score. All weights are
//! [in one place](crate::recall::weights).

use std::collections::HashMap;
use std::sync::Arc;

use crate::embed::Embedder;
use crate::error::MemoryError;
use crate::limits::{QUESTION_WORDS_MAX, SPELLINGS_COMPARED_MAX};
use crate::message::{MessageOrdinal, TimeRange};
use crate::recall::nearest::nearest;
use crate::recall::weights::Weights;
use crate::store::conversations::{Conversations, NEIGHBOURS_APART_MAX};
use crate::store::{Columns, KnowledgeStore};
use crate::words::{Language, Languages, nearest_spelling, speaker_word, spelling_prefix, split, stems};

/// Words that ask for everything. A question of only such words asks for a time or a speaker.
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

/// A question to the texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TextQuestion {
    /// The question as the user wrote it.
    pub text: String,
    /// The words of the question without those of a time.
    pub words: Vec<String>,
    /// The time that the question names.
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
    /// The score of a message; 0 if its text has nothing in common with the question.
    pub fn of(&self, message: u32) -> f64 {
        self.scores.get(message as usize).copied().unwrap_or(0.0)
    }

    /// Whether the question asks for all messages of a time or a speaker, which are listed in reading order.
    pub fn is_for_all(&self) -> bool {
        self.is_for_all
    }

    /// The scores by message. Messages beyond the end have none.
    pub fn all(&self) -> &[f64] {
        &self.scores
    }

    /// The score of the best message.
    pub fn best(&self) -> f64 {
        self.best
    }
}

/// A word of the question with the messages in which it stands.
struct Asked {
    /// The messages in ascending order. A message occurs as often as the word occurs in it.
    messages: Vec<u32>,
    weight: f64,
}

/// Scores all messages for a question: by their words, and by their meaning if there is an embedder.
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
    // The columns are read last. A commit in between may add messages to the columns alone, which is harmless.
    let columns = store.columns().await?;
    let shared = columns.clone();
    let scores = crate::store::blocking(move || Ok(looked_up.score(&shared))).await?;
    Ok((scores, columns))
}

/// The results of the index for a question's words.
struct LookedUp {
    words: Vec<Asked>,
    /// The words that are names of speakers.
    names: Vec<String>,
    /// The messages of named speakers.
    spoken: Vec<u32>,
    /// Whether the question asks only for a time or a speaker.
    is_for_all: bool,
    time: Option<TimeRange>,
    /// The messages nearest in meaning, with their nearness from 0 to 1.
    nearest: Vec<(MessageOrdinal, f64)>,
    weights: Weights,
}

/// Removes the names of speakers from a question, because a name would be near to every message that has it. A question
/// of names only is unchanged.
fn without_names(question: &str, names: &[String]) -> String {
    let is_name = |piece: &str| split(piece).next().is_some_and(|word| names.contains(&word));
    let kept: Vec<&str> = question
        .split_whitespace()
        .filter(|piece| !is_name(piece))
        .collect();
    if kept.is_empty() {
        question.to_owned()
    } else {
        kept.join(" ")
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
        assert_eq!(found.len(), lookups.len(), "the store answers each word");
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
        if !self.is_for_all
            && self.nearest.is_empty()
            && self.words.iter().all(|word| word.messages.is_empty())
        {
            return TextScores::default();
        }
        let mut scores = if self.is_for_all {
            self.all(columns)
        } else {
            self.by_signs(columns)
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

    /// Scores messages by words and meaning, with neighbours and speakers.
    fn by_signs(&self, columns: &Columns) -> Vec<f64> {
        let conversations = columns.conversations();
        let WordScores {
            messages: mut own,
            conversations: by_conversation,
        } = self.by_words(columns, conversations);
        self.add_meaning(&mut own);
        let mut scores = with_neighbours(&own, conversations, &self.weights);
        let Weights {
            conversation,
            brevity,
            ..
        } = self.weights;
        for (message, score) in (0..).zip(&mut scores) {
            if *score > 0.0 {
                let length = f64::from(columns.length(message));
                *score += conversation * by_conversation[conversations.of(message) as usize];
                if brevity > 0.0 {
                    *score *= length / (length + brevity);
                }
            }
        }
        for &message in &self.spoken {
            if let Some(score) = scores.get_mut(message as usize) {
                *score *= self.weights.speaker;
            }
        }
        scores
    }

    /// Adds the scores of the messages nearest in meaning.
    fn add_meaning(&self, own: &mut [f64]) {
        let best = own.iter().copied().fold(0.0, f64::max);
        let whole = if best > 0.0 { best } else { 1.0 };
        for (message, nearness) in &self.nearest {
            // A message that was committed after the columns were read is left out.
            if let Some(score) = own.get_mut(message.0 as usize) {
                *score += self.weights.meaning * whole * nearness;
            }
        }
    }

    /// Gives a score to all messages of the time, or of the named speakers.
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

    /// Scores messages and conversations by BM25.
    fn by_words(&self, columns: &Columns, conversations: &Conversations) -> WordScores {
        let mut scores = WordScores {
            messages: vec![0.0; columns.message_end() as usize],
            conversations: vec![0.0; conversations.count() as usize],
        };
        let of_messages = Bm25 {
            texts: columns.message_count(),
            mean_length: columns.mean_length(),
            weights: &self.weights,
        };
        let of_conversations = Bm25 {
            texts: conversations.count(),
            mean_length: conversations.mean_length(),
            weights: &self.weights,
        };
        let (mut by_message, mut by_conversation) = (Vec::new(), Vec::new());
        for word in &self.words {
            by_message.clear();
            by_conversation.clear();
            // The messages ascend, and so do their conversations.
            for &message in word
                .messages
                .iter()
                .filter(|&&message| columns.has_message(message))
            {
                count(&mut by_message, message);
                count(&mut by_conversation, conversations.of(message));
            }
            let length = |message| columns.length(message);
            of_messages.add(&by_message, word.weight, length, &mut scores.messages);
            if self.weights.conversation > 0.0 {
                let length = |conversation| conversations.length(conversation);
                of_conversations.add(&by_conversation, word.weight, length, &mut scores.conversations);
            }
        }
        scores
    }
}

/// The scores of messages and conversations, by their numbers.
struct WordScores {
    messages: Vec<f64>,
    conversations: Vec<f64>,
}

/// A text (a message or a conversation), and the number of occurrences of a word in it.
struct Counted {
    text: u32,
    count: u32,
}

/// Counts an occurrence of a word in a text. Texts come in ascending order.
fn count(counts: &mut Vec<Counted>, text: u32) {
    match counts.last_mut() {
        Some(last) if last.text == text => last.count += 1,
        _ => {
            assert!(
                counts.last().is_none_or(|last| last.text < text),
                "occurrences come in the order of texts"
            );
            counts.push(Counted { text, count: 1 });
        }
    }
}

/// The formula BM25 over texts.
struct Bm25<'a> {
    texts: u32,
    /// Mean number of words of a text.
    mean_length: f64,
    weights: &'a Weights,
}

impl Bm25<'_> {
    /// Adds the score of a word to the texts in which it occurs.
    fn add(&self, counts: &[Counted], weight: f64, length: impl Fn(u32) -> u32, scores: &mut [f64]) {
        let Weights {
            saturation,
            length_share,
            ..
        } = *self.weights;
        let with_word = counts.len() as f64;
        let rarity = (1.0 + (f64::from(self.texts) - with_word + 0.5).max(0.0) / (with_word + 0.5)).ln();
        let whole = weight * rarity * (saturation + 1.0);
        let (norm, norm_of_word) = (
            saturation * (1.0 - length_share),
            saturation * length_share / self.mean_length,
        );
        for &Counted { text, count } in counts {
            let count = f64::from(count);
            scores[text as usize] += whole * count / (count + norm + norm_of_word * f64::from(length(text)));
        }
    }
}

/// Adds a part of each score to the neighbouring messages of the same conversation.
fn with_neighbours(own: &[f64], conversations: &Conversations, weights: &Weights) -> Vec<f64> {
    let followers = conversations.followers();
    assert_eq!(followers.len(), own.len(), "each message knows its followers");
    let part = |message: usize, apart: usize, score: f64| {
        let is_beside = followers[message] >> (apart - 1) & 1 != 0;
        if is_beside {
            weights.neighbours[apart - 1] * score
        } else {
            0.0
        }
    };
    let mut scores = own.to_vec();
    for (message, score) in scores.iter_mut().enumerate() {
        for apart in (1..=NEIGHBOURS_APART_MAX).rev().filter(|&apart| apart <= message) {
            *score += part(message - apart, apart, own[message - apart]);
        }
        for apart in (1..=NEIGHBOURS_APART_MAX).filter(|&apart| message + apart < own.len()) {
            *score += part(message, apart, own[message + apart]);
        }
    }
    scores
}

/// Lists the words of a question without function words, each once, in lower case.
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

/// Joins the messages of several forms of a word, in ascending order.
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

/// Finds the messages of the words for which unknown words are misspellings.
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
    if meant.is_empty() {
        Ok(Vec::new())
    } else {
        store.messages_with(meant).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_embedded_without_the_names_of_speakers() {
        let names = ["ada".to_owned(), "ben".to_owned()];
        assert_eq!(
            without_names("What did Ada's bees tell Ben, then?", &names),
            "What did bees tell then?"
        );
        assert_eq!(without_names("Ada and Adam", &names), "and Adam");
        assert_eq!(without_names("Ada? Ben!", &names), "Ada? Ben!");
    }
}
