//! Cutting long texts into chunks, at the best places for it.

use text_splitter::{MarkdownSplitter, TextSplitter};

/// Cuts a text into chunks of at most so many characters, between paragraphs or sentences where it can be.
pub fn split(text: &str, characters_max: usize) -> Vec<String> {
    let splitter = TextSplitter::new(characters_max.max(1));
    splitter.chunks(text.trim()).map(str::to_owned).collect()
}

/// The same for Markdown.
pub fn split_markdown(text: &str, characters_max: usize) -> Vec<String> {
    let splitter = MarkdownSplitter::new(characters_max.max(1));
    splitter.chunks(text.trim()).map(str::to_owned).collect()
}

/// A text in one chunk where it fits, and else in several.
pub fn split_if_long(text: &str, characters_max: usize) -> Vec<String> {
    let text = text.trim();
    if text.len() <= characters_max || text.chars().count() <= characters_max {
        return vec![text.to_owned()];
    }
    split(text, characters_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_between_sentences_and_loses_no_word() {
        let text = "One two three. Four five six! Seven eight?".repeat(3);
        let chunks = split_if_long(&text, 40);
        assert!(chunks.len() > 2);
        assert!(chunks.iter().all(|chunk| chunk.chars().count() <= 40));
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .concat()
        };
        assert_eq!(words(&chunks.join(" ")), words(&text));
        assert_eq!(split_if_long(" short ", 40), ["short"]);
    }
}
