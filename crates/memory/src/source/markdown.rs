//! Markdown: a message for each section, with its headings as subject. The front matter gives its date and its tags.

use super::front_matter::FrontMatter;
use crate::message::Message;
use crate::source::ReadOptions;
use crate::source::chunk::split_markdown;

/// Reads the messages of a Markdown text.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    let (front, body) = FrontMatter::of(text, options);
    let body = with_link_names(body);
    let mut messages = Vec::new();
    for section in sections(&body) {
        let headings = front.title.iter().chain(&section.headings);
        let mut headings: Vec<&str> = headings.map(String::as_str).collect();
        // The first heading often repeats the title.
        headings.dedup();
        let subject = (!headings.is_empty()).then(|| headings.join(" / "));
        for chunk in split_markdown(&section.text, options.chunk_characters) {
            messages.push(Message {
                subject: subject.clone(),
                tags: front.tags.clone(),
                moment: front.moment,
                speaker: front.author.clone(),
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
    let mut before = "";
    for line in text.lines() {
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
        let heading = line[level.min(line.len())..]
            .trim()
            .trim_end_matches('#')
            .trim_end();
        let underlined = underline_level(before, line).filter(|_| fence.is_none());
        match (is_heading, underlined) {
            (true, _) => begin(&mut sections, &mut open, level, heading),
            (false, Some(level)) => {
                // The line before is the heading, and belongs to the new section.
                if let Some(section) = sections.last_mut() {
                    let kept = section.text.len() - before.len() - 1;
                    section.text.truncate(kept);
                }
                begin(&mut sections, &mut open, level, before.trim());
                push_line(&mut sections, before);
            }
            (false, None) => {}
        }
        push_line(&mut sections, line);
        before = line;
    }
    // A heading followed directly by another heading adds nothing to the subject of that one.
    sections.retain(|section| {
        let is_mark = |line: &&str| !line.trim().is_empty() && underline_level("x", line).is_none();
        section.text.lines().filter(is_mark).count() > usize::from(!section.headings.is_empty())
    });
    sections
}

fn begin(sections: &mut Vec<Section>, open: &mut Vec<(usize, String)>, level: usize, heading: &str) {
    open.retain(|(outer, _)| *outer < level);
    open.push((level, heading.to_owned()));
    sections.push(Section {
        headings: open.iter().map(|(_, heading)| heading.clone()).collect(),
        text: String::new(),
    });
}

fn push_line(sections: &mut [Section], line: &str) {
    if let Some(section) = sections.last_mut() {
        section.text.push_str(line);
        section.text.push('\n');
    }
}

/// The level of the heading that a line of `=` or `-` makes of the line before it. A line of `-` behind a list, a quote, a
/// table or an empty line is none.
fn underline_level(before: &str, line: &str) -> Option<usize> {
    let mark = line.trim_end();
    let is_all = |letter: char| mark.len() >= 2 && mark.chars().all(|other| other == letter);
    let text = before.trim();
    let is_text = !text.is_empty()
        && !text.starts_with(['#', '>', '|', '-', '*', '+', '=', '`', '~'])
        && !before.starts_with("    ");
    match () {
        () if !is_text => None,
        () if is_all('=') => Some(1),
        () if is_all('-') => Some(2),
        () => None,
    }
}

/// Writes wiki links as their names: `[[hives/Queen|the queen]]` becomes `the queen`, and `[[Queen]]` becomes `Queen`.
fn with_link_names(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[[") {
        let Some((link, after)) = after
            .split_once("]]")
            .filter(|(link, _)| !link.contains('\n') && !link.contains("[["))
        else {
            written.push_str(before);
            written.push_str("[[");
            rest = after;
            continue;
        };
        written.push_str(before);
        let name = link.rsplit_once('|').map_or(link, |(_, name)| name);
        written.push_str(name.trim());
        rest = after;
    }
    written.push_str(rest);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(Option<String>, String)> {
        let messages = read(text, &ReadOptions::default()).into_iter();
        messages
            .map(|message| (message.subject.clone(), message.text()))
            .collect()
    }

    #[test]
    fn cuts_at_headings() {
        let text = "---\nlayout: x\n---\nIntro.\n\n# Bees\n\n## Work\nThey hum.\n```\n# no heading\n```\n## Rest\nThey sleep.\n";
        let found = found(text);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], (None, "Intro.".to_owned()));
        assert_eq!(found[1].0.as_deref(), Some("Bees / Work"));
        assert!(found[1].1.contains("# no heading"));
        assert_eq!(found[2].0.as_deref(), Some("Bees / Rest"));
    }

    #[test]
    fn reads_underlined_headings_and_wiki_links() {
        let text = "Bees\r\n====\r\n\r\nThe [[people/Queen|queen]] knows [[Ada]].\r\n\r\nWork\r\n----\r\nThey hum.\r\n\r\n* a\r\n\
            ---\r\n| a |\r\n|---|\r\n";
        let found = found(text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].0.as_deref(), Some("Bees"));
        assert!(found[0].1.contains("The queen knows Ada."), "{found:?}");
        assert_eq!(found[1].0.as_deref(), Some("Bees / Work"));
    }

    #[test]
    fn front_matter_gives_date_and_tags() {
        let text = "---\r\ntitle: Hives\r\ndate: 2023-05-01\r\ntags: [bees, drums]\r\n---\r\nThey hum.\r\n";
        let message = read(text, &ReadOptions::default()).remove(0);
        assert_eq!(
            (message.subject.as_deref(), message.text().as_str()),
            (Some("Hives"), "They hum.")
        );
        assert_eq!(message.tags, ["bees", "drums"]);
        assert_eq!(
            message.moment.expect("a date").at.to_string(),
            "2023-05-01T00:00:00.000Z"
        );
    }
}
