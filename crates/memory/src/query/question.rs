//! Parses a question by rules, without a model.
//!
//! `What did Ada say about the Tin Drum in 2024?` names an actor, a verb of speech, a target and a time. All other
//! words become search terms. The result has the form of a model's search query, with less in it.

use chrono::{Datelike, NaiveDate};

use crate::query::search_query::{
    ActionTerm, Date, DateTime, DateTimeRange, EntityTerm, SearchExpression, SearchFilter, SearchQuery,
    VerbsTerm,
};
use crate::query::time;
use crate::store::similar::is_stop_word;

/// The first day of time ranges without a beginning.
const FIRST_DAY: NaiveDate = match NaiveDate::from_ymd_opt(1, 1, 1) {
    Some(date) => date,
    None => NaiveDate::MIN,
};

/// Question words, which carry no search term.
const ASKING: [&str; 44] = [
    "about",
    "all",
    "any",
    "anything",
    "are",
    "can",
    "could",
    "describe",
    "did",
    "do",
    "does",
    "else",
    "explain",
    "find",
    "give",
    "has",
    "have",
    "how",
    "in",
    "is",
    "list",
    "many",
    "me",
    "much",
    "name",
    "names",
    "on",
    "overview",
    "please",
    "show",
    "some",
    "something",
    "summarise",
    "summarize",
    "tell",
    "was",
    "were",
    "what",
    "when",
    "where",
    "which",
    "who",
    "whom",
    "why",
];

/// Verbs of speech, and their nouns. A statement about something has a speaker and a subject.
const SPEAKING: [&str; 29] = [
    "asked",
    "claimed",
    "comment",
    "commented",
    "discuss",
    "discussed",
    "explained",
    "mention",
    "mentioned",
    "opinion",
    "opinions",
    "said",
    "say",
    "saying",
    "says",
    "speak",
    "speaks",
    "spoke",
    "talk",
    "talked",
    "talking",
    "talks",
    "tell",
    "think",
    "thinks",
    "thought",
    "thoughts",
    "told",
    "views",
];

/// Pronouns, which are not names.
const PRONOUNS: [&str; 9] = [
    "anybody", "anyone", "he", "i", "she", "they", "we", "you", "everyone",
];

/// Words that may stand inside a name.
const INSIDE_NAMES: [&str; 9] = ["and", "de", "der", "for", "in", "la", "of", "the", "van"];

/// The parts of a question that the rules recognise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Understood {
    /// The search query.
    pub query: SearchQuery,
    /// The words that do not name a time.
    pub words: Vec<String>,
    /// The time that the question names.
    pub time_range: Option<DateTimeRange>,
}

/// Parses a question into a search query.
pub fn parse_question(question: &str) -> SearchQuery {
    understand(question, None).query
}

/// Parses a question. `newest` is the day from which `last week` and the like count.
pub fn understand(question: &str, newest: Option<NaiveDate>) -> Understood {
    let (words, time_range) = take_time(words(question), newest);
    let phrases = phrases(&words);
    let filter = SearchFilter {
        time_range: time_range.clone(),
        ..spoken(&words, &phrases).unwrap_or_else(|| search_terms(&phrases))
    };
    Understood {
        query: SearchQuery {
            search_expressions: vec![SearchExpression {
                rewritten_query: question.trim().to_owned(),
                filters: vec![filter],
            }],
        },
        words: words.into_iter().map(|word| word.text).collect(),
        time_range,
    }
}

/// Finds the names in a question, in order: runs of capitalised words, and quoted texts.
pub(crate) fn names(question: &str) -> Vec<String> {
    let phrases = phrases(&words(question)).into_iter();
    phrases
        .filter(|phrase| phrase.is_name)
        .map(|phrase| phrase.text)
        .collect()
}

/// A word of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    text: String,
    /// The number of the quotation that the word stands in. The words of one quotation are one name.
    quote: Option<usize>,
    is_first: bool,
    /// Whether punctuation follows that ends a name.
    ends_phrase: bool,
}

impl Word {
    fn lower(&self) -> String {
        self.text.to_lowercase()
    }

    fn is_capitalized(&self) -> bool {
        self.text.chars().next().is_some_and(char::is_uppercase)
    }
}

fn words(question: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut quote: Option<usize> = None;
    let mut quotes = 0;
    for piece in question.split_whitespace() {
        let opens = piece.starts_with(['\'', '"', '‘', '“']);
        if opens && quote.is_none() {
            quotes += 1;
            quote = Some(quotes);
        }
        let inner = piece.trim_matches(|letter: char| !letter.is_alphanumeric());
        let bare = inner
            .strip_suffix("'s")
            .or_else(|| inner.strip_suffix("’s"))
            .unwrap_or(inner);
        if !bare.is_empty() {
            words.push(Word {
                text: bare.to_owned(),
                quote,
                is_first: words.is_empty(),
                ends_phrase: piece.ends_with([',', '.', ';', ':', '?', '!']) || bare.len() < inner.len(),
            });
        }
        let rest = piece.trim_end_matches([',', '.', ';', ':', '?', '!']);
        if rest.ends_with(['\'', '"', '’', '”']) {
            quote = None;
        }
    }
    words
}

/// A name, or a run of words that belong together, with the range of its words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Phrase {
    text: String,
    is_name: bool,
    start: usize,
    end: usize,
}

fn phrases(words: &[Word]) -> Vec<Phrase> {
    let mut phrases = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let end = name_end(words, at);
        if end > at {
            phrases.push(phrase(words, at, end, true));
            at = end;
            continue;
        }
        let start = at;
        while at < words.len() && is_content(&words[at]) && name_end(words, at) == at {
            at += 1;
            if words[at - 1].ends_phrase {
                break;
            }
        }
        if at > start {
            phrases.push(phrase(words, start, at, false));
        } else {
            at += 1;
        }
    }
    phrases
}

fn phrase(words: &[Word], start: usize, end: usize, is_name: bool) -> Phrase {
    assert!(
        start < end && end <= words.len(),
        "a phrase has words of the question"
    );
    let texts: Vec<&str> = words[start..end].iter().map(|word| word.text.as_str()).collect();
    Phrase {
        text: texts.join(" "),
        is_name,
        start,
        end,
    }
}

/// Finds the end of the name that begins at a word; `start` if none begins there.
fn name_end(words: &[Word], start: usize) -> usize {
    if let Some(quote) = words[start].quote {
        let same = words[start..].iter().take_while(|word| word.quote == Some(quote));
        return start + same.count();
    }
    let begins = |word: &Word| {
        word.is_capitalized()
            && word.quote.is_none()
            && (!word.is_first || is_content(word))
            && !PRONOUNS.contains(&word.lower().as_str())
    };
    if !begins(&words[start]) {
        return start;
    }
    let mut end = start + 1;
    while end < words.len() && !words[end - 1].ends_phrase {
        if begins(&words[end]) {
            end += 1;
            continue;
        }
        // `of the` continues a name only if another capitalised word follows.
        let inside = words[end..]
            .iter()
            .take_while(|word| INSIDE_NAMES.contains(&word.text.as_str()) && !word.ends_phrase)
            .count();
        if inside == 0 || !words.get(end + inside).is_some_and(begins) {
            break;
        }
        end += inside + 1;
    }
    assert!(end <= words.len(), "a name ends in the question");
    end
}

fn is_content(word: &Word) -> bool {
    let lower = word.lower();
    let lower = lower.as_str();
    !ASKING.contains(&lower)
        && !SPEAKING.contains(&lower)
        && !PRONOUNS.contains(&lower)
        && !is_stop_word(lower)
}

/// Finds the speaker and the subject of speech, if the question is about speech.
fn spoken(words: &[Word], phrases: &[Phrase]) -> Option<SearchFilter> {
    let verb_at = words.iter().enumerate().position(|(at, word)| {
        // At the beginning, `Tell me …` is a request.
        at > 0 && SPEAKING.contains(&word.lower().as_str())
    })?;
    let actors: Vec<EntityTerm> = phrases
        .iter()
        .filter(|phrase| phrase.is_name && phrase.end <= verb_at)
        .map(|phrase| entity(&phrase.text))
        .collect();
    if actors.is_empty() {
        return None;
    }
    let targets: Vec<EntityTerm> = phrases
        .iter()
        .filter(|phrase| phrase.start > verb_at)
        .map(|phrase| entity(&phrase.text))
        .collect();
    Some(SearchFilter {
        action_search_term: Some(ActionTerm {
            action_verbs: Some(VerbsTerm {
                words: vec!["say".to_owned()],
                tense: "Past".to_owned(),
            }),
            actor_entities: Some(actors),
            target_entities: (!targets.is_empty()).then_some(targets),
            ..ActionTerm::default()
        }),
        ..SearchFilter::default()
    })
}

fn entity(name: &str) -> EntityTerm {
    EntityTerm {
        name: name.to_owned(),
        ..EntityTerm::default()
    }
}

/// Makes a search term of every phrase, and of every word of a phrase that is not a name.
fn search_terms(phrases: &[Phrase]) -> SearchFilter {
    let mut terms: Vec<String> = Vec::new();
    for phrase in phrases {
        let words = phrase.text.split(' ').filter(|_| !phrase.is_name);
        for text in std::iter::once(phrase.text.as_str()).chain(words) {
            if !terms.iter().any(|term| term == text) {
                terms.push(text.to_owned());
            }
        }
    }
    SearchFilter {
        search_terms: (!terms.is_empty()).then_some(terms),
        ..SearchFilter::default()
    }
}

// --- times ---

/// Removes the words of the first time from the question.
fn take_time(mut words: Vec<Word>, newest: Option<NaiveDate>) -> (Vec<Word>, Option<DateTimeRange>) {
    let lower: Vec<String> = words.iter().map(Word::lower).collect();
    let Some((told_by, span)) = time::find(&lower, newest) else {
        return (words, None);
    };
    assert!(
        told_by.end <= words.len(),
        "a time is named by words of the question"
    );
    let is_first = told_by.start == 0;
    words.drain(told_by);
    if let (true, Some(word)) = (is_first, words.first_mut()) {
        word.is_first = true;
    }
    let range = DateTimeRange {
        start_date: day(span.start.unwrap_or(FIRST_DAY)),
        stop_date: span.end.map(day),
    };
    (words, Some(range))
}

fn day(date: NaiveDate) -> DateTime {
    DateTime {
        date: Date {
            day: date.day(),
            month: date.month(),
            year: date.year(),
        },
        time: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(question: &str) -> SearchFilter {
        parse_question(question)
            .search_expressions
            .remove(0)
            .filters
            .remove(0)
    }

    fn terms(question: &str) -> Vec<String> {
        filter(question).search_terms.unwrap_or_default()
    }

    #[test]
    fn finds_names_and_phrases() {
        assert_eq!(terms("List all books"), ["books"]);
        assert_eq!(
            terms("Which bees live in the Garden of Eden, or near Ada Lovelace?"),
            [
                "bees live",
                "bees",
                "live",
                "Garden of Eden",
                "near",
                "Ada Lovelace"
            ]
        );
        assert_eq!(
            terms("Tell me about 'the tin drum' and jazz"),
            ["the tin drum", "jazz"]
        );
        assert_eq!(filter("What is it all about?").search_terms, None);
    }

    #[test]
    fn finds_the_speaker_and_the_subject() {
        let filter = filter("What did Ada say about the Tin Drum and bees?");
        let action = filter.action_search_term.expect("an action");
        let names = |entities: Option<Vec<EntityTerm>>| -> Vec<String> {
            entities
                .unwrap_or_default()
                .into_iter()
                .map(|entity| entity.name)
                .collect()
        };
        assert_eq!(names(action.actor_entities), ["Ada"]);
        assert_eq!(names(action.target_entities), ["Tin Drum", "bees"]);
        assert_eq!(
            names(
                super::tests::filter("Summarize Ada's thoughts on bees")
                    .action_search_term
                    .expect("an action")
                    .actor_entities
            ),
            ["Ada"]
        );
    }

    #[test]
    fn finds_times() {
        let range = |question: &str| filter(question).time_range.map(|range| range.in_zone(0));
        let may = range("What happened in May 2023?").flatten().expect("a month");
        assert_eq!(may.start.to_string(), "2023-05-01T00:00:00.000Z");
        assert_eq!(
            may.end.map(|end| end.to_string()).as_deref(),
            Some("2023-06-01T00:00:00.000Z")
        );
        let open = range("Mails since 2024").flatten().expect("a year");
        assert_eq!(open.end, None);
        assert!(range("What happened on 2023-05-01?").flatten().is_some());
        assert_eq!(range("Who owns 2023 bees?"), None);
    }
}
