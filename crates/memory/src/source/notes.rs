//! Notes and documents that become Markdown: Org, notebooks of Jupyter, HTML, documents of Word, and PDF files.

pub mod calendar;
mod docx;
mod org;
pub(super) mod pdf;

use serde_json::Value;

use crate::error::MemoryError;
use crate::message::Message;
use crate::source::{ReadOptions, html, markdown};

pub use docx::read as read_docx;
pub use org::read as read_org;

/// Reads the messages of an HTML page: its text, with its title as subject.
pub fn read_html(text: &str, options: &ReadOptions) -> Vec<Message> {
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title").and_then(|at| {
        let begin = at + lower[at..].find('>')? + 1;
        let end = begin + lower[begin..].find("</title")?;
        Some(html::text(&text[begin..end]))
    });
    let title = title.filter(|title| !title.is_empty());
    let chunks = crate::source::chunk::split(&html::text(text), options.chunk_characters);
    let messages = chunks.into_iter().map(|chunk| Message {
        subject: title.clone(),
        ..Message::new(chunk)
    });
    messages.collect()
}

/// Reads the messages of a notebook: sections of its texts, with the code between them. Outputs are left out.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the text is not a notebook.
pub fn read_notebook(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    let notebook: Value = serde_json::from_str(text).map_err(|error| {
        MemoryError::invalid(
            format!("{name}, line {}", error.line().max(1)),
            format!("it is not JSON: {error}"),
        )
    })?;
    let Some(cells) = notebook["cells"].as_array() else {
        return Err(MemoryError::invalid(
            name,
            "it has no list `cells`, as notebooks of Jupyter have since version 4; convert it with `jupyter nbconvert`",
        ));
    };
    let mut document = String::new();
    for cell in cells {
        let source = match &cell["source"] {
            Value::String(source) => source.clone(),
            Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
            _ => continue,
        };
        match cell["cell_type"].as_str() {
            Some("code") if !source.trim().is_empty() => {
                document.push_str(&format!("```\n{source}\n```\n\n"))
            }
            Some("markdown" | "raw") => document.push_str(&format!("{source}\n\n")),
            _ => {}
        }
    }
    Ok(markdown::read(&document, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_notebooks_and_pages() {
        let notebook = r##"{"cells": [{"cell_type": "markdown", "source": ["# Bees\n", "They hum."]}, {"cell_type": "code",
            "source": "print(1)", "outputs": [{"text": "1"}]}], "nbformat": 4}"##;
        let found = read_notebook("x.ipynb", notebook, &ReadOptions::default()).expect("a notebook");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].subject.as_deref(), Some("Bees"));
        assert!(found[0].text().contains("They hum.") && found[0].text().contains("print(1)"));
        assert!(read_notebook("x.ipynb", "{}", &ReadOptions::default()).is_err());
        let page = "<html><head><title>Bees &amp; drums</title><style>p {}</style></head><body><p>They hum.</p></body></html>";
        let found = read_html(page, &ReadOptions::default());
        assert_eq!(
            (found[0].subject.as_deref(), found[0].text().as_str()),
            (Some("Bees & drums"), "They hum.")
        );
    }
}
