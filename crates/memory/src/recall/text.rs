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
use crate::recall::weights::{KindWeights, Weights};
use crate::source::SourceKind;
use crate::store::conversations::Conversations;
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

/// `what`, in the languages of [`HAPPENED`].
const WHAT: [&str; 17] = [
    "was", "que", "qu", "quoi", "qué", "cosa", "che", "wat", "vad", "hvad", "hva", "mitä", "что", "ne",
    "neler", "τι", "ماذا",
];

/// `happened`, in the languages whose words are stemmed. Some are words of other meanings, too: `los`, `hände`.
const HAPPENED: [&str; 32] = [
    "geschah",
    "geschehen",
    "passierte",
    "passiert",
    "ereignete",
    "los",
    "passé",
    "arrivé",
    "pasó",
    "ocurrió",
    "sucedió",
    "successo",
    "accaduto",
    "accadde",
    "aconteceu",
    "ocorreu",
    "gebeurde",
    "gebeurd",
    "hände",
    "hänt",
    "skedde",
    "skete",
    "sket",
    "skjedde",
    "skjedd",
    "tapahtui",
    "произошло",
    "случилось",
    "oldu",
    "συνέβη",
    "έγινε",
    "حدث",
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
    /// Whether all messages are wanted that the options allow.
    pub is_listing: bool,
}

/// A word of the question, as a text is searched for it.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedWord {
    /// Its indexed forms, one for each language of the messages.
    pub forms: Vec<String>,
    /// Its weight: how rare it is.
    pub weight: f64,
}

/// What the scores were after a step, by the messages' numbers.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    name: &'static str,
    scores: Vec<f64>,
}

/// The scores of all messages, by their numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TextScores {
    scores: Vec<f64>,
    best: f64,
    is_for_all: bool,
    asked: Vec<AskedWord>,
    /// The scores after each step, in the order of steps; none unless they are to be explained.
    steps: Vec<Step>,
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

    /// The words of the question that messages have, in its order; behind them, those that misspelt ones mean.
    pub fn asked(&self) -> &[AskedWord] {
        &self.asked
    }

    /// What each step of scoring added to the score of a message, in the order of steps.
    pub fn gains(&self, message: u32) -> Vec<(&'static str, f64)> {
        let mut before = 0.0;
        let steps = self.steps.iter().map(|step| {
            let now = step.scores.get(message as usize).copied().unwrap_or(0.0);
            (step.name, now - std::mem::replace(&mut before, now))
        });
        steps.collect()
    }

    /// The score of the best message.
    pub fn best(&self) -> f64 {
        self.best
    }
}

/// A word of the question with the messages in which it stands.
struct Asked {
    /// Its indexed forms.
    forms: Vec<String>,
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
    is_explained: bool,
) -> Result<(TextScores, Arc<Columns>), MemoryError> {
    let text = question.text.clone();
    let mut looked_up = LookedUp::new(store, question, languages, weights).await?;
    looked_up.is_explained = is_explained;
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
    is_explained: bool,
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
        let has = |list: &[&str]| {
            let mut words = question.words.iter().flat_map(|word| split(word));
            words.any(|word| list.contains(&word.as_str()))
        };
        let asks_what_happened = question.time.is_some() && has(&HAPPENED) && has(&WHAT);
        for (word, (at, count)) in words.iter().zip(forms) {
            let by_speaker = std::mem::take(&mut found[at + count]);
            let is_speaker = !by_speaker.is_empty();
            spoken.extend(by_speaker);
            let messages = united(&mut found[at..at + count]);
            let asks_for_all = ASKING_FOR_ALL.contains(&word.as_str())
                || asks_what_happened
                    && (HAPPENED.contains(&word.as_str()) || Language::has_function_word(word));
            is_for_all &= is_speaker || asks_for_all;
            if messages.is_empty() && !is_speaker && !asks_for_all {
                unknown.extend(lookups[at..at + count].iter().cloned());
            }
            let weight = if is_speaker { weights.name } else { 1.0 };
            asked.push(Asked {
                forms: lookups[at..at + count].to_vec(),
                messages,
                weight,
            });
            names.extend(is_speaker.then(|| word.clone()));
        }
        for (form, messages) in corrected(store, unknown).await? {
            asked.push(Asked {
                forms: vec![form],
                messages,
                weight: weights.spelling,
            });
        }
        spoken.sort_unstable();
        spoken.dedup();
        Ok(LookedUp {
            is_for_all: question.is_listing || is_for_all && (question.time.is_some() || !spoken.is_empty()),
            words: asked,
            names,
            spoken,
            time: question.time,
            nearest: Vec::new(),
            weights,
            is_explained: false,
        })
    }

    fn score(&self, columns: &Columns) -> TextScores {
        if !self.is_for_all
            && self.nearest.is_empty()
            && self.words.iter().all(|word| word.messages.is_empty())
        {
            return TextScores::default();
        }
        let mut steps = Steps {
            steps: self.is_explained.then(Vec::new),
        };
        let mut scores = if self.is_for_all {
            self.all(columns)
        } else {
            self.by_signs(columns, &mut steps)
        };
        steps.add("listed", &scores, self.is_for_all);
        if let Some(time) = self.time {
            for (message, score) in (0..).zip(&mut scores) {
                if *score > 0.0 && columns.time(message).is_some_and(|at| time.contains(at)) {
                    *score *= self.weights.time;
                }
            }
            steps.add("time", &scores, true);
        }
        TextScores {
            best: scores.iter().copied().fold(0.0, f64::max),
            is_for_all: self.is_for_all,
            asked: self.asked(columns),
            steps: steps.steps.unwrap_or_default(),
            scores,
        }
    }

    /// The words of the question that texts are searched for, with their weights.
    fn asked(&self, columns: &Columns) -> Vec<AskedWord> {
        let texts = f64::from(columns.message_count());
        let found = self.words.iter().filter(|word| !word.messages.is_empty());
        let asked = found.map(|word| AskedWord {
            forms: word.forms.clone(),
            weight: word.weight * rarity(texts, different(&word.messages) as f64),
        });
        asked.collect()
    }

    /// Scores messages by words and meaning, with neighbours and speakers.
    fn by_signs(&self, columns: &Columns, steps: &mut Steps) -> Vec<f64> {
        let conversations = columns.conversations();
        let WordScores {
            messages: mut own,
            conversations: by_conversation,
        } = self.by_words(columns, conversations);
        steps.add("words", &own, true);
        self.add_meaning(&mut own);
        steps.add("meaning", &own, !self.nearest.is_empty());
        let mut scores = with_neighbours(&own, columns, &self.weights);
        steps.add("neighbours", &scores, true);
        for (message, score) in (0..).zip(&mut scores) {
            if *score > 0.0 {
                let weight = self.weights.of(columns.source_kind(message)).conversation;
                *score += weight * by_conversation[conversations.of(message) as usize];
            }
        }
        steps.add("conversation", &scores, true);
        for (message, score) in (0..).zip(&mut scores) {
            let brevity = self.weights.of(columns.source_kind(message)).brevity;
            if *score > 0.0 && brevity > 0.0 {
                let length = f64::from(columns.length(message));
                *score *= length / (length + brevity);
            }
        }
        steps.add("brevity", &scores, true);
        for &message in &self.spoken {
            if let Some(score) = scores.get_mut(message as usize) {
                *score *= self.weights.speaker;
            }
        }
        steps.add("speaker", &scores, !self.spoken.is_empty());
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
                let is_in = |time: TimeRange| columns.time(message).is_some_and(|at| time.contains(at));
                *score = f64::from(self.time.is_none_or(is_in));
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
        let of_messages = Bm25::over(columns.message_count(), columns.mean_length(), &self.weights);
        let of_conversations = Bm25::over(conversations.count(), conversations.mean_length(), &self.weights);
        let is_for_conversations = self
            .weights
            .kinds
            .iter()
            .any(|weights| weights.conversation > 0.0);
        let (mut by_message, mut by_conversation, mut of_word) = (Vec::new(), Vec::new(), Vec::new());
        for word in &self.words {
            by_message.clear();
            of_word.clear();
            for &message in word
                .messages
                .iter()
                .filter(|&&message| columns.has_message(message))
            {
                count(&mut by_message, message);
                of_word.push(conversations.of(message));
            }
            let norm = |message| (columns.source_kind(message), columns.length(message));
            of_messages.add(&by_message, word.weight, norm, &mut scores.messages);
            if is_for_conversations {
                // The messages ascend, and so do their conversations, unless threads are mixed.
                if !of_word.is_sorted() {
                    of_word.sort_unstable();
                }
                by_conversation.clear();
                of_word
                    .iter()
                    .for_each(|&conversation| count(&mut by_conversation, conversation));
                let norm = |conversation| {
                    (
                        conversations.kind(conversation),
                        conversations.length(conversation),
                    )
                };
                of_conversations.add(&by_conversation, word.weight, norm, &mut scores.conversations);
            }
        }
        scores
    }
}

/// The scores after each step, if they are to be explained.
struct Steps {
    steps: Option<Vec<Step>>,
}

impl Steps {
    /// Keeps the scores after a step, if the step was made.
    fn add(&mut self, name: &'static str, scores: &[f64], is_made: bool) {
        if let Some(steps) = self.steps.as_mut().filter(|_| is_made) {
            steps.push(Step {
                name,
                scores: scores.to_vec(),
            });
        }
    }
}

/// Counts the different messages in an ascending list.
fn different(messages: &[u32]) -> usize {
    messages.chunk_by(|left, right| left == right).count()
}

/// The rarity of a word that so many of the texts have.
fn rarity(texts: f64, with_word: f64) -> f64 {
    (1.0 + (texts - with_word + 0.5).max(0.0) / (with_word + 0.5)).ln()
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
struct Bm25 {
    texts: f64,
    /// The parts of the formula for each kind of text.
    kinds: [Norm; SourceKind::ALL.len()],
}

/// What BM25 makes of the number of a word's occurrences in a text.
struct Norm {
    saturation: f64,
    /// The norm of a text without words, and the addition of each word.
    empty: f64,
    of_word: f64,
}

impl Bm25 {
    /// For so many texts with so many words each.
    fn over(texts: u32, mean_length: f64, weights: &Weights) -> Bm25 {
        let norm = |kind| {
            let KindWeights {
                saturation,
                length_share,
                ..
            } = *weights.of(kind);
            Norm {
                saturation,
                empty: saturation * (1.0 - length_share),
                of_word: saturation * length_share / mean_length,
            }
        };
        Bm25 {
            texts: f64::from(texts),
            kinds: SourceKind::ALL.map(norm),
        }
    }

    /// Adds the score of a word to the texts in which it occurs. `shape` gives the kind and length of a text.
    fn add(
        &self,
        counts: &[Counted],
        weight: f64,
        shape: impl Fn(u32) -> (SourceKind, u32),
        scores: &mut [f64],
    ) {
        let weight = weight * rarity(self.texts, counts.len() as f64);
        for &Counted { text, count } in counts {
            let count = f64::from(count);
            let (kind, length) = shape(text);
            let norm = &self.kinds[kind as usize];
            let norm_of_text = norm.empty + norm.of_word * f64::from(length);
            scores[text as usize] += weight * (norm.saturation + 1.0) * count / (count + norm_of_text);
        }
    }
}

/// Adds a part of each score to the neighbouring messages of the same conversation.
fn with_neighbours(own: &[f64], columns: &Columns, weights: &Weights) -> Vec<f64> {
    let conversations = columns.conversations();
    let mut scores = own.to_vec();
    for message in 0..own.len() as u32 {
        let mut other = message;
        for part in weights.of(columns.source_kind(message)).neighbours {
            let Some(next) = conversations.next(other) else {
                break;
            };
            other = next;
            scores[other as usize] += part * own[message as usize];
            scores[message as usize] += part * own[other as usize];
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
async fn corrected(
    store: &dyn KnowledgeStore,
    unknown: Vec<String>,
) -> Result<Vec<(String, Vec<u32>)>, MemoryError> {
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
        let found = store.messages_with(meant.clone()).await?;
        Ok(meant.into_iter().zip(found).collect())
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
