//! Documents of Word (`.docx`): paragraphs and headings of their main part.

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::error::MemoryError;
use crate::message::Message;
use crate::source::{ReadOptions, archive, markdown, moment, recording, transcript};

/// The main part of a document, without the folder `word` around it.
const MAIN: &str = "document.xml";

/// The properties of a document, without the folder `docProps` around it.
const PROPERTIES: &str = "core.xml";

/// Reads the messages of a document: a section each, with its headings. Headers, footnotes, comments and pictures are left
/// out. The document's author and last change become speaker and time. A transcript, as Teams and Meet write it, has turns instead.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the bytes are not such a document.
pub fn read(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    let files = archive::texts(name, bytes, |path| {
        path == "word/document.xml" || path == "docProps/core.xml"
    })?;
    let part = |name: &str| {
        files
            .iter()
            .find(|(path, _)| path.ends_with(name))
            .map(|(_, text)| text.as_str())
    };
    let Some(main) = part(MAIN) else {
        return Err(MemoryError::invalid(
            name,
            "it is an archive without `word/document.xml`, so no document of Word",
        ));
    };
    let document = as_markdown(main)
        .map_err(|reason| MemoryError::invalid(name, format!("word/document.xml: {reason}")))?;
    let properties = part(PROPERTIES).unwrap_or_default();
    let modified =
        element(properties, "dcterms:modified").and_then(|text| moment::parse(&text, options.zone_minutes));
    let author = element(properties, "dc:creator").filter(|name| !name.trim().is_empty());
    if transcript::is_transcript(&document) && transcript::is_mostly_turns(&document) {
        let options = recording::options_of_transcript(&document, options);
        return Ok(transcript::read(&document, &options));
    }
    let mut messages = markdown::read(&document, options);
    if messages.is_empty() {
        return Err(MemoryError::invalid(
            name,
            "it has no text; a scan needs a program that recognises characters, such as ocrmypdf",
        ));
    }
    for message in &mut messages {
        message.moment = modified;
        message.speaker.clone_from(&author);
    }
    Ok(messages)
}

/// The text of an element that is there once.
fn element(xml: &str, name: &str) -> Option<String> {
    let begin = xml.find(&format!("<{name}"))?;
    let begin = begin + xml[begin..].find('>')? + 1;
    let end = begin + xml[begin..].find("</")?;
    Some(xml[begin..end].to_owned())
}

fn as_markdown(xml: &str) -> Result<String, String> {
    let mut reader = Reader::from_str(xml);
    let mut document = String::new();
    let mut paragraph = String::new();
    let mut level = 0;
    let mut is_text = false;
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Eof => return Ok(document),
            Event::Start(start) if start.local_name().as_ref() == "t" => is_text = true,
            Event::End(end) if end.local_name().as_ref() == "t" => is_text = false,
            Event::Start(tag) | Event::Empty(tag) => match tag.local_name().as_ref() {
                "tab" => paragraph.push('\t'),
                "br" | "cr" => paragraph.push('\n'),
                "pStyle" => {
                    let style = tag
                        .attributes()
                        .flatten()
                        .find(|attribute| attribute.key.local_name().as_ref() == "val");
                    let style = style.map(|style| style.value.to_lowercase()).unwrap_or_default();
                    level = heading_level(&style);
                }
                _ => {}
            },
            Event::Text(words) if is_text => paragraph.push_str(&words),
            Event::GeneralRef(entity) if is_text => {
                paragraph.push_str(&crate::source::subtitles::entity_text(&entity).unwrap_or_default());
            }
            Event::End(end) if end.local_name().as_ref() == "p" => {
                let text = paragraph.trim();
                if !text.is_empty() {
                    let mark = if level > 0 {
                        format!("{} ", "#".repeat(level))
                    } else {
                        String::new()
                    };
                    document.push_str(&format!("{mark}{text}\n\n"));
                }
                paragraph.clear();
                level = 0;
            }
            _ => {}
        }
    }
}

/// The level of a heading by the name of its style: `Heading2`, `berschrift1`, `Titre3`, `Title`.
fn heading_level(style: &str) -> usize {
    if style == "title" {
        return 1;
    }
    let is_heading = [
        "heading",
        "berschrift",
        "titre",
        "titolo",
        "ttulo",
        "kop",
        "rubrik",
    ]
    .iter()
    .any(|name| style.starts_with(name));
    let digit = style
        .chars()
        .last()
        .and_then(|letter| letter.to_digit(10))
        .filter(|digit| (1..=6).contains(digit));
    digit.filter(|_| is_heading).map_or(0, |digit| digit as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_become_sections() {
        let xml = "<w:document xmlns:w=\"w\"><w:body><w:p><w:pPr><w:pStyle w:val=\"Heading1\"/></w:pPr><w:r><w:t>Bees</w:t></w:r></w:p>\
            <w:p><w:r><w:t xml:space=\"preserve\">They </w:t></w:r><w:r><w:t>hum &amp; drum.</w:t></w:r></w:p><w:p/></w:body></w:document>";
        assert_eq!(as_markdown(xml).expect("XML"), "# Bees\n\nThey hum & drum.\n\n");
    }

    /// A document whose paragraphs are these runs of XML.
    fn document(paragraphs: &[&str]) -> Vec<u8> {
        let paragraphs: String = paragraphs
            .iter()
            .map(|runs| format!("<w:p>{runs}</w:p>"))
            .collect();
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        archive
            .start_file("word/document.xml", zip::write::SimpleFileOptions::default())
            .expect("a file");
        let xml = format!("<w:document><w:body>{paragraphs}</w:body></w:document>");
        std::io::Write::write_all(&mut archive, xml.as_bytes()).expect("writes");
        archive.finish().expect("an archive").into_inner()
    }

    #[test]
    fn a_transcript_of_teams_has_turns() {
        let bytes = document(&[
            "<w:r><w:t>Weekly sync</w:t></w:r>",
            "<w:r><w:t>March 12, 2024, 2:02PM</w:t></w:r>",
            "<w:r><w:t>Ines Lopez</w:t></w:r><w:r><w:t xml:space=\"preserve\">   0:03</w:t><w:br/><w:t>Do they hum?</w:t></w:r>",
            "<w:r><w:t>Bob Stone</w:t><w:tab/><w:t>1:10</w:t><w:br/><w:t>All day.</w:t></w:r>",
            "<w:r><w:t>Ines Lopez</w:t></w:r><w:r><w:t xml:space=\"preserve\">   1:20</w:t><w:br/><w:t>Why?</w:t></w:r>",
        ]);
        let found = read("sync.docx", &bytes, &ReadOptions::default()).expect("a document");
        let turns: Vec<(Option<&str>, String, String)> = found[1..]
            .iter()
            .map(|message| {
                let at = message.moment.expect("a time").at.to_string();
                (message.speaker.as_deref(), message.text(), at[..19].to_owned())
            })
            .collect();
        let turn =
            |speaker, text: &str, at: &str| (Some(speaker), text.to_owned(), format!("2024-03-12T{at}"));
        assert_eq!(
            turns,
            [
                turn("Ines Lopez", "Do they hum?", "14:02:03"),
                turn("Bob Stone", "All day.", "14:03:10"),
                turn("Ines Lopez", "Why?", "14:03:20"),
            ]
        );
        assert!(read("x.docx", &document(&[]), &ReadOptions::default()).is_err());
    }

    #[test]
    fn a_report_that_quotes_somebody_is_no_transcript() {
        let text = |text: &str| format!("<w:r><w:t>{text}</w:t></w:r>");
        assert!(transcript::is_transcript("Ines: They hum.\n\nInes: They drum."));
        let mut paragraphs = vec![text("Ines: They hum."), text("Ines: They drum.")];
        paragraphs.extend((1..8).map(|number| text(&format!("Bees of hive {number} hum all day."))));
        let paragraphs: Vec<&str> = paragraphs.iter().map(String::as_str).collect();
        let bytes = document(&paragraphs);
        let found = read("report.docx", &bytes, &ReadOptions::default()).expect("a document");
        assert!(found.iter().all(|message| message.speaker.is_none()), "{found:?}");
    }
}
