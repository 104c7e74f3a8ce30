//! The front matter of a note: YAML between lines `---`, or TOML between lines `+++`. Only the fields that a message has
//! are read: title, date, tags, author.

use crate::message::Moment;
use crate::source::{ReadOptions, moment};

/// The fields of a note.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FrontMatter {
    pub title: Option<String>,
    pub moment: Option<Moment>,
    pub tags: Vec<String>,
    pub author: Option<String>,
}

/// The fields that may hold the date, in the order in which they are looked for.
const DATE_FIELDS: [&str; 5] = ["date", "created", "created_at", "datetime", "published"];

impl FrontMatter {
    /// Reads the front matter of a text, and returns the rest.
    pub fn of<'t>(text: &'t str, options: &ReadOptions) -> (FrontMatter, &'t str) {
        let Some((block, body)) = cut(text) else {
            return (FrontMatter::default(), text);
        };
        let fields = fields(block);
        let values = |name: &str| {
            let found = fields
                .iter()
                .find(|(field, values)| field == name && !values.is_empty());
            found.map(|(_, values)| values.clone())
        };
        let one = |name: &str| values(name)?.into_iter().next();
        let dates = DATE_FIELDS.iter().filter_map(|field| one(field));
        let front = FrontMatter {
            title: one("title"),
            moment: dates
                .filter_map(|text| moment::parse(&text, options.zone_minutes))
                .next(),
            tags: values("tags")
                .or_else(|| values("keywords"))
                .unwrap_or_default()
                .into_iter()
                .map(|tag| tag.trim_start_matches('#').to_owned())
                .collect(),
            author: one("author"),
        };
        (front, body)
    }
}

/// Cuts the block between two lines of marks from the beginning of a text.
fn cut(text: &str) -> Option<(&str, &str)> {
    let mark = ["---", "+++"].into_iter().find(|mark| text.starts_with(mark))?;
    let (first, rest) = text.split_once('\n')?;
    if first.trim_end() != mark {
        return None;
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        let is_end = line.trim_end() == mark || (mark == "---" && line.trim_end() == "...");
        if is_end {
            return Some((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

/// The fields of YAML or TOML, as far as notes use them: `name: value`, `name = value`, `[a, b]`, and lists of lines.
fn fields(block: &str) -> Vec<(String, Vec<String>)> {
    let mut fields: Vec<(String, Vec<String>)> = Vec::new();
    for line in block.lines() {
        let trimmed = line.trim();
        if let Some(item) = trimmed.strip_prefix("- ") {
            if let Some((_, values)) = fields.last_mut() {
                values.extend(value(item));
            }
            continue;
        }
        // Deeper fields and comments belong to none of ours.
        if line.starts_with([' ', '\t', '#', '[']) {
            continue;
        }
        let end = trimmed.find([':', '=']);
        if let Some((name, rest)) = end.map(|at| (&trimmed[..at], trimmed[at + 1..].trim())) {
            let list = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let values = match list {
                Some(list) => list.split(',').filter_map(value).collect(),
                None if name.trim().eq_ignore_ascii_case("tags") => {
                    rest.split([',', ' ']).filter_map(value).collect()
                }
                None => value(rest).into_iter().collect(),
            };
            fields.push((name.trim().to_lowercase(), values));
        }
    }
    fields
}

/// A value without its quotation marks; `None` if it is empty.
fn value(text: &str) -> Option<String> {
    let text = text.trim();
    let quoted = ['"', '\'']
        .iter()
        .find_map(|mark| text.strip_prefix(*mark)?.strip_suffix(*mark));
    let bare = || text.split_once(" #").map_or(text, |(before, _)| before).trim();
    let text = quoted.unwrap_or_else(bare);
    (!text.is_empty() && text != "null" && text != "~").then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_yaml_and_toml() {
        let yaml = "---\ntitle: \"Bees: all\" \ndate: 2023-05-01T09:30:00+02:00\ntags:\n  - bees\n  - '#drums'\nmore:\n  title: x\n\
            ---\nHum.\n";
        let toml = "+++\r\ntitle = \"Bees: all\"\r\ndate = 2023-05-01T09:30:00+02:00\r\ntags = [\"bees\", \"drums\"]\r\n[extra]\r\n\
            +++\r\nHum.\r\n";
        for text in [yaml, toml] {
            let (front, body) = FrontMatter::of(text, &ReadOptions::default());
            assert_eq!(body.trim_end(), "Hum.");
            assert_eq!(front.title.as_deref(), Some("Bees: all"));
            assert_eq!(front.tags, ["bees", "drums"]);
            assert_eq!(front.moment.expect("a date").zone_minutes, Some(120));
        }
        for text in ["--- a\nb\n---\n", "---\nnever closed\n", "Hum.\n"] {
            assert_eq!(FrontMatter::of(text, &ReadOptions::default()).1, text);
        }
    }
}
