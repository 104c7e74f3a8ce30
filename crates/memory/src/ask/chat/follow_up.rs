//! Completes a follow-up question by rules, from the questions and answers before it.
//!
//! `she` and `he` stand for a person, `they` for several, `there` for a place, `then` and `that day` for a time. `And
//! in June?` or `What about Bob?` repeats the question before it with another time or person. A question with `it`, or
//! without any word of its own, is about the question before it.

use chrono::NaiveDate;

use crate::limits::CHAT_NAMES_MAX;
use crate::query::question::{self, understand};
use crate::words::{Language, split};

/// Maximum number of names that `they` stands for.
const SEVERAL_MAX: usize = 3;

/// Words that begin a partial question.
const LEADS: [&str; 10] = [
    "and what about",
    "and how about",
    "but what about",
    "what about",
    "how about",
    "and",
    "but",
    "or",
    "so",
    "also",
];

/// Words that a whole question has.
const ASKING: [&str; 21] = [
    "are", "can", "could", "did", "do", "does", "had", "has", "have", "how", "is", "was", "were", "what",
    "when", "where", "which", "who", "why", "will", "would",
];

/// Words that come before names of places.
const BEFORE_PLACES: [&str; 6] = ["at", "from", "in", "into", "near", "to"];

/// Words that form a time with `that` and `the same`.
const TIMES: [&str; 10] = [
    "afternoon",
    "day",
    "evening",
    "month",
    "morning",
    "night",
    "time",
    "week",
    "weekend",
    "year",
];

/// Words after which a date needs no `on`.
const BEFORE_DATES: [&str; 7] = ["after", "around", "before", "by", "from", "since", "until"];

/// Words that come before times.
const BEFORE_TIMES: [&str; 5] = ["at", "during", "in", "of", "on"];

/// A pronoun of one person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pronoun {
    /// `she`, `her`, `hers`.
    She,
    /// `he`, `him`, `his`.
    He,
}

/// A person from an earlier question or answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) name: String,
    /// The pronoun that an earlier question used for the person.
    pub(super) pronoun: Option<Pronoun>,
}

impl Person {
    /// Makes a person without a known pronoun.
    pub(super) fn new(name: impl Into<String>) -> Person {
        Person {
            name: name.into(),
            pronoun: None,
        }
    }
}

/// The subject of a question and its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Topic {
    /// The question, understandable on its own.
    pub(super) question: String,
    /// The question that this one goes back to: itself, or an earlier one.
    pub(super) subject: String,
    /// The answer, cut to the length that is shown again.
    pub(super) answer: String,
    /// The persons, most important first.
    pub(super) persons: Vec<Person>,
    pub(super) place: Option<String>,
    /// The time, in words that a question may use.
    pub(super) time: Option<String>,
}

/// A question that is understandable on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completed {
    pub(super) question: String,
    /// The question that this one goes back to.
    pub(super) subject: String,
    /// The persons whom pronouns stood for.
    pub(super) persons: Vec<Person>,
}

/// Completes a question from earlier topics, newest first. `persons` are the names of persons in the question.
pub(super) fn complete(asked: &str, topics: &[Topic], persons: &[String]) -> Completed {
    let asked = asked.trim();
    let Some(latest) = topics.first() else {
        return itself(asked.to_owned(), Vec::new());
    };
    let part = part(asked);
    if let Some(part) = part
        && content(part, persons).is_empty()
        && let Some(question) = with_other_part(part, latest, persons)
    {
        return itself(question, Vec::new());
    }
    let mut replaced = Replaced {
        topics,
        persons: Vec::new(),
        is_about: part.is_some(),
    };
    let question = replaced.in_question(asked, persons);
    let is_about = replaced.is_about || content(&question, &[]).is_empty();
    if is_about && question != latest.subject {
        Completed {
            question: format!("{question} (about: {})", latest.subject),
            subject: latest.subject.clone(),
            persons: replaced.persons,
        }
    } else {
        itself(question, replaced.persons)
    }
}

fn itself(question: String, persons: Vec<Person>) -> Completed {
    Completed {
        subject: question.clone(),
        question,
        persons,
    }
}

/// The rest of a partial question after its lead: `in June?` of `And in June?`; `None` for a whole question.
fn part(asked: &str) -> Option<&str> {
    let lower = asked.to_lowercase();
    let lead = LEADS.into_iter().find(|lead| {
        let rest = lower.strip_prefix(lead);
        rest.is_some_and(|rest| rest.starts_with([' ', ',']))
    })?;
    let rest = asked.get(lead.len()..)?.trim_start_matches([' ', ',']);
    let asks = |piece: &str| ASKING.contains(&bare(piece).1.to_lowercase().as_str());
    (lead.ends_with("about") || !rest.split_whitespace().any(asks)).then_some(rest)
}

/// The words with content, without the names of persons and the times.
fn content(asked: &str, persons: &[String]) -> Vec<String> {
    let known: Vec<String> = persons.iter().flat_map(|name| split(name)).collect();
    let words = understand(asked, Some(NaiveDate::MAX)).words;
    let words = words.iter().flat_map(|word| split(word));
    words
        .filter(|word| !Language::English.is_function_word(word) && !known.contains(word))
        .collect()
}

/// Repeats the latest question with the person or time of the partial one.
fn with_other_part(rest: &str, latest: &Topic, persons: &[String]) -> Option<String> {
    let rest = rest.trim_end_matches(['?', '.', '!', ' ']);
    if let Some(other) = persons.first() {
        let before = latest
            .persons
            .iter()
            .find(|person| latest.subject.contains(&person.name))?;
        return Some(latest.subject.replacen(&before.name, other, 1));
    }
    let newest = Some(NaiveDate::MAX);
    understand(rest, newest).time_range?;
    let mut kept = understand(&latest.subject, newest).words;
    while kept
        .last()
        .is_some_and(|word| BEFORE_TIMES.contains(&word.as_str()))
    {
        kept.pop();
    }
    Some(format!("{} {rest}?", kept.join(" ")))
}

/// A question whose pronouns are being replaced.
struct Replaced<'a> {
    topics: &'a [Topic],
    persons: Vec<Person>,
    /// Whether the question is about the one before it.
    is_about: bool,
}

impl Replaced<'_> {
    fn in_question(&mut self, asked: &str, persons: &[String]) -> String {
        let pieces: Vec<&str> = asked.split_whitespace().collect();
        let mut words: Vec<String> = Vec::new();
        let mut names_person = false;
        let mut at = 0;
        while at < pieces.len() {
            let (before, word, after) = bare(pieces[at]);
            let lower = word.to_lowercase();
            let next = pieces
                .get(at + 1)
                .filter(|_| after.is_empty())
                .map(|piece| bare(piece));
            let next_word = next.map(|(_, word, _)| word.to_lowercase()).unwrap_or_default();
            names_person |= persons
                .iter()
                .any(|name| name.split(' ').next() == Some(without_s(word)));
            let mut taken = 1;
            let mut end = after;
            let put = match lower.as_str() {
                "she" | "he" | "her" | "him" | "hers" | "his" if !names_person => {
                    self.person(&lower, !next_word.is_empty() && !is_function_word(&next_word))
                }
                "they" | "them" | "their" | "theirs" if !names_person => self.several(),
                "there" if next_word.is_empty() || !tells_existence(words.last(), &next_word) => self.place(),
                "then" => self.time(words.last()),
                "that" if TIMES.contains(&next_word.as_str()) => {
                    let put = self.time(words.last());
                    if put.is_some() {
                        (taken, end) = (2, next.map_or(after, |(_, _, after)| after));
                        if words
                            .last()
                            .is_some_and(|word| BEFORE_TIMES.contains(&word.as_str()))
                        {
                            words.pop();
                        }
                    }
                    put
                }
                "it" | "its" | "this" | "these" | "those" => {
                    self.is_about = true;
                    None
                }
                "that" if next_word.is_empty() => {
                    self.is_about = true;
                    None
                }
                _ => None,
            };
            match put {
                Some(put) => words.push(format!("{before}{put}{end}")),
                None => words.push(pieces[at].to_owned()),
            }
            assert!(
                at + taken <= pieces.len(),
                "a replacement takes words of the question only"
            );
            at += taken;
        }
        words.join(" ")
    }

    /// Finds the person whom a pronoun stands for. A person keeps the first pronoun, so `he` never stands for whom
    /// `she` stood.
    fn person(&mut self, word: &str, owns: bool) -> Option<String> {
        let pronoun = match word {
            "he" | "him" | "his" => Pronoun::He,
            _ => Pronoun::She,
        };
        let topics = self.topics;
        let mut candidates = topics.iter().flat_map(|topic| &topic.persons);
        let other = |person: &Person| {
            let mut known = topics.iter().flat_map(|topic| &topic.persons);
            known
                .any(|known| known.name == person.name && known.pronoun.is_some_and(|known| known != pronoun))
        };
        let Some(found) = candidates.find(|person| !other(person)) else {
            self.is_about = true;
            return None;
        };
        let name = found.name.clone();
        let person = Person {
            name: name.clone(),
            pronoun: Some(pronoun),
        };
        if !self.persons.contains(&person) {
            self.persons.push(person);
        }
        Some(match word {
            "his" | "hers" => format!("{name}'s"),
            "her" if owns => format!("{name}'s"),
            _ => name,
        })
    }

    fn several(&mut self) -> Option<String> {
        let topics = self.topics;
        let latest = topics.iter().find(|topic| !topic.persons.is_empty());
        let Some(latest) = latest else {
            self.is_about = true;
            return None;
        };
        let persons: Vec<Person> = latest.persons.iter().take(SEVERAL_MAX).cloned().collect();
        let names: Vec<&str> = persons.iter().map(|person| person.name.as_str()).collect();
        let names = names.join(" and ");
        self.persons.extend(persons);
        Some(names)
    }

    fn place(&mut self) -> Option<String> {
        let place = self.topics.iter().find_map(|topic| topic.place.as_ref());
        self.is_about |= place.is_none();
        Some(format!("in {}", place?))
    }

    /// The time that `then` stands for. `before` is the word before it.
    fn time(&self, before: Option<&String>) -> Option<String> {
        let time = self.topics.iter().find_map(|topic| topic.time.as_ref())?;
        let follows = before.is_some_and(|word| BEFORE_DATES.contains(&word.to_lowercase().as_str()));
        Some(if follows {
            time.strip_prefix("on ").unwrap_or(time).to_owned()
        } else {
            time.clone()
        })
    }
}

/// Whether `there` stands for no place, as in `Is there a dog?`.
fn tells_existence(before: Option<&String>, next: &str) -> bool {
    let is_being = |word: &str| ["are", "is", "was", "were"].contains(&word);
    is_being(next) || before.is_some_and(|before| is_being(before.to_lowercase().as_str()))
}

/// Splits a piece of a question into the marks before its word, the word, and the marks after it.
fn bare(piece: &str) -> (&str, &str, &str) {
    let is_letter = |letter: char| letter.is_alphanumeric();
    let begin = piece.find(is_letter).unwrap_or(piece.len());
    let end = piece.rfind(is_letter).map_or(begin, |last| {
        last + piece[last..].chars().next().map_or(0, char::len_utf8)
    });
    (&piece[..begin], &piece[begin..end], &piece[end..])
}

fn without_s(word: &str) -> &str {
    word.strip_suffix("'s")
        .or_else(|| word.strip_suffix("’s"))
        .unwrap_or(word)
}

fn is_function_word(word: &str) -> bool {
    Language::English.is_function_word(word)
}

/// A name in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: String,
    /// Whether the name comes after a word that places follow.
    pub(super) is_placed: bool,
    /// Whether it may not be a name: every first word of a sentence has a capital letter.
    is_doubtful: bool,
}

impl Name {
    /// Whether it may name a person, judged by its place in the sentence.
    pub(super) fn may_be_person(&self) -> bool {
        !self.is_placed && !self.is_doubtful
    }
}

/// Finds the names in a question or an answer.
pub(super) fn names(text: &str) -> Vec<Name> {
    let sentences = text.split_inclusive(['.', '!', '?', '\n']);
    sentences
        .flat_map(names_of_sentence)
        .take(CHAT_NAMES_MAX)
        .collect()
}

fn names_of_sentence(sentence: &str) -> Vec<Name> {
    let words: Vec<String> = sentence
        .split_whitespace()
        .map(|piece| bare(piece).1.to_lowercase())
        .collect();
    let names = question::names(sentence).into_iter().map(|text| {
        let first = text.split(' ').next().unwrap_or_default().to_lowercase();
        let at = words.iter().position(|word| without_s(word) == first);
        let before = at.and_then(|at| at.checked_sub(1)).and_then(|at| words.get(at));
        Name {
            is_placed: before.is_some_and(|before| BEFORE_PLACES.contains(&before.as_str())),
            is_doubtful: at == Some(0) && !text.contains(' '),
            text,
        }
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(question: &str, persons: &[&str]) -> Topic {
        Topic {
            question: question.to_owned(),
            subject: question.to_owned(),
            persons: persons.iter().map(|name| Person::new(*name)).collect(),
            place: Some("Oslo".to_owned()),
            time: Some("on 2023-05-08".to_owned()),
            ..Topic::default()
        }
    }

    fn completed(asked: &str, topics: &[Topic], persons: &[&str]) -> String {
        let persons: Vec<String> = persons.iter().map(|name| (*name).to_owned()).collect();
        complete(asked, topics, &persons).question
    }

    #[test]
    fn pronouns_are_replaced_by_names() {
        let topics = [topic("What did Ada build in Oslo?", &["Ada", "Bob"])];
        for (asked, expected) in [
            ("When did she paint her house?", "When did Ada paint Ada's house?"),
            ("Where did Bob see her?", "Where did Bob see her?"),
            ("Who met him?", "Who met Ada?"),
            ("What do they like?", "What do Ada and Bob like?"),
            ("Who else lives there?", "Who else lives in Oslo?"),
            ("Who is there?", "Who is in Oslo?"),
            ("Is there a bridge?", "Is there a bridge?"),
            ("Who is she?", "Who is Ada?"),
            ("What else happened then?", "What else happened on 2023-05-08?"),
            ("What did she do after then?", "What did Ada do after 2023-05-08?"),
            ("What did she say on that day?", "What did Ada say on 2023-05-08?"),
            ("Who sang in Paris?", "Who sang in Paris?"),
        ] {
            let persons: &[&str] = if asked.contains("Bob") { &["Bob"] } else { &[] };
            assert_eq!(completed(asked, &topics, persons), expected);
        }
    }

    #[test]
    fn he_does_not_stand_for_a_person_whom_she_stood_for() {
        let first = topic("What did Ada tell Bob?", &["Ada", "Bob"]);
        let second = complete("Where did she live?", std::slice::from_ref(&first), &[]);
        assert_eq!(second.question, "Where did Ada live?");
        let second = Topic {
            persons: second.persons,
            ..topic(&second.question, &[])
        };
        let third = complete("And what did he answer?", &[second, first], &[]);
        assert_eq!(third.question, "And what did Bob answer?");
    }

    #[test]
    fn a_part_of_a_question_is_completed() {
        let topics = [topic("What did Ada say about bees in May 2023?", &["Ada"])];
        assert_eq!(
            completed("And Bob?", &topics, &["Bob"]),
            "What did Bob say about bees in May 2023?"
        );
        assert_eq!(
            completed("What about June 2023?", &topics, &[]),
            "What did Ada say about bees June 2023?"
        );
        assert_eq!(
            completed("and in June 2023?", &topics, &[]),
            "What did Ada say about bees in June 2023?"
        );
        assert_eq!(
            completed("And the wasps?", &topics, &[]),
            "And the wasps? (about: What did Ada say about bees in May 2023?)"
        );
        assert_eq!(
            completed("Why?", &topics, &[]),
            "Why? (about: What did Ada say about bees in May 2023?)"
        );
        assert_eq!(
            completed("How long did it take?", &topics, &[]),
            "How long did it take? (about: What did Ada say about bees in May 2023?)"
        );
    }

    #[test]
    fn repeated_follow_ups_go_back_to_the_same_question() {
        let first = topic("What did Ada build?", &["Ada"]);
        let second = complete("How long did it take?", std::slice::from_ref(&first), &[]);
        let topics = [
            Topic {
                question: second.question,
                subject: second.subject,
                ..Topic::default()
            },
            first,
        ];
        assert_eq!(
            completed("Why?", &topics, &[]),
            "Why? (about: What did Ada build?)"
        );
    }

    #[test]
    fn a_complete_question_is_unchanged() {
        let topics = [topic("What did Ada build?", &["Ada"])];
        for asked in ["Who keeps bees in London?", "  What did Bob sell to Cleo?  "] {
            assert_eq!(completed(asked, &topics, &["Bob", "Cleo"]), asked.trim());
        }
        assert_eq!(completed("Who is she?", &[], &[]), "Who is she?");
    }
}
