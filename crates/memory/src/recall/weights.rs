//! The weights of the ranking of messages, and how they were found.
//!
//! Five long conversations of two people, of 369 to 680 messages, have 759 questions with the messages that answer them. Their
//! licence keeps them out of this tree. Each weight was set on two of them (348 questions), by trying round values one at a
//! time with `benches/quality.rs`, and then several together. The three others (411 questions) were measured once, at the end:
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
//! Rejected: lower weights for words that shape a question, such as `likely` (on the two, 0.747 instead of 0.750), and for messages beside
//! better ones (0.738 instead of 0.744). With vectors, on the two: the names of speakers in the question that is embedded (0.771
//! instead of 0.788), and the speaker before each message's text (0.776 instead of 0.781).

use crate::store::conversations::NEIGHBOURS_APART_MAX;

/// How much each sign counts that a message answers a question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// BM25: how soon further occurrences of a word count less.
    pub saturation: f64,
    /// BM25: how much the length of a message counts.
    pub length_share: f64,
    /// The parts of its score that a message adds to those one and two places away.
    pub neighbours: [f64; NEIGHBOURS_APART_MAX],
    /// The weight of a word of a speaker's name in a text: it tells the addressee, and not the subject.
    pub name: f64,
    /// The weight of a word that a misspelt one was taken for.
    pub spelling: f64,
    /// The factor of messages of a speaker whom the question names.
    pub speaker: f64,
    /// The factor of messages of the time that the question tells.
    pub time: f64,
    /// The number of words at which a message counts half: `Thanks!` answers nothing, wherever it stands.
    pub brevity: f64,
    /// The part of the score of the whole conversation that each of its messages gets.
    pub conversation: f64,
    /// What the message nearest in meaning gains, as a share of the best score by words.
    pub meaning: f64,
    /// The cosine from which on a message is about what a question asks. Questions and answers are less alike than terms.
    pub cosine_min: f64,
    /// What the best match of the query adds, as a share of the best score.
    pub matched: f64,
    /// What the likeness to the first messages adds, as a share of the best score.
    pub likeness: f64,
    /// The factor of messages that end with a question mark.
    pub question: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Weights {
            saturation: 1.2,
            length_share: 0.75,
            neighbours: [0.5, 0.2],
            name: 0.3,
            spelling: 0.8,
            speaker: 2.0,
            time: 3.0,
            brevity: 3.0,
            conversation: 0.3,
            meaning: 1.0,
            cosine_min: 0.2,
            matched: 0.3,
            likeness: 0.8,
            question: 0.8,
        }
    }
}
