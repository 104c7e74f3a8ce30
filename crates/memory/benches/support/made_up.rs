//! Made-up messages and knowledge, by a seed. Words follow Zipf's law, as in real texts: few are everywhere, most
//! are rare.

#![allow(dead_code, reason = "each benchmark uses its share")]

use gristmill_memory::{Action, Entity, Facet, FacetValue, Knowledge, Topic};
use gristmill_model::{Rng, SplitMix64};

const TYPES: [&str; 12] = [
    "person", "book", "place", "company", "animal", "event", "series", "product", "idea", "award", "country",
    "song",
];
const VERBS: [&str; 16] = [
    "say", "write", "read", "make", "find", "sell", "build", "visit", "like", "teach", "learn", "meet",
    "win", "lose", "carry", "paint",
];
const SYLLABLES: [&str; 24] = [
    "ba", "ce", "di", "fo", "gu", "ha", "ji", "ko", "lu", "ma", "ne", "pi", "qua", "ro", "su", "ta", "ve",
    "wi", "xo", "ya", "zu", "tri", "sto", "gra",
];

/// Words to make texts and names of.
pub struct Vocabulary {
    words: Vec<String>,
}

impl Vocabulary {
    /// So many different words.
    pub fn new(count: usize, rng: &mut SplitMix64) -> Vocabulary {
        let mut words = std::collections::BTreeSet::new();
        while words.len() < count {
            let syllables = 2 + rng.below(3);
            let word: String = (0..syllables).map(|_| *pick(&SYLLABLES, rng)).collect();
            words.insert(word);
        }
        let mut words: Vec<String> = words.into_iter().collect();
        for at in (1..words.len()).rev() {
            words.swap(at, rng.below(at as u64 + 1) as usize);
        }
        Vocabulary { words }
    }

    /// A word; the one of rank r comes about 1/r as often as the first.
    pub fn word(&self, rng: &mut SplitMix64) -> &str {
        let uniform = rng.next_u64() as f64 / u64::MAX as f64;
        let rank = (self.words.len() as f64).powf(uniform) as usize - 1;
        &self.words[rank.min(self.words.len() - 1)]
    }

    /// Two words.
    pub fn name(&self, rng: &mut SplitMix64) -> String {
        format!("{} {}", self.word(rng), self.word(rng))
    }

    /// So many words.
    pub fn sentence(&self, words: usize, rng: &mut SplitMix64) -> String {
        let words: Vec<&str> = (0..words).map(|_| self.word(rng)).collect();
        words.join(" ")
    }

    /// Knowledge of one chunk.
    pub fn knowledge(&self, refs: u32, rng: &mut SplitMix64) -> Vec<Knowledge> {
        (0..refs)
            .map(|_| match rng.below(5) {
                0 | 1 => Knowledge::Entity(Entity {
                    name: self.name(rng),
                    types: vec![pick(&TYPES, rng).to_string()],
                    facets: match rng.below(3) {
                        0 => vec![Facet {
                            name: self.word(rng).to_owned(),
                            value: Some(FacetValue::Text(self.word(rng).to_owned())),
                        }],
                        _ => Vec::new(),
                    },
                }),
                2 | 3 => Knowledge::Action(Action {
                    verbs: vec![pick(&VERBS, rng).to_string()],
                    subject_entity_name: Some(self.name(rng)),
                    object_entity_name: Some(self.word(rng).to_owned()),
                    ..Action::default()
                }),
                _ => Knowledge::Topic(Topic { text: self.name(rng) }),
            })
            .collect()
    }
}

fn pick<'a, T>(items: &'a [T], rng: &mut SplitMix64) -> &'a T {
    &items[rng.below(items.len() as u64) as usize]
}
