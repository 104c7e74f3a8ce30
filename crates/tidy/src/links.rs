//! Links in Markdown resolve: a relative link names a file of the tree, and its fragment a heading of that file.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::tree::{Fault, SourceFile};

/// Relative links that name no file, or no heading of it.
pub fn broken_links(files: &[SourceFile]) -> Vec<Fault> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let folders: BTreeSet<&str> = files.iter().flat_map(|file| ancestors(file.folder())).collect();
    let markdown = || files.iter().filter(|file| file.extension() == "md");
    let headings: BTreeMap<&str, BTreeSet<String>> = markdown()
        .map(|file| (file.path.as_str(), anchors(&file.text)))
        .collect();
    let mut faults = Vec::new();
    for file in markdown() {
        for (line, link) in links(&file.text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let path = if target.is_empty() {
                file.path.clone()
            } else {
                resolve(file.folder(), target)
            };
            if !paths.contains(path.as_str()) && !folders.contains(path.as_str()) {
                faults.push(Fault::new(
                    &file.path,
                    line,
                    format!("the link `{link}` names no file of the tree"),
                ));
            } else if !fragment.is_empty()
                && headings
                    .get(path.as_str())
                    .is_some_and(|anchors| !anchors.contains(fragment))
            {
                faults.push(Fault::new(
                    &file.path,
                    line,
                    format!("the link `{link}` names no heading of {path}"),
                ));
            }
        }
    }
    faults
}

fn ancestors(folder: &str) -> Vec<&str> {
    let ends = folder.match_indices('/').map(|(at, _)| at).chain([folder.len()]);
    ends.map(|end| &folder[..end]).collect()
}

/// `target` as seen from `folder`, without `.` and `..`.
fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event {
            found.push((
                1 + text[..range.start].matches('\n').count(),
                dest_url.to_string(),
            ));
        }
    }
    found
}

/// The fragments of a text's headings, as GitHub forms them: lower case, hyphens for spaces, punctuation left out.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let heading = heading.take().unwrap_or_default().to_lowercase();
                let kept = heading
                    .chars()
                    .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
                anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
            }
            _ => {}
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_its_file_and_its_heading() {
        let files = [
            SourceFile::new(
                "docs/a.md",
                "[b](../b.md#how-it-works) [c](c.md)\n\n[d](../b.md#how) [e](../src) [f](https://x.y)",
            ),
            SourceFile::new("b.md", "# How it `works`?\n[self](#how-it-works)"),
            SourceFile::new("src/deep/main.rs", ""),
        ];
        let faults: Vec<String> = broken_links(&files).iter().map(Fault::to_string).collect();
        let expected = [
            "docs/a.md:1: the link `c.md` names no file of the tree",
            "docs/a.md:3: the link `../b.md#how` names no heading of b.md",
        ];
        assert_eq!(faults, expected);
    }
}
