//! Org: headings with stars, keywords, drawers, links.

use crate::message::Message;
use crate::source::{ReadOptions, markdown};

/// The lines around code and examples.
const FENCES: [&str; 4] = ["#+begin_src", "#+end_src", "#+begin_example", "#+end_example"];

/// Reads the messages of an Org text: a section each. Drawers and keywords other than title, date, author and tags are left
/// out.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    markdown::read(&as_markdown(text), options)
}

fn as_markdown(text: &str) -> String {
    let mut front = String::new();
    let mut body = String::new();
    let mut in_drawer = false;
    for line in text.lines() {
        let trimmed = line.trim();
        let lower = trimmed.to_lowercase();
        if in_drawer {
            in_drawer = lower != ":end:";
            continue;
        }
        if [":properties:", ":logbook:"].contains(&lower.as_str()) {
            in_drawer = true;
        } else if let Some((keyword, value)) = lower.strip_prefix("#+").and_then(|rest| rest.split_once(':'))
        {
            // The value with its capitals has the same length at the end of the line.
            let value = trimmed
                .get(trimmed.len().saturating_sub(value.len())..)
                .unwrap_or(value)
                .trim();
            match keyword {
                "title" | "author" => front.push_str(&format!("{keyword}: {value:?}\n")),
                "date" => front.push_str(&format!("date: {}\n", date(value))),
                "filetags" => front.push_str(&format!(
                    "tags: [{}]\n",
                    value.trim_matches(':').replace(':', ", ")
                )),
                _ => {}
            }
        } else if FENCES.iter().any(|fence| lower.starts_with(fence)) {
            body.push_str("```\n");
        } else if lower.starts_with("#+") || lower.starts_with("# ") {
            // Other blocks and comments.
        } else {
            let stars = line.bytes().take_while(|&byte| byte == b'*').count();
            match stars {
                1..=6 if line[stars..].starts_with(' ') => {
                    body.push_str(&format!(
                        "{} {}\n",
                        "#".repeat(stars),
                        with_link_labels(line[stars..].trim())
                    ));
                }
                _ => body.push_str(&format!("{}\n", with_link_labels(line))),
            }
        }
    }
    match front.is_empty() {
        true => body,
        false => format!("---\n{front}---\n{body}"),
    }
}

/// Takes `2023-05-01` out of `<2023-05-01 Mon 09:30>`, with the time behind it.
fn date(value: &str) -> String {
    let inner = value.trim_matches(['<', '>', '[', ']']);
    let parts: Vec<&str> = inner
        .split_whitespace()
        .filter(|part| part.starts_with(|letter: char| letter.is_ascii_digit()))
        .collect();
    parts.join(" ")
}

/// Writes `[[https://…][words]]` as the words, and `[[page]]` as the page.
fn with_link_labels(line: &str) -> String {
    let mut written = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("[[") {
        let Some((link, after)) = after.split_once("]]") else {
            break;
        };
        written.push_str(before);
        written.push_str(link.rsplit_once("][").map_or(link, |(_, label)| label));
        rest = after;
    }
    written.push_str(rest);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sections() {
        let text = "#+TITLE: Hives: all\n#+DATE: <2023-05-01 Mon 09:30>\n#+FILETAGS: :bees:drums:\n\n* Queen\n:PROPERTIES:\n:ID: 7\n\
            :END:\nShe knows [[https://bees.example][the page]].\n** Work\n#+BEGIN_SRC sh\n* no heading\n#+END_SRC\n";
        let found = read(text, &ReadOptions::default());
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].subject.as_deref(), Some("Hives: all / Queen"));
        assert_eq!(found[0].text(), "# Queen\nShe knows the page.");
        assert_eq!(found[0].tags, ["bees", "drums"]);
        assert_eq!(
            found[0].moment.expect("a date").at.to_string(),
            "2023-05-01T09:30:00.000Z"
        );
    }
}
