//! The places of a question's words in the texts of messages.

use serde::Serialize;

use crate::limits::HIGHLIGHTS_MAX;
use crate::message::Message;
use crate::recall::text::AskedWord;
use crate::words::{Language, split, stem};

/// A place of a word of the question in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Highlight {
    /// The position of the chunk in the message, from 0.
    pub chunk: u32,
    /// The number of characters (Unicode code points) before the word in the chunk.
    pub start: u32,
    /// The number of characters before its end.
    pub end: u32,
}

/// Finds the words of a question in a message.
pub(super) fn highlights(message: &Message, asked: &[AskedWord]) -> Vec<Highlight> {
    if asked.is_empty() {
        return Vec::new();
    }
    let language = Language::of(
        message
            .text_chunks
            .iter()
            .chain(&message.subject)
            .map(String::as_str),
    );
    let mut found = Vec::new();
    for (chunk, text) in (0..).zip(&message.text_chunks) {
        for (start, end, word) in runs(text) {
            if found.len() >= HIGHLIGHTS_MAX {
                return found;
            }
            // A run of a script without spaces is several words: pairs of characters.
            let is_asked = split(word).any(|word| {
                let form = stem(&word, language);
                asked.iter().any(|asked| asked.forms.contains(&form))
            });
            if is_asked {
                found.push(Highlight { chunk, start, end });
            }
        }
    }
    found
}

/// The runs of letters and digits of a text, with the numbers of characters before their beginnings and ends.
fn runs(text: &str) -> impl Iterator<Item = (u32, u32, &str)> {
    let mut letters = (0_u32..).zip(text.char_indices()).peekable();
    std::iter::from_fn(move || {
        while letters
            .next_if(|(_, (_, letter))| !letter.is_alphanumeric())
            .is_some()
        {}
        let (start, (from, _)) = *letters.peek()?;
        let (mut end, mut to) = (start, from);
        while let Some((number, (at, letter))) = letters.next_if(|(_, (_, letter))| letter.is_alphanumeric())
        {
            (end, to) = (number + 1, at + letter.len_utf8());
        }
        Some((start, end, &text[from..to]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_all_their_forms_with_their_places() {
        let message = Message {
            text_chunks: vec!["Thé bees hummed. ".to_owned(), "Hum, bee!".to_owned()],
            ..Message::default()
        };
        let asked = [AskedWord {
            forms: vec![stem("hum", Language::English)],
            weight: 1.0,
        }];
        let places: Vec<(u32, u32, u32)> = highlights(&message, &asked)
            .into_iter()
            .map(|found| (found.chunk, found.start, found.end))
            .collect();
        assert_eq!(places, [(0, 9, 15), (1, 0, 3)]);
    }
}
