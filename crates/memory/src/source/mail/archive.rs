//! What a reader knows of the mails that it has read before: people, threads, and what was said.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Sentences that are remembered, so that no quotation repeats them: those of about 50,000 mails before.
const SENTENCES_MAX: usize = 500_000;

/// Mails and people that are remembered.
const MAILS_MAX: usize = 100_000;

/// The beginning and the factor of the hash of letters, FNV-1a, which takes a fifth of the time of a keyed hash.
const LETTERS_SEED: u64 = 0xcbf2_9ce4_8422_2325;
const LETTERS_FACTOR: u64 = 0x0000_0100_0000_01b3;

/// A map of the last entries. When it is full, the older half goes.
#[derive(Debug)]
struct Recent<V> {
    new: HashMap<u64, V>,
    old: HashMap<u64, V>,
    half: usize,
}

impl<V> Recent<V> {
    fn new(max: usize) -> Recent<V> {
        Recent {
            new: HashMap::new(),
            old: HashMap::new(),
            half: max / 2,
        }
    }

    fn get(&self, key: u64) -> Option<&V> {
        self.new.get(&key).or_else(|| self.old.get(&key))
    }

    fn insert(&mut self, key: u64, value: V) {
        if self.new.len() >= self.half {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, value);
    }
}

/// What is known of the mails of a mailbox that were read before.
#[derive(Debug)]
pub struct Archive {
    sentences: Recent<()>,
    /// How people are written, by their names and addresses.
    people: Recent<String>,
    /// The thread of each mail, and of each subject.
    threads: Recent<String>,
    /// The sender of each mail.
    senders: Recent<String>,
}

impl Default for Archive {
    fn default() -> Self {
        Archive {
            sentences: Recent::new(SENTENCES_MAX),
            people: Recent::new(MAILS_MAX),
            threads: Recent::new(MAILS_MAX),
            senders: Recent::new(MAILS_MAX),
        }
    }
}

/// The names of a mail, and of those that it answers.
#[derive(Debug, Default)]
pub struct Names<'m> {
    /// Its Message-ID.
    pub id: Option<&'m str>,
    /// The Message-IDs that it refers to, the first of the thread first.
    pub references: Vec<&'m str>,
    /// Its subject without `Re:` and the like.
    pub subject: Option<&'m str>,
    /// Whether its subject says that it is a reply.
    pub is_reply: bool,
}

impl Archive {
    /// Learns how a person is written: `Ada King <ada@bees.example>`. A name with an address says more than one of both.
    pub fn meet(&mut self, person: &str) {
        let has_both = |person: &str| person.contains(" <");
        for name in names_of(person) {
            let key = hash(&name.to_lowercase());
            let known = self.people.get(key);
            if known.is_none_or(|known| has_both(person) && !has_both(known)) {
                self.people.insert(key, person.to_owned());
            }
        }
    }

    /// A person as the mails write it whom a quotation names.
    pub fn person(&self, named: &str) -> String {
        let mut names = names_of(named);
        // The address tells a person better than the name.
        names.reverse();
        let known = names
            .iter()
            .find_map(|name| self.people.get(hash(&name.to_lowercase())));
        known.cloned().unwrap_or_else(|| named.to_owned())
    }

    /// The sender of the mail that a mail answers.
    pub fn sender_of(&self, names: &Names<'_>) -> Option<String> {
        self.senders.get(hash(names.references.last()?)).cloned()
    }

    /// The thread of a mail: that of a mail that it refers to, or else the first of its references, or else that of the
    /// last mail with this subject.
    pub fn thread(&mut self, names: &Names<'_>, sender: Option<&str>) -> Option<String> {
        let known = names
            .references
            .iter()
            .rev()
            .find_map(|id| self.threads.get(hash(id)));
        let subject = names
            .subject
            .map(|subject| hash(&("subject", subject.to_lowercase())));
        let by_subject = || {
            let subject = subject.filter(|_| names.is_reply)?;
            self.threads.get(subject).cloned()
        };
        let thread = known
            .cloned()
            .or_else(|| names.references.first().map(|id| (*id).to_owned()))
            .or_else(by_subject)
            .or_else(|| names.id.map(str::to_owned))
            .or_else(|| names.subject.map(str::to_owned))?;
        if let Some(id) = names.id {
            self.threads.insert(hash(id), thread.clone());
            if let Some(sender) = sender {
                self.senders.insert(hash(id), sender.to_owned());
            }
        }
        if let Some(subject) = subject {
            self.threads.insert(subject, thread.clone());
        }
        Some(thread)
    }

    /// Remembers the sentences of a text.
    pub fn remember(&mut self, text: &str) {
        for (_, sentence) in sentences(text) {
            self.sentences.insert(sentence, ());
        }
    }

    /// A quotation without the sentences that were read before.
    pub fn without_known(&self, text: &str) -> String {
        let all = sentences(text);
        if all
            .iter()
            .all(|(_, sentence)| self.sentences.get(*sentence).is_none())
        {
            return text.to_owned();
        }
        let mut left = String::new();
        for (range, sentence) in all {
            if self.sentences.get(sentence).is_none() {
                left.push_str(&text[range]);
            } else if !left.ends_with('\n') && !left.is_empty() {
                left.push('\n');
            }
        }
        left.trim().to_owned()
    }
}

/// The name and the address of `Ada King <ada@bees.example>`.
fn names_of(person: &str) -> Vec<&str> {
    let parts = person.trim_end_matches('>').split(" <");
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn hash(key: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// The sentences of a text, each with a hash of its letters. A quotation that is broken into other lines has the same.
fn sentences(text: &str) -> Vec<(std::ops::Range<usize>, u64)> {
    let mut found = Vec::new();
    let mut begin = 0;
    let mut digest = LETTERS_SEED;
    let mut letters = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, letter)) = characters.next() {
        if letter.is_alphanumeric() {
            digest = (digest ^ u64::from(letter)).wrapping_mul(LETTERS_FACTOR);
            letters += 1;
        }
        let next = characters.peek().map(|(_, next)| *next);
        let is_end = match letter {
            '.' | '!' | '?' => next.is_none_or(char::is_whitespace),
            '。' | '！' | '？' | '।' | '؟' => true,
            '\n' => next.is_none_or(|next| next == '\n'),
            _ => next.is_none(),
        };
        if is_end {
            let end = at + letter.len_utf8();
            if letters > 0 {
                found.push((begin..end, digest));
                begin = end;
            }
            (digest, letters) = (LETTERS_SEED, 0);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sentences_are_left_out_of_quotations() {
        let mut archive = Archive::default();
        archive.remember("Bees hum all day. Nobody knows why.\n\nThey drum, too.");
        assert_eq!(
            archive.without_known("Bees hum all\nday. But wasps sting.\nNobody\nknows why."),
            "But wasps sting."
        );
        assert_eq!(
            archive.without_known("Wasps. Sting.\n\nA  b"),
            "Wasps. Sting.\n\nA  b"
        );
        assert_eq!(archive.without_known("They drum, too."), "");
    }

    #[test]
    fn threads_go_by_references_or_else_by_subjects() {
        let mut archive = Archive::default();
        let names = |id: &'static str, references: &[&'static str], is_reply: bool| Names {
            id: Some(id),
            references: references.to_vec(),
            subject: Some("Bees"),
            is_reply,
        };
        let mut thread = |names: &Names<'_>| archive.thread(names, Some("Ada")).expect("a thread");
        assert_eq!(thread(&names("1", &[], false)), "1");
        assert_eq!(thread(&names("2", &["1"], true)), "1");
        assert_eq!(
            thread(&names("3", &["2"], true)),
            "1",
            "a list of references may be short"
        );
        assert_eq!(thread(&names("4", &[], true)), "1", "by its subject");
        assert_eq!(
            thread(&names("5", &[], false)),
            "5",
            "another mail of this subject"
        );
        assert_eq!(thread(&names("6", &["0"], true)), "0", "the first is elsewhere");
    }

    #[test]
    fn people_are_known_by_name_and_address() {
        let mut archive = Archive::default();
        archive.meet("Ada King <ada@bees.example>");
        for named in ["ada king", "ada@bees.example", "Ada <ada@bees.example>"] {
            assert_eq!(archive.person(named), "Ada King <ada@bees.example>");
        }
        assert_eq!(archive.person("Bob"), "Bob");
        archive.meet("cleo@bees.example");
        archive.meet("Cleo Reed <cleo@bees.example>");
        archive.meet("cleo@bees.example");
        assert_eq!(
            archive.person("cleo@bees.example"),
            "Cleo Reed <cleo@bees.example>"
        );
    }

    #[test]
    fn old_entries_go() {
        let mut recent = Recent::new(4);
        (0..9).for_each(|key| recent.insert(key, key));
        assert_eq!(recent.get(8), Some(&8));
        assert_eq!(recent.get(0), None);
        assert!(recent.new.len() + recent.old.len() <= 4);
    }
}
