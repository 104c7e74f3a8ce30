//! Recognises the language of a text, by its function words or its script.

use std::collections::HashMap;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

use super::split;
use crate::limits::LANGUAGE_WORDS_MAX;

/// A text with fewer function words of a language than this counts as English.
const FUNCTION_WORDS_MIN: u32 = 2;

/// A language in which words are stemmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
#[allow(missing_docs, reason = "the languages' names")]
pub enum Language {
    #[default]
    English,
    German,
    French,
    Spanish,
    Italian,
    Portuguese,
    Dutch,
    Swedish,
    Danish,
    Norwegian,
    Finnish,
    Russian,
    Greek,
    Arabic,
}

/// A set of languages, with one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Languages(pub u32);

/// The function words by language. English includes the question words, because they never occur in an answer.
const FUNCTION_WORDS: [(Language, &str); 12] = [
    (
        Language::English,
        "a about after again all am an and any are as at be because been before being but by can could d did do does \
         doing don down during for from had has have having he her him his how i if in into is it its just ll m may me \
         my no not of off on or our out over re s she should so some t than that the their them then there these they \
         this those through to too under up us ve very was we were what when where which while who whom whose why will \
         with would you your",
    ),
    (
        Language::German,
        "aber als am an auch auf aus bei bin bis da das dass dem den der des die doch du ein eine einem einen einer eines \
         er es für hat hatte ich ihr im in ist ja kann mich mir mit nach nicht noch nur oder sein sich sie sind so über \
         um und uns von vor war waren was wenn wer wie wir wird wo zu zum zur",
    ),
    (
        Language::French,
        "à au aux avec c ce ces cette d dans de des du elle en est et était il ils j je l la le les leur lui ma mais me \
         mes moi mon n ne nos notre nous on ont ou où par pas plus pour qu que qui s sa se ses son sont sur ta te tu un \
         une vous y",
    ),
    (
        Language::Spanish,
        "a al como con cuando de del donde e el ella ellos en era es esta este esto fue ha hay la las le les lo los más me \
         mi muy no nos o para pero por que qué quien se si sin sobre son su sus también un una y ya yo",
    ),
    (
        Language::Italian,
        "a ai al alla anche che chi ci come con da dal dalla de dei del della delle di dove e è ed era gli ha hanno i il in \
         io la le lei lo ma mi nel nella non o per perché più quando questo se si sono su un una uno",
    ),
    (
        Language::Portuguese,
        "a ao aos as à às com como da das de do dos e é ela ele em era essa esse esta este eu foi há isso já mais mas me \
         meu na nas no nos não o os ou para pela pelo por quando que quem se sem seu sua são também um uma você",
    ),
    (
        Language::Dutch,
        "aan al als bij dan dat de der deze die dit door een en er had heb heeft het hij hoe ik in is je kan maar me met \
         mijn naar niet nog nu of om onder ons ook op over te tot u uit van voor waar was wat we wel wij wie wordt ze zich \
         zij zijn zo",
    ),
    (
        Language::Swedish,
        "att av de den det där du efter en ett från för ha han har hon hur i inte jag kan med men mig min när och om på sig \
         sin ska som så till upp ut vad var vi vid är över",
    ),
    (
        Language::Danish,
        "af at da de den der det du efter eller en er et for fra ham han har hun hvad hvor i ikke jeg kan med meget men mig \
         mig min nej nu og om op på sig sin skal som til ud var ved vi være",
    ),
    (
        Language::Norwegian,
        "av at da de den der det du eller en er et etter for fra ham han har hun hva hvor i ikke jeg kan med meg men min nei \
         nå og om opp på seg sin skal som til ut var ved vi være",
    ),
    (
        Language::Finnish,
        "ei ettei että hän ja jo joka jos kanssa kuin kun me mikä minä mitä mutta myös ne niin nyt oli olla on ovat se sen \
         siinä sitä tai tämä vain vaan",
    ),
    (
        Language::Russian,
        "а без бы был была были было быть в вот все вы где да для до его ее если есть еще же за и из или им их к как когда \
         кто ли меня мне мы на не него нет ни но о об он она они от по при с со так там то только ты у уже чем что это я",
    ),
];

/// The languages in which a word is a function word.
static LANGUAGES_OF: LazyLock<HashMap<&str, Languages>> = LazyLock::new(|| {
    let mut languages: HashMap<&str, Languages> = HashMap::new();
    for (language, words) in FUNCTION_WORDS {
        for word in words.split_ascii_whitespace() {
            languages.entry(word).or_default().add(language);
        }
    }
    languages
});

impl Language {
    const ALL: [Language; 14] = [
        Language::English,
        Language::German,
        Language::French,
        Language::Spanish,
        Language::Italian,
        Language::Portuguese,
        Language::Dutch,
        Language::Swedish,
        Language::Danish,
        Language::Norwegian,
        Language::Finnish,
        Language::Russian,
        Language::Greek,
        Language::Arabic,
    ];

    /// Recognises the language of a text in parts: the one with most function words in it, or the one of its script.
    /// English if neither decides.
    pub fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Language {
        Language::of_words(texts.flat_map(split))
    }

    /// Recognises the language of a text by its [words](split).
    pub fn of_words(words: impl Iterator<Item = impl AsRef<str>>) -> Language {
        let mut counts = [0_u32; Language::ALL.len()];
        for word in words.take(LANGUAGE_WORDS_MAX) {
            let word = word.as_ref();
            if let Some(script) = word.chars().next().and_then(by_script) {
                counts[script as usize] += FUNCTION_WORDS_MIN;
            }
            if let Some(languages) = LANGUAGES_OF.get(word) {
                languages
                    .iter()
                    .for_each(|language| counts[language as usize] += 1);
            }
        }
        let mut best = Language::English;
        for language in Language::ALL {
            if counts[language as usize] >= FUNCTION_WORDS_MIN
                && counts[language as usize] > counts[best as usize]
            {
                best = language;
            }
        }
        best
    }

    /// Whether a word in lower case is a function word.
    pub fn is_function_word(self, word: &str) -> bool {
        LANGUAGES_OF
            .get(word)
            .is_some_and(|languages| languages.contains(self))
    }

    /// Whether a word in lower case is a function word of any language. The language of a short question is not told.
    pub fn has_function_word(word: &str) -> bool {
        LANGUAGES_OF.contains_key(word)
    }

    /// The stem of a word in lower case.
    pub fn stem(self, word: &str) -> String {
        Stemmer::create(self.algorithm()).stem(word).into_owned()
    }

    fn algorithm(self) -> Algorithm {
        match self {
            Language::English => Algorithm::English,
            Language::German => Algorithm::German,
            Language::French => Algorithm::French,
            Language::Spanish => Algorithm::Spanish,
            Language::Italian => Algorithm::Italian,
            Language::Portuguese => Algorithm::Portuguese,
            Language::Dutch => Algorithm::Dutch,
            Language::Swedish => Algorithm::Swedish,
            Language::Danish => Algorithm::Danish,
            Language::Norwegian => Algorithm::Norwegian,
            Language::Finnish => Algorithm::Finnish,
            Language::Russian => Algorithm::Russian,
            Language::Greek => Algorithm::Greek,
            Language::Arabic => Algorithm::Arabic,
        }
    }
}

/// The language of a letter's script, if only one language here has it.
fn by_script(letter: char) -> Option<Language> {
    match letter {
        '\u{0400}'..='\u{04ff}' => Some(Language::Russian),
        '\u{0370}'..='\u{03ff}' => Some(Language::Greek),
        '\u{0600}'..='\u{06ff}' => Some(Language::Arabic),
        _ => None,
    }
}

impl Languages {
    /// Makes a set of these languages.
    pub fn of(languages: impl IntoIterator<Item = Language>) -> Languages {
        let mut all = Languages::default();
        languages.into_iter().for_each(|language| all.add(language));
        all
    }

    /// Adds a language.
    pub fn add(&mut self, language: Language) {
        self.0 |= 1 << language as u8;
    }

    /// Whether a language is in the set.
    pub fn contains(self, language: Language) -> bool {
        self.0 & (1 << language as u8) != 0
    }

    /// Lists the languages.
    pub fn iter(self) -> impl Iterator<Item = Language> {
        Language::ALL
            .into_iter()
            .filter(move |language| self.contains(*language))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_distinguished() {
        for (text, language) in [
            ("What is it that the bees have done?", Language::English),
            ("Spiders!", Language::English),
            (
                "Wir haben die Bienen nicht gesehen, und das ist gut",
                Language::German,
            ),
            ("Les abeilles sont dans le jardin avec nous", Language::French),
            ("Las abejas están en el jardín con los niños", Language::Spanish),
            ("Le api sono nel giardino e non è un problema", Language::Italian),
            ("De bijen zijn in de tuin en het is niet erg", Language::Dutch),
            ("As abelhas não são um problema para você", Language::Portuguese),
            (
                "Bina är i trädgården och det är inte farligt för mig",
                Language::Swedish,
            ),
            ("Пчелы живут в саду", Language::Russian),
            ("Οι μέλισσες ζουν στον κήπο", Language::Greek),
        ] {
            assert_eq!(Language::of([text].into_iter()), language, "{text}");
        }
    }

    #[test]
    fn languages_are_kept_in_a_number() {
        let both = Languages::of([Language::Arabic, Language::English]);
        assert_eq!(
            both.iter().collect::<Vec<_>>(),
            [Language::English, Language::Arabic]
        );
        for (number, language) in (0..).zip(Language::ALL) {
            assert_eq!(language as usize, number);
        }
    }
}
