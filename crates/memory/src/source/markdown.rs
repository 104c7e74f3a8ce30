//! Markdown: a message for each section, with its headings as subject.

use crate::message::Message;
use crate::source::ReadOptions;
use crate::source::chunk::split_markdown;

/// Reads the messages of a Markdown text.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    let mut messages = Vec::new();
    for section in sections(text) {
        let subject = (!section.headings.is_empty()).then(|| section.headings.join(" / "));
        for chunk in split_markdown(&section.text, options.chunk_characters) {
            messages.push(Message {
                subject: subject.clone(),
                ..Message::new(chunk)
            });
        }
    }
    messages
}

#[derive(Default)]
struct Section {
    headings: Vec<String>,
    text: String,
}

fn sections(text: &str) -> Vec<Section> {
    let mut sections = vec![Section::default()];
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in without_front_matter(text).lines() {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(begun), Some(mark)) if begun == mark => fence = None,
            _ => {}
        }
        let level = line.bytes().take_while(|&byte| byte == b'#').count();
        let is_heading =
            fence.is_none() && (1..=6).contains(&level) && line[level..].starts_with([' ', '\t']);
        if is_heading {
            open.retain(|(outer, _)| *outer < level);
            open.push((
                level,
                line[level..].trim().trim_end_matches('#').trim_end().to_owned(),
            ));
            sections.push(Section {
                headings: open.iter().map(|(_, heading)| heading.clone()).collect(),
                text: String::new(),
            });
        }
        if let Some(section) = sections.last_mut() {
            section.text.push_str(line);
            section.text.push('\n');
        }
    }
    // A heading followed directly by another heading adds nothing to the subject of that one.
    sections
        .retain(|section| section.text.trim().lines().count() > usize::from(!section.headings.is_empty()));
    sections
}

/// Removes `---` … `---` at the beginning of a text, which describes the file and not its subject.
fn without_front_matter(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("---\n") else {
        return text;
    };
    rest.find("\n---\n").map_or(text, |end| &rest[end + 5..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_at_headings() {
        let text = "---\ntitle: x\n---\nIntro.\n\n# Bees\n\n## Work\nThey hum.\n```\n# no heading\n```\n## Rest\nThey sleep.\n";
        let found: Vec<(Option<String>, String)> = read(text, &ReadOptions::default())
            .into_iter()
            .map(|message| (message.subject.clone(), message.text()))
            .collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], (None, "Intro.".to_owned()));
        assert_eq!(found[1].0.as_deref(), Some("Bees / Work"));
        assert!(found[1].1.contains("# no heading"));
        assert_eq!(found[2].0.as_deref(), Some("Bees / Rest"));
    }
}
