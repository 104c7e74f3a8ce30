//! Cuts long texts into chunks, at paragraphs or sentences if possible.

use text_splitter::{MarkdownSplitter, TextSplitter};

/// Chunks in one window. The splitter looks at the whole rest of a text for each chunk, so it gets the text in windows.
const WINDOW_CHUNKS: usize = 8;

/// Cuts a text into chunks of at most `characters_max` characters, between paragraphs or sentences if possible.
pub fn split(text: &str, characters_max: usize) -> Vec<String> {
    let splitter = TextSplitter::new(characters_max.max(1));
    split_by_windows(text.trim(), characters_max, |window| {
        splitter.chunk_indices(window).collect()
    })
}

/// Cuts a Markdown text in the same way.
pub fn split_markdown(text: &str, characters_max: usize) -> Vec<String> {
    let splitter = MarkdownSplitter::new(characters_max.max(1));
    split_by_windows(text.trim(), characters_max, |window| {
        splitter.chunk_indices(window).collect()
    })
}

/// Cuts one window after another. The last chunk of a window may continue behind it, so the next window begins with
/// that chunk.
fn split_by_windows<'t>(
    text: &'t str,
    characters_max: usize,
    cut: impl Fn(&'t str) -> Vec<(usize, &'t str)>,
) -> Vec<String> {
    let window_characters = characters_max.max(1).saturating_mul(WINDOW_CHUNKS);
    let mut chunks = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.char_indices().nth(window_characters);
        let (window, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        let before = rest.len();
        let mut found = cut(window);
        if !after.is_empty() && found.len() > 1 {
            let last = found.pop().map_or(window.len(), |(at, _)| at);
            rest = &rest[indented(window, last)..];
        } else {
            rest = after;
        }
        assert!(
            rest.len() < before || before == 0,
            "each window shortens the rest of the text"
        );
        chunks.extend(found.into_iter().map(|(_, chunk)| chunk.to_owned()));
        debug_assert!(
            chunks
                .iter()
                .all(|chunk| chunk.chars().count() <= characters_max.max(1))
        );
        if rest.is_empty() {
            return chunks;
        }
    }
}

/// The place of a chunk, including the blanks at the beginning of its line.
fn indented(text: &str, at: usize) -> usize {
    let before = text[..at].trim_end_matches([' ', '\t']);
    if before.ends_with('\n') { before.len() } else { at }
}

/// Cuts a text only if it does not fit one chunk.
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
    fn cuts_between_sentences_and_keeps_every_word() {
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

    #[test]
    fn windows_cut_a_text_at_the_same_places_as_the_whole() {
        const MAX: usize = 60;
        let texts = [
            "Bees hum. They drum all day long! Why do they?\n\nNobody knows.\n",
            "beeshumanddrum",
            "東京都に蜂がいる。",
            "* Bees hum\n    * and drum\n\n",
        ];
        for text in texts.map(|text| text.repeat(100)) {
            let splitter = TextSplitter::new(MAX);
            let whole: Vec<&str> = splitter.chunks(text.trim()).collect();
            assert!(whole.len() > WINDOW_CHUNKS);
            assert_eq!(split(&text, MAX), whole);
            let splitter = MarkdownSplitter::new(MAX);
            let whole: Vec<&str> = splitter.chunks(text.trim()).collect();
            assert_eq!(split_markdown(&text, MAX), whole);
        }
    }

    #[test]
    fn blanks_may_be_longer_than_a_window() {
        let blanks = " ".repeat(1_000);
        for text in [format!("a{blanks}b{blanks}c"), format!("a\n{blanks}b\n{blanks}c")] {
            let words = |chunks: Vec<String>| chunks.concat().split_whitespace().collect::<String>();
            assert_eq!(words(split(&text, 10)), "abc");
            assert_eq!(words(split_markdown(&text, 10)), "abc");
        }
    }
}
