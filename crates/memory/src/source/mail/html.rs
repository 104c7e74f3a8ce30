//! HTML of mails as text: a paragraph a line, and quotations behind `>`.

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{StartTag, Token, Tokenizer};

/// Elements that begin a new line.
const BLOCKS: [&[u8]; 26] = [
    b"address",
    b"article",
    b"aside",
    b"blockquote",
    b"body",
    b"center",
    b"dd",
    b"div",
    b"dl",
    b"dt",
    b"fieldset",
    b"figure",
    b"footer",
    b"form",
    b"header",
    b"hr",
    b"li",
    b"main",
    b"ol",
    b"pre",
    b"section",
    b"table",
    b"tbody",
    b"tr",
    b"ul",
    b"nav",
];

/// Elements that stand apart from what is before and behind them.
const PARAGRAPHS: [&[u8]; 7] = [b"p", b"h1", b"h2", b"h3", b"h4", b"h5", b"h6"];

/// Elements whose content is no text.
const HIDDEN: [&[u8]; 6] = [b"head", b"style", b"script", b"template", b"title", b"noscript"];

/// The quotation marks of one line at most. Deeper quotations stand at this depth.
const DEPTH_MAX: usize = 32;

/// The line before a quotation that Outlook marks by a rule alone.
pub const RULE: &str = "________________________________";

/// Writes HTML as text.
pub fn to_text(html: &str) -> String {
    let mut writer = Writer::default();
    let mut emitter = DefaultEmitter::default();
    // Without a tree, the content of `<style>` and `<script>` is told from text by their names.
    emitter.naively_switch_states(true);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => writer.start(&tag),
            Token::EndTag(tag) => writer.end(&tag.name),
            Token::String(text) if writer.hidden == 0 => writer.text(&String::from_utf8_lossy(&text)),
            _ => {}
        }
    }
    writer.text.trim().to_owned()
}

/// The text so far.
#[derive(Default)]
struct Writer {
    text: String,
    /// Line feeds that are due before the next text.
    breaks: usize,
    /// Whether a blank is due before the next text.
    is_spaced: bool,
    /// Whether the current line has text.
    has_line: bool,
    depth: usize,
    hidden: usize,
    preformatted: usize,
}

impl Writer {
    fn start(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        if HIDDEN.contains(&name) {
            self.hidden += usize::from(!tag.self_closing);
            return;
        }
        match name {
            // Its content may be on the page, however broken the head is.
            b"body" => self.hidden = 0,
            b"br" => self.break_line(self.breaks + 1),
            b"td" | b"th" => self.is_spaced = true,
            b"pre" => self.preformatted += 1,
            _ => {}
        }
        if PARAGRAPHS.contains(&name) {
            self.break_line(2);
        } else if BLOCKS.contains(&name) {
            self.break_line(1);
        }
        if name == b"blockquote" {
            self.depth += 1;
        }
        if name == b"hr" || is_outlook_rule(tag) {
            self.line(RULE);
        }
        if name == b"li" {
            self.text("*");
            self.is_spaced = true;
        }
    }

    fn end(&mut self, name: &[u8]) {
        if HIDDEN.contains(&name) {
            self.hidden = self.hidden.saturating_sub(1);
            return;
        }
        if PARAGRAPHS.contains(&name) {
            self.break_line(2);
        } else if BLOCKS.contains(&name) {
            self.break_line(1);
        }
        match name {
            b"blockquote" => self.depth = self.depth.saturating_sub(1),
            b"pre" => self.preformatted = self.preformatted.saturating_sub(1),
            _ => {}
        }
    }

    /// Asks for line feeds before the next text.
    fn break_line(&mut self, feeds: usize) {
        // The first feed ends the current line, and there is no second empty line.
        let feeds = if self.has_line { feeds.min(2) } else { feeds.min(1) };
        self.breaks = self.breaks.max(feeds);
        self.is_spaced = false;
    }

    fn line(&mut self, line: &str) {
        self.break_line(1);
        self.text(line);
        self.break_line(1);
    }

    fn text(&mut self, text: &str) {
        if self.preformatted > 0 {
            for (at, line) in text.split('\n').enumerate() {
                if at > 0 {
                    self.break_line(self.breaks + 1);
                }
                self.begin_line();
                self.text.push_str(line.trim_end_matches('\r'));
                self.has_line |= !line.trim().is_empty();
            }
            return;
        }
        let mut words = text.split(|letter: char| letter.is_ascii_whitespace()).peekable();
        while let Some(word) = words.next() {
            if !word.is_empty() {
                let is_begun = self.breaks == 0 && self.has_line;
                self.begin_line();
                if self.is_spaced && is_begun {
                    self.text.push(' ');
                }
                self.is_spaced = false;
                self.text.push_str(word);
                self.has_line = true;
            }
            if words.peek().is_some() {
                self.is_spaced = true;
            }
        }
    }

    /// Writes the line feeds that are due, and the marks of a quotation.
    fn begin_line(&mut self) {
        if self.breaks == 0 && !self.text.is_empty() {
            return;
        }
        let marks = ">".repeat(self.depth.min(DEPTH_MAX));
        for feed in 0..self.breaks {
            self.text.push('\n');
            if feed + 1 < self.breaks {
                self.text.push_str(&marks);
            }
        }
        self.breaks = 0;
        self.has_line = false;
        self.text.push_str(&marks);
        if !marks.is_empty() {
            self.text.push(' ');
        }
    }
}

/// Whether an element is the rule that Outlook draws above the mail that is replied to.
fn is_outlook_rule(tag: &StartTag<()>) -> bool {
    let attribute = |name: &[u8]| -> String {
        let value = tag.attributes.get(name);
        value.map_or_else(String::new, |value| String::from_utf8_lossy(value).to_lowercase())
    };
    let style = attribute(b"style");
    attribute(b"id") == "divrplyfwdmsg"
        || (style.contains("border-top:solid") || style.contains("border-top: solid"))
            && (style.contains("#e1e1e1") || style.contains("#b5c4df"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_quotations_and_entities_are_kept() {
        let html = "<html><head><title>x</title><style>p {}</style></head><body><p>Bees &amp; drums,\n all day.</p>\
                    <div>One<br>two</div><ul><li>a</li><li>b</li></ul><blockquote type=cite><div>They <b>hum</b>.</div>\
                    <blockquote>Do they?</blockquote></blockquote><table><tr><td>1</td><td>2</td></tr></table>\
                    <script>no()</script></body></html>";
        assert_eq!(
            to_text(html),
            "Bees & drums, all day.\n\nOne\ntwo\n* a\n* b\n> They hum.\n>> Do they?\n1 2"
        );
        assert_eq!(to_text("<pre>a\n  b</pre>"), "a\n  b");
        assert_eq!(to_text("<p>a<p>b &lt;c"), "a\n\nb <c");
        assert_eq!(to_text("a<br><br>b"), "a\n\nb");
    }
}
