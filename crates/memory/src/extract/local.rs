//! Extraction by rules: names, noun phrases, and verbs with their subjects and objects.
//!
//! The rules find less than a model, and cost nothing. The same text always gives the same knowledge.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::extract::{ChunkText, Extracted, Extractor, FailedExtraction};
use crate::knowledge::{Action, Entity, Extraction, Tense};
use crate::service::Usage;
use crate::store::similar::is_stop_word;

/// The type of a name without a known type.
pub const UNTYPED_NAME: &str = "name";

/// Maximum topics of one chunk.
const TOPICS_MAX: usize = 8;

/// Maximum entities of one chunk.
const ENTITIES_MAX: usize = 60;

/// Maximum actions of one chunk.
const ACTIONS_MAX: usize = 60;

/// Maximum words of a noun phrase.
const PHRASE_WORDS_MAX: usize = 4;

/// Verbs and their forms, the base form first.
const VERBS: [&[&str]; 52] = [
    &["announce", "announces", "announced", "announcing"],
    &["ask", "asks", "asked", "asking"],
    &["become", "becomes", "became", "becoming"],
    &["begin", "begins", "began", "begun", "beginning"],
    &["bring", "brings", "brought", "bringing"],
    &["build", "builds", "built", "building"],
    &["buy", "buys", "bought", "buying"],
    &["call", "calls", "called", "calling"],
    &["carry", "carries", "carried", "carrying"],
    &["change", "changes", "changed", "changing"],
    &["come", "comes", "came", "coming"],
    &["create", "creates", "created", "creating"],
    &["develop", "develops", "developed", "developing"],
    &["discover", "discovers", "discovered", "discovering"],
    &["enjoy", "enjoys", "enjoyed", "enjoying"],
    &["explain", "explains", "explained", "explaining"],
    &["find", "finds", "found", "finding"],
    &["get", "gets", "got", "gotten", "getting"],
    &["give", "gives", "gave", "given", "giving"],
    &["go", "goes", "went", "gone", "going"],
    &["help", "helps", "helped", "helping"],
    &["invent", "invents", "invented", "inventing"],
    &["join", "joins", "joined", "joining"],
    &["keep", "keeps", "kept", "keeping"],
    &["know", "knows", "knew", "known", "knowing"],
    &["learn", "learns", "learned", "learnt", "learning"],
    &["leave", "leaves", "leaving"],
    &["like", "likes", "liked", "liking"],
    &["live", "lives", "lived", "living"],
    &["love", "loves", "loved", "loving"],
    &["make", "makes", "made", "making"],
    &["meet", "meets", "met", "meeting"],
    &["move", "moves", "moved", "moving"],
    &["paint", "paints", "painted", "painting"],
    &["play", "plays", "played", "playing"],
    &["publish", "publishes", "published", "publishing"],
    &["read", "reads", "reading"],
    &["release", "releases", "released", "releasing"],
    &["say", "says", "said", "saying"],
    &["see", "sees", "saw", "seen", "seeing"],
    &["sell", "sells", "sold", "selling"],
    &["send", "sends", "sent", "sending"],
    &["start", "starts", "started", "starting"],
    &["study", "studies", "studied", "studying"],
    &["teach", "teaches", "taught", "teaching"],
    &["tell", "tells", "told", "telling"],
    &["use", "uses", "used", "using"],
    &["visit", "visits", "visited", "visiting"],
    &["want", "wants", "wanted", "wanting"],
    &["win", "wins", "won", "winning"],
    &["work", "works", "worked", "working"],
    &["write", "writes", "wrote", "written", "writing"],
];

/// Words that end a noun phrase and are not stop words.
const FUNCTION_WORDS: [&str; 60] = [
    "about", "after", "again", "all", "also", "always", "any", "because", "before", "can", "could", "don",
    "during", "each", "even", "every", "get", "here", "how", "if", "into", "just", "kind", "like", "ll",
    "lot", "may", "me", "more", "most", "much", "never", "no", "not", "now", "oh", "one", "only", "other",
    "out", "over", "really", "said", "should", "so", "some", "sort", "than", "then", "there", "these",
    "things", "those", "through", "up", "very", "we", "when", "which", "you",
];

/// Last words of names, with the type that they imply.
const ENDINGS: [(&str, &str); 76] = [
    ("academy", "school"),
    ("agency", "organization"),
    ("airport", "place"),
    ("algorithm", "concept"),
    ("association", "organization"),
    ("avenue", "place"),
    ("award", "award"),
    ("band", "organization"),
    ("bank", "company"),
    ("bay", "place"),
    ("board", "organization"),
    ("bridge", "place"),
    ("bureau", "organization"),
    ("café", "place"),
    ("castle", "place"),
    ("city", "place"),
    ("clinic", "organization"),
    ("club", "organization"),
    ("college", "school"),
    ("commission", "organization"),
    ("committee", "organization"),
    ("company", "company"),
    ("conference", "event"),
    ("corp", "company"),
    ("corporation", "company"),
    ("council", "organization"),
    ("database", "project"),
    ("department", "organization"),
    ("desert", "place"),
    ("engine", "project"),
    ("fair", "event"),
    ("festival", "event"),
    ("forest", "place"),
    ("foundation", "organization"),
    ("framework", "project"),
    ("garden", "place"),
    ("gmbh", "company"),
    ("group", "organization"),
    ("guild", "organization"),
    ("hospital", "organization"),
    ("hotel", "place"),
    ("inc", "company"),
    ("institute", "organization"),
    ("island", "place"),
    ("lab", "organization"),
    ("laboratory", "organization"),
    ("labs", "organization"),
    ("lake", "place"),
    ("league", "organization"),
    ("library", "organization"),
    ("llc", "company"),
    ("ltd", "company"),
    ("ministry", "organization"),
    ("mount", "place"),
    ("mountain", "place"),
    ("mountains", "place"),
    ("museum", "organization"),
    ("ocean", "place"),
    ("orchestra", "organization"),
    ("park", "place"),
    ("party", "organization"),
    ("prize", "award"),
    ("programme", "project"),
    ("project", "project"),
    ("protocol", "project"),
    ("river", "place"),
    ("school", "school"),
    ("society", "organization"),
    ("square", "place"),
    ("street", "place"),
    ("studio", "company"),
    ("team", "organization"),
    ("theatre", "organization"),
    ("union", "organization"),
    ("university", "university"),
    ("valley", "place"),
];

/// Titles of persons. A full stop after an abbreviated title does not end a sentence.
const TITLES: [&str; 7] = ["dr", "mr", "mrs", "ms", "prof", "professor", "sir"];

/// The number of abbreviated titles, which come first in [`TITLES`], and the letters of the longest one.
const TITLES_ABBREVIATED: usize = 5;
const TITLE_LETTERS_MAX: usize = 4;

/// Other words that come before the name of a person: `her friend Ada King`.
const BEFORE_PERSONS: [&str; 15] = [
    "artist",
    "aunt",
    "author",
    "brother",
    "by",
    "colleague",
    "friend",
    "neighbour",
    "president",
    "sister",
    "teacher",
    "uncle",
    "with",
    "writer",
    "met",
];

/// The extractor by rules.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalExtractor;

#[async_trait]
impl Extractor for LocalExtractor {
    fn identity(&self) -> String {
        "local 3".to_owned()
    }

    fn reads_speaker(&self) -> bool {
        true
    }

    async fn extract(&self, chunk: &ChunkText) -> Result<Extracted, FailedExtraction> {
        Ok(Extracted {
            key: chunk.key.clone(),
            extraction: extract(&chunk.text, chunk.speaker.as_deref()),
            usage: Usage::default(),
        })
    }
}

/// Extracts knowledge from a text by rules. `speaker` is the person whom `I` means.
pub fn extract(text: &str, speaker: Option<&str>) -> Extraction {
    let mut entities: BTreeMap<String, Entity> = BTreeMap::new();
    let mut extraction = Extraction::default();
    let mut phrases: BTreeMap<String, usize> = BTreeMap::new();
    for sentence in sentences(text) {
        let words = words(sentence);
        let parts = parts(&words);
        for part in &parts {
            match part.kind {
                PartKind::Name if entities.len() < ENTITIES_MAX => {
                    let entity = entities
                        .entry(part.text.to_lowercase())
                        .or_insert_with(|| Entity {
                            name: part.text.clone(),
                            ..Entity::default()
                        });
                    let kind = kind_of_name(&part.text, part.after.as_deref());
                    if !entity.types.contains(&kind) {
                        entity.types.push(kind);
                    }
                }
                PartKind::Phrase => *phrases.entry(part.text.to_lowercase()).or_default() += 1,
                _ => {}
            }
        }
        assert!(
            extraction.actions.len() <= ACTIONS_MAX,
            "a chunk has a limited number of actions"
        );
        let room = ACTIONS_MAX - extraction.actions.len();
        extraction
            .actions
            .extend(actions(&parts, speaker).into_iter().take(room));
    }
    // The topics are the phrases that occur most often and have most words.
    let mut topics: Vec<(String, usize)> = phrases
        .into_iter()
        .filter(|(text, count)| text.contains(' ') || *count > 1)
        .map(|(text, count)| {
            let weight = count * (1 + text.split(' ').count());
            (text, weight)
        })
        .collect();
    topics.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    extraction.topics = topics
        .into_iter()
        .take(TOPICS_MAX)
        .map(|(text, _)| text)
        .collect();
    assert!(
        entities.len() <= ENTITIES_MAX,
        "a chunk has a limited number of entities"
    );
    settle_types(&mut entities, speaker);
    extraction.entities = entities.into_values().collect();
    extraction
}

/// Settles the types of names. A name with a type anywhere in the text loses the type [`UNTYPED_NAME`]. The speaker is
/// a person, and so is an `Ada` in a text about Ada King.
fn settle_types(entities: &mut BTreeMap<String, Entity>, speaker: Option<&str>) {
    let is_person = |entity: &&Entity| entity.types.iter().any(|kind| kind == "person");
    let full_names = entities
        .values()
        .filter(is_person)
        .map(|entity| entity.name.as_str());
    let first_names = full_names
        .chain(speaker)
        .filter_map(|name| name.split(' ').next());
    let persons: Vec<String> = speaker
        .into_iter()
        .chain(first_names)
        .map(str::to_lowercase)
        .collect();
    for (lower, entity) in entities {
        if entity.types.len() > 1 {
            entity.types.retain(|kind| kind != UNTYPED_NAME);
        } else if persons.contains(lower) && entity.types[0] == UNTYPED_NAME {
            entity.types = vec!["person".to_owned()];
        }
    }
}

/// Splits a text into sentences. The full stop of a title does not end one.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut start = 0;
    let ends = text.match_indices(['.', '!', '?', ';', '\n', '…', '“', '”', '"']);
    let ends = ends.filter(|(at, mark)| *mark != "." || !ends_with_abbreviated_title(&text[..*at]));
    let ends = ends.map(|(at, mark)| at + mark.len());
    ends.chain([text.len()])
        .map(move |end| text[std::mem::replace(&mut start, end)..end].trim())
        .filter(|sentence| !sentence.is_empty())
}

fn ends_with_abbreviated_title(text: &str) -> bool {
    let begin = text.floor_char_boundary(text.len().saturating_sub(TITLE_LETTERS_MAX + 1));
    let word = text[begin..]
        .rsplit(|letter: char| !letter.is_alphabetic())
        .next();
    word.is_some_and(|word| is_one_of(&TITLES[..TITLES_ABBREVIATED], word))
}

fn is_one_of(titles: &[&str], word: &str) -> bool {
    titles.iter().any(|title| title.eq_ignore_ascii_case(word))
}

/// A word of a sentence, without the marks around it.
struct Word<'a> {
    text: &'a str,
    lower: String,
    /// Whether punctuation follows that ends a part.
    ends_part: bool,
}

fn words(sentence: &str) -> Vec<Word<'_>> {
    let pieces = sentence.split(|letter: char| letter.is_whitespace() || letter == '—' || letter == '/');
    let words = pieces.filter_map(|piece| {
        let text = piece.trim_matches(|letter: char| !letter.is_alphanumeric());
        let bare = ["'s", "’s"]
            .iter()
            .find_map(|ending| text.strip_suffix(ending))
            .unwrap_or(text);
        (!bare.is_empty()).then(|| Word {
            text: bare,
            lower: bare.to_lowercase(),
            ends_part: piece.ends_with([',', ':', ')', '.', '!', '?', ';'])
                && !is_one_of(&TITLES[..TITLES_ABBREVIATED], bare),
        })
    });
    words.collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Name,
    Phrase,
    Pronoun,
    Verb,
    Other,
}

/// A part of a sentence.
#[derive(Debug, Clone)]
struct Part {
    kind: PartKind,
    text: String,
    tense: Tense,
    /// The word before the part, in lower case.
    after: Option<String>,
}

fn parts(words: &[Word<'_>]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let start = at;
        let (kind, text, tense) = if let Some(end) = name_end(words, at) {
            at = end;
            (PartKind::Name, join(&words[start..end]), Tense::Present)
        } else if ["i", "i've", "i’ve", "i'm", "i’m"].contains(&words[at].lower.as_str()) {
            at += 1;
            (PartKind::Pronoun, "I".to_owned(), Tense::Present)
        } else if let Some((base, tense)) = verb(words, at) {
            at += 1;
            (PartKind::Verb, base.to_owned(), tense)
        } else if is_phrase_word(&words[at]) {
            while at < words.len()
                && at - start < PHRASE_WORDS_MAX
                && is_phrase_word(&words[at])
                && name_end(words, at).is_none()
                && (at == start || !words[at - 1].ends_part)
            {
                at += 1;
            }
            (PartKind::Phrase, join(&words[start..at]), Tense::Present)
        } else {
            at += 1;
            (PartKind::Other, words[start].lower.clone(), Tense::Present)
        };
        assert!(
            at > start && at <= words.len(),
            "a part takes at least one word of the sentence"
        );
        parts.push(Part {
            kind,
            text,
            tense,
            after: start.checked_sub(1).map(|before| words[before].lower.clone()),
        });
    }
    parts
}

fn join(words: &[Word<'_>]) -> String {
    words.iter().map(|word| word.text).collect::<Vec<_>>().join(" ")
}

/// Finds the end of the name that begins here: capitalised words, which `of the` and the like may join.
fn name_end(words: &[Word<'_>], start: usize) -> Option<usize> {
    let is_capital =
        |word: &Word<'_>| word.text.chars().next().is_some_and(char::is_uppercase) && word.lower != "i";
    let is_small =
        |word: &Word<'_>| is_stop_word(&word.lower) || FUNCTION_WORDS.contains(&word.lower.as_str());
    let first = &words[start];
    let is_before_name = words.get(start + 1).is_some_and(is_capital);
    if is_one_of(&TITLES, first.text) && is_before_name {
        return None;
    }
    if !is_capital(first) || is_small(first) || first.lower.starts_with("i'") || first.lower.starts_with("i’")
    {
        return None;
    }
    let mut end = start + 1;
    while end < words.len() && !words[end - 1].ends_part {
        if is_capital(&words[end]) {
            end += 1;
            continue;
        }
        let between = words[end..]
            .iter()
            .take_while(|word| ["of", "the", "and", "de", "van"].contains(&word.text))
            .count();
        let goes_on =
            between > 0 && words[end].text != "and" && words.get(end + between).is_some_and(is_capital);
        if !goes_on {
            break;
        }
        end += between + 1;
    }
    // Every first word of a sentence has a capital letter. Alone, it counts as a name only if it has another capital or
    // a digit.
    let is_lone_first = start == 0 && end == 1;
    let looks_like_name =
        first.text.chars().skip(1).any(char::is_uppercase) || first.text.chars().any(char::is_numeric);
    (!is_lone_first || looks_like_name).then_some(end)
}

fn is_phrase_word(word: &Word<'_>) -> bool {
    let lower = word.lower.as_str();
    lower.chars().count() > 2
        && lower
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '-')
        && !is_stop_word(lower)
        && !FUNCTION_WORDS.contains(&lower)
        && verb_of(lower).is_none()
        && !lower.ends_with("ly")
}

fn verb_of(lower: &str) -> Option<(&'static str, usize)> {
    VERBS.iter().find_map(|forms| {
        let at = forms.iter().position(|form| *form == lower)?;
        Some((forms[0], at))
    })
}

fn verb(words: &[Word<'_>], at: usize) -> Option<(&'static str, Tense)> {
    let (base, form) = verb_of(&words[at].lower)?;
    let before = at.checked_sub(1).map(|before| words[before].lower.as_str());
    let tense = match before {
        Some("will" | "ll" | "gonna" | "i'll" | "we'll" | "they'll") => Tense::Future,
        Some("the" | "a" | "an" | "my" | "his" | "her" | "their" | "our") => return None,
        _ if form >= 2 && !words[at].lower.ends_with("ing") => Tense::Past,
        Some("did" | "was" | "were" | "had") => Tense::Past,
        _ => Tense::Present,
    };
    Some((base, tense))
}

/// Makes an action of each verb, with the subject before it and the object after it.
fn actions(parts: &[Part], speaker: Option<&str>) -> Vec<Action> {
    let named = |part: &Part| match part.kind {
        PartKind::Name | PartKind::Phrase => Some(part.text.clone()),
        PartKind::Pronoun => speaker.map(str::to_owned),
        PartKind::Verb | PartKind::Other => None,
    };
    // In `started to play`, the action is playing.
    let leads_to_verb = |at: usize| {
        let next = |ahead: usize| parts.get(at + ahead);
        next(1).is_some_and(|part| part.text == "to")
            && next(2).is_some_and(|part| part.kind == PartKind::Verb)
    };
    let mut actions = Vec::new();
    for (at, part) in parts
        .iter()
        .enumerate()
        .filter(|(at, part)| part.kind == PartKind::Verb && !leads_to_verb(*at))
    {
        let before = parts[..at].iter().enumerate().rev();
        let before = before
            .filter(|(before, part)| part.kind != PartKind::Verb || !leads_to_verb(*before))
            .map(|(_, part)| part)
            .take_while(|part| part.kind != PartKind::Verb);
        let after = parts[at + 1..]
            .iter()
            .take_while(|part| part.kind != PartKind::Verb);
        let (subject, object) = (before.take(4).find_map(named), after.take(4).find_map(named));
        if subject.is_some() || object.is_some() {
            actions.push(Action {
                verbs: vec![part.text.clone()],
                verb_tense: part.tense,
                subject_entity_name: subject,
                object_entity_name: object,
                ..Action::default()
            });
        }
    }
    actions
}

fn kind_of_name(name: &str, after: Option<&str>) -> String {
    let lower = name.to_lowercase();
    let ending = ENDINGS
        .iter()
        .find(|(word, _)| lower.split(' ').any(|part| part == *word));
    let words = name.split(' ').count();
    let kind = match (ending, after) {
        (Some((_, kind)), _) => kind,
        (None, _) if is_coined(name) => "project",
        (None, Some("in" | "at" | "near")) if words <= 2 => "place",
        (None, Some(before)) if BEFORE_PERSONS.contains(&before) || is_one_of(&TITLES, before) => "person",
        (None, Some("the" | "a" | "an")) => UNTYPED_NAME,
        (None, _) if words == 2 && !lower.contains(" of ") => "person",
        (None, _) => UNTYPED_NAME,
    };
    kind.to_owned()
}

/// Whether a name is a made-up word, as programs have: `PostgreSQL`, `SQLite`, `Boost2`.
fn is_coined(name: &str) -> bool {
    let is_mixed = |word: &str| {
        let inner: Vec<char> = word.chars().skip(1).collect();
        let capitals = inner.iter().filter(|letter| letter.is_uppercase()).count();
        let has_digit = inner.iter().any(char::is_ascii_digit);
        let is_scottish = ["Mc", "Mac", "O'", "O’", "De", "Di", "La", "Le"]
            .iter()
            .any(|beginning| word.starts_with(beginning));
        !is_scottish
            && !word.contains('-')
            && (has_digit || capitals > 0 && inner.iter().any(|letter| letter.is_lowercase()))
    };
    !name.contains(' ') && is_mixed(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_organisations_and_projects_from_persons() {
        let text = "She joined the Rowing Club with Ada King. Tin Harbour Records Ltd hired Bob Ray, and the Apollo Project \
                    uses PostgreSQL. He works at the Nordic Museum in Oslo. We saw the Salt Stairs by Ruth McAdam. \
                    Then Lake Orrin froze.";
        let found = extract(text, None);
        let kinds: Vec<(&str, &str)> = found
            .entities
            .iter()
            .map(|entity| (entity.name.as_str(), entity.types[0].as_str()))
            .collect();
        assert_eq!(
            kinds,
            [
                ("Ada King", "person"),
                ("Apollo Project", "project"),
                ("Bob Ray", "person"),
                ("Lake Orrin", "place"),
                ("Nordic Museum", "organization"),
                ("Oslo", "place"),
                ("PostgreSQL", "project"),
                ("Rowing Club", "organization"),
                ("Ruth McAdam", "person"),
                ("Salt Stairs", "name"),
                ("Tin Harbour Records Ltd", "company"),
            ]
        );
    }

    #[test]
    fn finds_names_verbs_and_topics() {
        let text = "I wrote The Tin Drum with Ada King in London. Honey bees like loud drums, and honey bees hum. \
                    She studied at the University of Reading.";
        let found = extract(text, Some("Bob"));
        let names: Vec<(&str, &str)> = found
            .entities
            .iter()
            .map(|entity| (entity.name.as_str(), entity.types[0].as_str()))
            .collect();
        assert_eq!(
            names,
            [
                ("Ada King", "person"),
                ("London", "place"),
                ("Tin Drum", "name"),
                ("University of Reading", "university"),
            ]
        );
        let wrote = &found.actions[0];
        assert_eq!(wrote.verbs, ["write"]);
        assert_eq!(wrote.verb_tense, Tense::Past);
        assert_eq!(wrote.subject_entity_name.as_deref(), Some("Bob"));
        assert_eq!(wrote.object_entity_name.as_deref(), Some("Tin Drum"));
        assert!(
            found.topics.contains(&"honey bees".to_owned()),
            "{:?}",
            found.topics
        );
        assert_eq!(extract(text, Some("Bob")), found);
    }

    #[test]
    fn a_name_is_a_person_if_the_text_says_so() {
        let found = extract(
            "Dr. Miller met Ada King. Then Prof. Ruth McAdam called Ada and Bob.",
            Some("Bob"),
        );
        let kinds: Vec<(&str, &[String])> = found
            .entities
            .iter()
            .map(|entity| (entity.name.as_str(), &entity.types[..]))
            .collect();
        let person = &["person".to_owned()][..];
        let persons = ["Ada", "Ada King", "Bob", "Miller", "Ruth McAdam"];
        assert_eq!(kinds, persons.map(|name| (name, person)));
    }

    #[test]
    fn a_verb_that_leads_to_another_verb_is_neither_action_nor_subject() {
        let found = extract(
            "I started to play the violin. Ada wants to visit Oslo.",
            Some("Bob"),
        );
        let actions: Vec<_> = found
            .actions
            .iter()
            .map(|action| {
                let (subject, object) = (&action.subject_entity_name, &action.object_entity_name);
                (
                    subject.as_deref().unwrap_or_default(),
                    &action.verbs[0][..],
                    object.as_deref().unwrap_or_default(),
                )
            })
            .collect();
        assert_eq!(actions, [("Bob", "play", "violin"), ("Ada", "visit", "Oslo")]);
    }

    #[test]
    fn any_text_is_accepted() {
        for text in [
            "",
            "…",
            "I",
            "The",
            "'s",
            "A. B! C? of the of",
            "dr.",
            "É dr. Mr. Dr",
            "\u{0}\u{1f41d} É’s",
        ] {
            extract(text, None);
        }
    }
}
