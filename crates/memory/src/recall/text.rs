//! Ranking messages by what they say.
//!
//! The score of a message is that of its words by BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework",
//! 2009), to which the messages beside it in the conversation add a part of theirs: an answer stands beside its question,
//! and seldom repeats its words. A message of a speaker whom the question names, and one of the time that it tells, counts
//! more.
//!
//! The weights below were found by trying a few round values on two long conversations with questions whose answers are
//! known, and were then confirmed on three others. None of them is delicate: half or twice of each costs at most 3 points
//! of recall@10.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::MemoryError;
use crate::limits::{CONVERSATION_GAP_MS, QUESTION_WORDS_MAX, SPELLINGS_COMPARED_MAX};
use crate::message::TimeRange;
use crate::store::{Columns, KnowledgeStore};
use crate::words::{Language, Languages, nearest_spelling, speaker_word, spelling_prefix, split, stems};

/// BM25: how soon further occurrences of a word count less.
const SATURATION: f64 = 1.2;

/// BM25: how much the length of a message counts.
const LENGTH_SHARE: f64 = 0.75;

/// The part of its score that a message adds to those one and two places away.
const NEIGHBOUR_SHARES: [f64; 2] = [0.5, 0.2];

/// What the word of a speaker's name counts where it stands in a text: that somebody is spoken to says little.
const NAME_WEIGHT: f64 = 0.3;

/// How much more a message of a named speaker counts.
const SPEAKER_FACTOR: f64 = 1.6;

/// How much more a message of the question's time counts.
const TIME_FACTOR: f64 = 3.0;

/// A word that a misspelt one was taken for counts less than one as it is written.
const SPELLING_WEIGHT: f64 = 0.8;

/// Words that ask for all that there is: with them alone, a time or a speaker is asked for.
const ASKING_FOR_ALL: [&str; 21] = [
    "anything",
    "describe",
    "discussed",
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

/// Scores all messages for a question.
///
/// # Errors
///
/// Errors of the store.
pub async fn score(
    store: &dyn KnowledgeStore,
    question: &TextQuestion,
    languages: Languages,
) -> Result<(TextScores, Arc<Columns>), MemoryError> {
    let looked_up = LookedUp::new(store, question, languages).await?;
    // After the words: what a commit adds in between is in the columns alone, which is harmless.
    let columns = store.columns().await?;
    let (time, shared) = (question.time, columns.clone());
    let scores = crate::store::blocking(move || Ok(looked_up.score(&shared, time))).await?;
    Ok((scores, columns))
}

/// What the index says of a question's words.
struct LookedUp {
    words: Vec<Asked>,
    /// The messages of named speakers.
    spoken: Vec<u32>,
    /// Whether nothing is asked but the time or the speaker.
    is_for_all: bool,
}

impl LookedUp {
    async fn new(
        store: &dyn KnowledgeStore,
        question: &TextQuestion,
        languages: Languages,
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
            asked.push(Asked {
                messages,
                weight: if is_speaker { NAME_WEIGHT } else { 1.0 },
            });
        }
        for messages in corrected(store, unknown).await? {
            asked.push(Asked {
                messages,
                weight: SPELLING_WEIGHT,
            });
        }
        spoken.sort_unstable();
        spoken.dedup();
        Ok(LookedUp {
            is_for_all: is_for_all && (question.time.is_some() || !spoken.is_empty()),
            words: asked,
            spoken,
        })
    }

    fn score(&self, columns: &Columns, time: Option<TimeRange>) -> TextScores {
        let end = columns.message_end();
        let mut scores = match self.is_for_all {
            true => self.all(columns, time),
            false => {
                let own = self.by_words(columns);
                let mut scores = with_neighbours(&own, columns);
                let spoken = self.spoken.iter().filter(|&&message| message < end);
                spoken.for_each(|&message| scores[message as usize] *= SPEAKER_FACTOR);
                scores
            }
        };
        if let Some(time) = time {
            for (message, score) in (0..).zip(&mut scores) {
                if *score > 0.0 && columns.time(message).is_some_and(|at| time.contains(at)) {
                    *score *= TIME_FACTOR;
                }
            }
        }
        TextScores {
            best: scores.iter().copied().fold(0.0, f64::max),
            is_for_all: self.is_for_all,
            scores,
        }
    }

    /// All messages of the time, or of the named speakers.
    fn all(&self, columns: &Columns, time: Option<TimeRange>) -> Vec<f64> {
        let mut scores = vec![0.0; columns.message_end() as usize];
        if self.spoken.is_empty() {
            for (message, score) in (0..).zip(&mut scores) {
                let at = columns.time(message).zip(time);
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

    /// BM25.
    fn by_words(&self, columns: &Columns) -> Vec<f64> {
        let mut scores = vec![0.0; columns.message_end() as usize];
        let all = f64::from(columns.message_count());
        let mean_length = columns.mean_length();
        for word in &self.words {
            let counts = || {
                let runs = word.messages.chunk_by(|left, right| left == right);
                let counts = runs.map(|run| (run[0], run.len()));
                counts.filter(|(message, _)| columns.has_message(*message))
            };
            let with_word = counts().count() as f64;
            let rarity = (1.0 + (all - with_word + 0.5).max(0.0) / (with_word + 0.5)).ln();
            for (message, count) in counts() {
                let length = f64::from(columns.length(message)) / mean_length;
                let norm = SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * length);
                let count = count as f64;
                scores[message as usize] +=
                    word.weight * rarity * count * (SATURATION + 1.0) / (count + norm);
            }
        }
        scores
    }
}

/// Adds to each score a part of those beside it in the same conversation.
fn with_neighbours(own: &[f64], columns: &Columns) -> Vec<f64> {
    let mut scores = own.to_vec();
    for (message, &score) in (0_u32..).zip(own) {
        if score == 0.0 {
            continue;
        }
        for (distance, share) in (1_u32..).zip(NEIGHBOUR_SHARES) {
            for other in [message.checked_sub(distance), message.checked_add(distance)] {
                if let Some(other) = other.filter(|&other| is_beside(columns, message, other)) {
                    scores[other as usize] += share * score;
                }
            }
        }
    }
    scores
}

/// Whether two messages are of one conversation.
fn is_beside(columns: &Columns, message: u32, other: u32) -> bool {
    let is_near = match (columns.time(message), columns.time(other)) {
        (Some(left), Some(right)) => left.0.abs_diff(right.0) <= CONVERSATION_GAP_MS.unsigned_abs(),
        _ => true,
    };
    is_near && columns.are_of_one_source(message, other)
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
