//! Recall: finds messages and knowledge for a search query.
//!
//! Messages are ranked by [their texts](text). A query is [compiled](mod@crate::query::compile), its terms get [related
//! terms](related), and the term groups are [evaluated](evaluate) over the postings. This gives matched refs, and then
//! the messages in which they occur. Each step asks the store once, for any number of terms.

mod best;
mod distinct;
pub mod evaluate;
mod fuse;
mod head;
mod highlights;
pub mod matches;
pub mod nearest;
mod places;
pub mod rank;
pub mod related;
mod rerank;
pub mod text;
pub mod weights;

use std::collections::HashSet;
use std::sync::Arc;

use chrono::NaiveDate;
use gristmill_model::Timestamp;
use serde::Serialize;

use crate::embed::CrossEncoder;
use crate::error::MemoryError;
use crate::knowledge::{KnowledgeKind, RefOrdinal, SemanticRef};
use crate::limits::{HEAD_MESSAGES, MESSAGES_DEFAULT, REFS_DEFAULT, RERANKED_MESSAGES};
use crate::message::{MessageOrdinal, TimeRange, thread_number};
use crate::property::Property;
use crate::query::search_query::DateTimeRange;
use crate::query::{CompileOptions, Expression, SearchQuery, compile, understand};
use crate::recall::matches::Matches;
use crate::store::{Columns, KnowledgeStore, StoredMessage, blocking};
use crate::words::{speaker_word, split};
use fuse::{Fusion, Ranking, Scope};
pub use highlights::Highlight;
use highlights::highlights;
pub use places::OtherPlace;
pub use related::{RecordedRelations, Relations};
pub(crate) use rerank::put_first;
use text::TextQuestion;
pub use weights::Weights;

/// Options of a recall.
#[derive(Debug, Clone, PartialEq)]
pub struct RecallOptions {
    /// Maximum number of messages; all if `None`.
    pub messages_max: Option<usize>,
    /// Maximum number of refs of each kind; all if `None`.
    pub refs_max: Option<usize>,
    /// The offset from UTC of times in questions, in minutes; the zone of the first source if `None`.
    pub zone_minutes: Option<i16>,
    /// Recalls only messages with one of these tags; all messages if empty.
    pub tags: Vec<String>,
    /// Recalls only messages of this time, unless the question names a time.
    pub time_range: Option<TimeRange>,
    /// Recalls only messages of these sources, or of sources in these folders; of all if empty.
    pub sources: Vec<String>,
    /// Recalls only messages of these speakers; of all if empty. One of several names is enough: `King` is `Ada King`.
    pub speakers: Vec<String>,
    /// Recalls only messages of these threads; of all if empty.
    pub threads: Vec<String>,
    /// Whether each message tells the parts of its score.
    pub explain: bool,
    /// Ranks the first messages again.
    pub reranker: Option<CrossEncoder>,
    /// The weights of the ranking of messages.
    pub weights: Weights,
}

impl Default for RecallOptions {
    fn default() -> Self {
        RecallOptions {
            messages_max: Some(MESSAGES_DEFAULT),
            refs_max: Some(REFS_DEFAULT),
            zone_minutes: None,
            tags: Vec::new(),
            time_range: None,
            sources: Vec::new(),
            speakers: Vec::new(),
            threads: Vec::new(),
            explain: false,
            reranker: None,
            weights: Weights::default(),
        }
    }
}

impl RecallOptions {
    /// Whether the options say which messages are wanted, so that no question needs to.
    fn is_limited(&self) -> bool {
        self.time_range.is_some() || !self.tags.is_empty() || self.is_named()
    }

    /// Whether the options name sources, speakers or threads.
    fn is_named(&self) -> bool {
        let names = [&self.sources, &self.speakers, &self.threads];
        names.iter().any(|names| !names.is_empty())
    }
}

/// The matches of one select expression.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// Refs by kind, best first.
    pub refs: Vec<(KnowledgeKind, Vec<Scored<RefOrdinal>>)>,
    /// The messages in which the refs occur, best first.
    pub messages: Vec<Scored<MessageOrdinal>>,
}

impl Found {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.messages.is_empty()
    }

    /// The refs of one kind.
    pub fn of(&self, kind: KnowledgeKind) -> &[Scored<RefOrdinal>] {
        let found = self.refs.iter().find(|(found, _)| *found == kind);
        found.map_or(&[], |(_, refs)| refs)
    }
}

/// A value with its score. A higher score is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scored<T> {
    /// The value.
    pub value: T,
    /// The score.
    pub score: f64,
}

/// A message that answers a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecalledMessage {
    /// The score. A higher one is better.
    pub score: f64,
    /// The message.
    #[serde(flatten)]
    pub message: StoredMessage,
    /// The places of its copies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_in: Vec<OtherPlace>,
    /// The places of the question's words in its text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub highlights: Vec<Highlight>,
    /// The parts of the score, which is their sum, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub explanation: Vec<Gain>,
    #[serde(skip)]
    is_explained: bool,
}

impl RecalledMessage {
    /// A message with a score.
    pub fn new(score: f64, message: StoredMessage) -> RecalledMessage {
        RecalledMessage {
            score,
            message,
            also_in: Vec::new(),
            highlights: Vec::new(),
            explanation: Vec::new(),
            is_explained: false,
        }
    }

    /// Adds a part to the score.
    pub(crate) fn gain(&mut self, part: &'static str, gain: f64) {
        self.score += gain;
        if self.is_explained && gain != 0.0 {
            self.explanation.push(Gain { part, gain });
        }
    }
}

/// A part of a score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// The part of the score.
    pub part: &'static str,
    /// The amount that it adds to the score; negative if it lowers the score.
    pub gain: f64,
}

/// Knowledge that answers a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecalledRef {
    /// The score. A higher one is better.
    pub score: f64,
    /// The knowledge.
    #[serde(flatten)]
    pub reference: SemanticRef,
}

/// The results of a question.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Recalled {
    /// Messages, best first.
    pub messages: Vec<RecalledMessage>,
    /// Entities, actions, topics and tags, best first within each kind.
    pub knowledge: Vec<RecalledRef>,
    /// The search query.
    pub query: SearchQuery,
}

/// Recalls messages and knowledge for a question, without a model: rules parse it.
pub async fn recall(
    store: &dyn KnowledgeStore,
    question: &str,
    options: &RecallOptions,
) -> Result<Recalled, MemoryError> {
    recall_query(store, question, None, &Relations::Stored, options).await
}

/// Recalls messages and knowledge for a question. `query` is the search query of a model. Without it, rules parse the
/// question.
///
/// Messages are ranked by [their texts](text). The match of the query adds to the score, and so does the meaning if
/// there is an embedder. Knowledge is ranked by the match of the query and by the messages in which it occurs.
pub async fn recall_query(
    store: &dyn KnowledgeStore,
    question: &str,
    query: Option<SearchQuery>,
    relations: &Relations<'_>,
    options: &RecallOptions,
) -> Result<Recalled, MemoryError> {
    let relations = &relations.fitting(store).await?;
    let compile_options = compile_options(store, options).await?;
    let columns = store.columns().await?;
    let zone = compile_options.zone_minutes;
    let understood = understand(question, columns.newest().and_then(|at| day_of(at, zone)));
    let query = query.unwrap_or(understood.query);
    let embedder = match relations {
        Relations::Embedded(embedder) => Some(*embedder),
        _ => None,
    };
    let by_text = TextQuestion {
        text: question.to_owned(),
        words: understood.words,
        is_listing: question.trim().is_empty() && options.is_limited(),
        time: understood
            .time_range
            .or_else(|| time_of(&query))
            .and_then(|range| range.in_zone(zone))
            .or(options.time_range.filter(|_| question.trim().is_empty())),
    };
    let weights = options.weights;
    let ((text, columns), matched) = tokio::try_join!(
        text::score(
            store,
            by_text,
            embedder,
            columns.languages(),
            weights,
            options.explain
        ),
        match_query(store, &query, relations, &compile_options),
    )?;
    let fusion = Arc::new(Fusion { text, columns });
    let mut ranking = Ranking::new(fusion.clone(), scope(store, &fusion.columns, options).await?);
    let mut refs = Vec::new();
    for matched in matched.into_iter().flatten() {
        // What the options leave out is no part of the best.
        let refs_max = options.refs_max.filter(|_| !options.is_named());
        let mut found = matched.rank_with_texts(&fusion, refs_max).await?;
        if options.is_named() {
            found
                .refs
                .iter_mut()
                .for_each(|(_, refs)| ranking.retain_named(refs));
        }
        if !fusion.text.is_for_all() {
            ranking.add_matches(&found.messages, &weights);
        }
        refs.extend(found.refs);
    }
    let is_ranked = !fusion.text.is_for_all();
    // More than asked for, because copies become one.
    let head = options.messages_max.map(|max| max.max(HEAD_MESSAGES));
    let best = ranking.best(head);
    let reranker = options.reranker.as_ref().filter(|_| is_ranked);
    let ranked_max = options.messages_max.map(|max| match reranker {
        Some(_) => max.max(RERANKED_MESSAGES),
        None => max,
    });
    let messages = ranked_messages(store, fusion, best, is_ranked, ranked_max, options);
    let (mut messages, knowledge) = tokio::try_join!(messages, load_refs(store, refs, options))?;
    if let Some(encoder) = reranker {
        rerank::rerank(encoder, question, &mut messages).await?;
        messages.truncate(options.messages_max.unwrap_or(usize::MAX));
    }
    Ok(Recalled {
        messages,
        knowledge,
        query,
    })
}

/// Reads the best messages, and ranks the first of them again by their texts if `is_ranked` is set.
async fn ranked_messages(
    store: &dyn KnowledgeStore,
    fusion: Arc<Fusion>,
    best: Vec<Scored<MessageOrdinal>>,
    is_ranked: bool,
    messages_max: Option<usize>,
    options: &RecallOptions,
) -> Result<Vec<RecalledMessage>, MemoryError> {
    let mut messages = load_messages(store, &best).await?;
    if options.explain {
        messages
            .iter_mut()
            .for_each(|message| explain(message, &fusion.text));
    }
    let weights = options.weights;
    blocking(move || {
        let asked = fusion.text.asked();
        let mut messages = places::unite(messages);
        if is_ranked {
            head::rerank(&mut messages, &weights, asked, &fusion.columns);
        }
        messages.truncate(messages_max.unwrap_or(usize::MAX));
        for message in &mut messages {
            message.highlights = highlights(&message.message.message, asked);
        }
        Ok(messages)
    })
    .await
}

/// Tells the parts of a score before the second ranking.
fn explain(message: &mut RecalledMessage, texts: &text::TextScores) {
    let by_text = texts.gains(message.message.ordinal.0);
    let known = message.score - by_text.iter().map(|(_, gain)| gain).sum::<f64>();
    let parts = by_text.into_iter().chain([("knowledge", known)]);
    let parts = parts.filter(|(_, gain)| gain.abs() > 1e-12);
    message.explanation = parts.map(|(part, gain)| Gain { part, gain }).collect();
    message.is_explained = true;
}

/// The first time in a query.
fn time_of(query: &SearchQuery) -> Option<DateTimeRange> {
    let filters = query
        .search_expressions
        .iter()
        .flat_map(|expression| &expression.filters);
    filters.filter_map(|filter| filter.time_range.clone()).next()
}

/// The day of an instant, for clocks that are `zone_minutes` ahead of UTC.
fn day_of(at: Timestamp, zone_minutes: i16) -> Option<NaiveDate> {
    let local = at.0.checked_add(i64::from(zone_minutes) * 60_000)?;
    Some(chrono::DateTime::from_timestamp_millis(local)?.date_naive())
}

/// Finds the messages that the options allow for any question.
async fn scope(
    store: &dyn KnowledgeStore,
    columns: &Columns,
    options: &RecallOptions,
) -> Result<Scope, MemoryError> {
    let mut tagged = None;
    if !options.tags.is_empty() {
        let tags = options.tags.iter().map(|tag| tag.to_lowercase()).collect();
        let postings = store.postings(tags).await?;
        let refs = postings.iter().flat_map(|postings| postings.of(Property::Tag));
        tagged = Some(refs.copied().collect());
    }
    Ok(Scope {
        tagged,
        time_range: options.time_range,
        sources: sources(columns, &options.sources)?,
        spoken: spoken(store, &options.speakers).await?,
        threads: (!options.threads.is_empty()).then(|| {
            options
                .threads
                .iter()
                .map(|thread| thread_number(thread))
                .collect()
        }),
    })
}

/// The numbers of the named sources; all sources are meant if `None`.
fn sources(columns: &Columns, names: &[String]) -> Result<Option<HashSet<u32>>, MemoryError> {
    let mut all = HashSet::new();
    for name in names {
        let named = columns.sources_named(name);
        if named.is_empty() {
            return Err(MemoryError::SourceUnknown(name.clone()));
        }
        all.extend(named);
    }
    Ok((!names.is_empty()).then_some(all))
}

/// The messages of the speakers with these names; of all speakers if `None`.
async fn spoken(store: &dyn KnowledgeStore, names: &[String]) -> Result<Option<HashSet<u32>>, MemoryError> {
    let mut all = HashSet::new();
    for name in names {
        let mut found = store.messages_with(speaker_words(name)).await?.into_iter();
        let mut of_all_words: HashSet<u32> = found.next().into_iter().flatten().collect();
        for messages in found {
            let messages: HashSet<u32> = messages.into_iter().collect();
            of_all_words.retain(|message| messages.contains(message));
        }
        all.extend(of_all_words);
    }
    Ok((!names.is_empty()).then_some(all))
}

/// The words of a speaker's name, each once: each costs the list of its messages.
fn speaker_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = split(name).map(|word| speaker_word(&word)).collect();
    words.sort_unstable();
    words.dedup();
    words
}

async fn load_messages(
    store: &dyn KnowledgeStore,
    scored: &[Scored<MessageOrdinal>],
) -> Result<Vec<RecalledMessage>, MemoryError> {
    let ordinals = scored.iter().map(|message| message.value).collect();
    let loaded = store.messages(ordinals).await?;
    let count = loaded.len();
    let mut scores = scored.iter();
    let messages = loaded.into_iter().filter_map(|message| {
        let scored = scores.find(|scored| scored.value == message.ordinal)?;
        Some(RecalledMessage::new(scored.score, message))
    });
    let messages: Vec<RecalledMessage> = messages.collect();
    assert_eq!(
        messages.len(),
        count,
        "the store returns messages in the requested order"
    );
    Ok(messages)
}

async fn load_refs(
    store: &dyn KnowledgeStore,
    found: Vec<(KnowledgeKind, Vec<Scored<RefOrdinal>>)>,
    options: &RecallOptions,
) -> Result<Vec<RecalledRef>, MemoryError> {
    let mut scored = Vec::new();
    for kind in KnowledgeKind::ALL {
        let of_kind = found.iter().filter(|(found, _)| *found == kind);
        let mut refs: Vec<Scored<RefOrdinal>> = of_kind.flat_map(|(_, refs)| refs).copied().collect();
        best_once(&mut refs, |reference| reference.value);
        refs.truncate(options.refs_max.unwrap_or(usize::MAX));
        scored.extend(refs);
    }
    let ordinals = scored.iter().map(|reference| reference.value).collect();
    let loaded = store.refs(ordinals).await?;
    let count = loaded.len();
    let mut scores = scored.iter();
    let refs = loaded.into_iter().filter_map(|reference| {
        let scored = scores.find(|scored| scored.value == reference.ordinal)?;
        Some(RecalledRef {
            score: scored.score,
            reference,
        })
    });
    let refs: Vec<RecalledRef> = refs.collect();
    assert_eq!(refs.len(), count, "the store returns refs in the requested order");
    Ok(refs)
}

/// Sorts by score, best first, and keeps the best item of each key.
fn best_once<T: Copy, K: std::hash::Hash + Eq + Ord + Copy>(
    scored: &mut Vec<Scored<T>>,
    key: impl Fn(&Scored<T>) -> K,
) {
    scored.sort_by(|left, right| {
        right
            .score
            .total_cmp(&left.score)
            .then_with(|| key(left).cmp(&key(right)))
    });
    let mut seen = HashSet::new();
    scored.retain(|item| seen.insert(key(item)));
}

/// Searches for a query. Returns a list for each search expression, with the result of each select expression. An
/// expression without any result is searched again without its verb.
pub async fn search(
    store: &dyn KnowledgeStore,
    query: &SearchQuery,
    relations: &Relations<'_>,
    options: &RecallOptions,
) -> Result<Vec<Vec<Found>>, MemoryError> {
    let compile_options = compile_options(store, options).await?;
    let matched = match_query(store, query, relations, &compile_options).await?;
    let mut results = Vec::with_capacity(matched.len());
    for matched in matched {
        let mut found = Vec::with_capacity(matched.len());
        for matched in matched {
            found.push(matched.rank(options).await?);
        }
        results.push(found);
    }
    Ok(results)
}

/// The matches of a select expression.
struct Matched {
    matches: Matches,
    /// The columns that have all matched refs.
    columns: Arc<Columns>,
}

impl Matched {
    async fn rank(self, options: &RecallOptions) -> Result<Found, MemoryError> {
        let (refs_max, messages_max) = (options.refs_max, options.messages_max);
        blocking(move || Ok(rank::rank(&self.matches, &self.columns, refs_max, messages_max))).await
    }

    async fn rank_with_texts(
        self,
        fusion: &Arc<Fusion>,
        refs_max: Option<usize>,
    ) -> Result<Found, MemoryError> {
        let fusion = fusion.clone();
        blocking(move || {
            Ok(rank::rank_with_texts(
                &self.matches,
                &self.columns,
                &fusion.text,
                refs_max,
            ))
        })
        .await
    }
}

/// Compiles and evaluates a query. Returns a list for each search expression, with the matches of each select
/// expression. An expression without any match is evaluated again without its verb.
async fn match_query(
    store: &dyn KnowledgeStore,
    query: &SearchQuery,
    relations: &Relations<'_>,
    options_strict: &CompileOptions,
) -> Result<Vec<Vec<Matched>>, MemoryError> {
    let options_loose = CompileOptions {
        verb_scope: false,
        ..options_strict.clone()
    };
    let strict = compile(query, options_strict);
    let loose = compile(query, &options_loose);
    assert_eq!(strict.len(), loose.len(), "both forms have the same expressions");
    let mut results = Vec::with_capacity(strict.len());
    for (strict, loose) in strict.into_iter().zip(loose) {
        let is_different = strict != loose;
        let mut matched = match_expression(store, strict, relations).await?;
        if is_different && matched.iter().all(|matched| matched.matches.is_empty()) {
            matched = match_expression(store, loose, relations).await?;
        }
        results.push(matched);
    }
    Ok(results)
}

/// Chooses the options of compilation for queries to this store.
pub async fn compile_options(
    store: &dyn KnowledgeStore,
    options: &RecallOptions,
) -> Result<CompileOptions, MemoryError> {
    let zone_minutes = match options.zone_minutes {
        Some(zone_minutes) => zone_minutes,
        None => {
            let sources = store.sources().await?;
            let told = sources.iter().find_map(|source| source.zone_minutes);
            told.unwrap_or_default()
        }
    };
    Ok(CompileOptions {
        verb_scope: true,
        zone_minutes,
        tags: options.tags.clone(),
        time_range: options.time_range,
    })
}

async fn match_expression(
    store: &dyn KnowledgeStore,
    expression: Expression,
    relations: &Relations<'_>,
) -> Result<Vec<Matched>, MemoryError> {
    let mut matched = Vec::with_capacity(expression.select_expressions.len());
    for mut select in expression.select_expressions {
        related::expand(store, &mut select, relations).await?;
        let texts = evaluate::texts(&select);
        // The columns are read last. A commit in between may add refs to the columns that the postings lack, which is
        // harmless.
        let postings = store.postings(texts.clone()).await?;
        let columns = store.columns().await?;
        let evaluated = blocking(move || {
            let matches = evaluate::evaluate(&select, &columns, texts, &postings)?;
            Ok(Matched { matches, columns })
        });
        matched.push(evaluated.await?);
    }
    Ok(matched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_name_is_looked_up_once() {
        let name = "Ada king ADA ".repeat(1_000);
        assert_eq!(speaker_words(&name), ["ada", "king"].map(speaker_word));
    }
}
