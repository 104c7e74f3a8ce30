//! The weights of the ranking of messages, and their origin.
//!
//! There are 759 questions about five long conversations of two people, of 369 to 680 messages, with the messages that
//! answer them. Their licence keeps them out of this tree. Each weight was chosen with two of the conversations (348
//! questions), by trying round values with `benches/quality.rs`, one weight at a time and then several together. The
//! other three (411 questions) were measured once, at the end:
//!
//! | recall@10 | all | one hop | several hops | time | inference |
//! | --- | --- | --- | --- | --- | --- |
//! | the two, plain BM25 | 0.577 | 0.671 | 0.260 | 0.734 | 0.227 |
//! | the two, without brevity, conversation, likeness and question, speaker 1.6 | 0.744 | 0.878 | 0.405 | 0.857 | 0.295 |
//! | the two | 0.753 | 0.867 | 0.454 | 0.857 | 0.375 |
//! | the three, without these | 0.778 | 0.859 | 0.501 | 0.898 | 0.409 |
//! | the three | 0.809 | 0.895 | 0.549 | 0.891 | 0.447 |
//! | the two, with all-MiniLM-L6-v2 | 0.788 | 0.881 | 0.531 | 0.851 | 0.602 |
//! | the three, with all-MiniLM-L6-v2 | 0.832 | 0.927 | 0.556 | 0.898 | 0.489 |
//! | the two, with static vectors (wordllama) | 0.759 | 0.865 | 0.475 | 0.870 | 0.375 |
//! | the three, with static vectors | 0.809 | 0.886 | 0.555 | 0.904 | 0.477 |
//!
//! The weights of mails, channels and documents were chosen with every other question about a mailing list (R-sig-HPC, 2,152 mails, 52
//! questions with their threads), a technical chat (9,912 lines, 40 questions with the lines of their conversations) and notes
//! (README files of 420 packages, 40 questions), and measured with the others, too:
//!
//! | recall@10, MRR | recall | BM25 | FTS5 with the stemmer of Porter |
//! | --- | --- | --- | --- |
//! | mailing list, chosen | 0.808, 0.567 | 0.692, 0.290 | 0.769, 0.424 |
//! | mailing list, the others | 0.885, 0.670 | 0.769, 0.589 | 0.808, 0.571 |
//! | technical chat, chosen | 0.850, 0.704 | 0.700, 0.528 | 0.900, 0.545 |
//! | technical chat, the others | 0.950, 0.785 | 0.900, 0.641 | 0.900, 0.722 |
//! | notes, chosen | 0.900, 0.622 | 0.700, 0.414 | 0.700, 0.546 |
//! | notes, the others | 0.850, 0.762 | 0.850, 0.718 | 0.850, 0.716 |
//!
//! With the weights of dialogues, recall found 0.769, 0.850 and 0.775 of the three, with MRR 0.502, 0.495 and 0.562.
//!
//! Rejected: lower weights for words that shape a question, such as `likely` (on the two, 0.747 instead of 0.750), and
//! for messages next to better ones (0.738 instead of 0.744). With vectors, on the two: speakers' names in the embedded
//! question (0.771 instead of 0.788), and the speaker before each message's text (0.776 instead of 0.781).

use crate::source::SourceKind;
use crate::store::conversations::NEIGHBOURS_APART_MAX;

/// The weights of the signs that a message answers a question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// The weight of a word that is a speaker's name. In a text, a name says who is addressed, and not what the subject is.
    pub name: f64,
    /// The weight of a word that replaces a misspelt one.
    pub spelling: f64,
    /// The factor of messages of a speaker whom the question names.
    pub speaker: f64,
    /// The factor of messages of the time that the question names.
    pub time: f64,
    /// The gain of the message nearest in meaning, as a share of the best score by words.
    pub meaning: f64,
    /// Minimum cosine at which a message is about the subject of a question. Questions and answers are less alike than terms.
    pub cosine_min: f64,
    /// The weights that depend on what messages are to each other, in the order of [`SourceKind::ALL`].
    pub kinds: [KindWeights; SourceKind::ALL.len()],
}

/// The weights for messages of one kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KindWeights {
    /// BM25: the number of occurrences at which further ones count less.
    pub saturation: f64,
    /// The gain of the best match of the query, as a share of the best score.
    pub matched: f64,
    /// BM25: the share of the length of a message in its norm.
    pub length_share: f64,
    /// The parts of its score that a message adds to the next messages of its conversation, one and two places away, and to
    /// those before it.
    pub neighbours: [f64; NEIGHBOURS_APART_MAX],
    /// The number of words at which a message gets half its score: `Thanks!` never answers anything.
    pub brevity: f64,
    /// The part of the score of a whole conversation that each of its messages gets.
    pub conversation: f64,
    /// The gain from likeness to the first messages, as a share of the best score.
    pub likeness: f64,
    /// The factor of messages that end with a question mark.
    pub question: f64,
    /// The gain of a message whose subject has all words of the question, as a share of the best score.
    pub subject: f64,
    /// The gain of a message that has all words of the question, as a share of the best score.
    pub coverage: f64,
    /// The gain of a message in which neighbouring words of the question stand together, as a share of the best score.
    pub nearness: f64,
    /// The factor of a message for each better one of its conversation.
    pub repeated: f64,
}

impl Weights {
    /// The weights for messages of a kind of source.
    pub fn of(&self, kind: SourceKind) -> &KindWeights {
        &self.kinds[kind as usize]
    }
}

const DIALOGUE: KindWeights = KindWeights {
    saturation: 1.2,
    matched: 0.3,
    length_share: 0.75,
    neighbours: [0.5, 0.2],
    brevity: 3.0,
    conversation: 0.3,
    likeness: 0.8,
    question: 0.8,
    subject: 0.0,
    coverage: 0.0,
    nearness: 0.0,
    repeated: 1.0,
};

const CHANNEL: KindWeights = KindWeights {
    saturation: 0.6,
    matched: 0.2,
    length_share: 0.9,
    neighbours: [0.05, 0.025],
    brevity: 1.0,
    conversation: 0.1,
    likeness: 0.1,
    question: 1.5,
    subject: 0.3,
    coverage: 2.0,
    nearness: 0.6,
    repeated: 0.9,
};

const MAIL: KindWeights = KindWeights {
    saturation: 1.9,
    matched: 0.15,
    length_share: 0.75,
    neighbours: [0.3, 0.1],
    brevity: 2.0,
    conversation: 0.5,
    likeness: 0.125,
    question: 1.0,
    subject: 0.25,
    coverage: 0.75,
    nearness: 0.6,
    repeated: 0.8,
};

const DOCUMENT: KindWeights = KindWeights {
    saturation: 1.2,
    matched: 0.3,
    length_share: 0.75,
    neighbours: [0.0, 0.0],
    brevity: 3.0,
    conversation: 4.0,
    likeness: 0.1,
    question: 1.0,
    subject: 0.8,
    coverage: 0.5,
    nearness: 0.3,
    repeated: 0.9,
};

impl Default for Weights {
    fn default() -> Self {
        Weights {
            name: 0.3,
            spelling: 0.8,
            speaker: 2.0,
            time: 3.0,
            meaning: 1.0,
            cosine_min: 0.2,
            kinds: [DIALOGUE, CHANNEL, MAIL, DOCUMENT],
        }
    }
}
