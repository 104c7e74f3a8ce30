//! Exports a knowledge base in the recorded index format, which [`import`](super::import) reads.
//!
//! Messages and refs get new, dense numbers. The export has more than the format: the sources, the failed chunks and
//! the zones of times, so that an import restores the same knowledge base. Other readers ignore them. Vectors are not
//! exported, because an embedder can make them anew.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::MemoryError;
use crate::knowledge::{RefOrdinal, SemanticRef};
use crate::property::terms;
use crate::store::{KnowledgeStore, Source, StoredMessage};

/// Messages in one page.
const MESSAGES_PAGE: u32 = 1_000;

/// Refs in one page.
const REFS_PAGE: u32 = 10_000;

/// The result of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Exported {
    /// Number of exported sources.
    pub sources: u64,
    /// Number of exported messages.
    pub messages: u64,
    /// Number of exported refs.
    pub refs: u64,
}

/// The reason why an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The knowledge base cannot be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The export cannot be written.
    #[error("the export cannot be written: {0}")]
    Write(#[from] io::Error),
}

impl From<serde_json::Error> for ExportError {
    fn from(error: serde_json::Error) -> Self {
        ExportError::Write(error.into())
    }
}

/// Writes a knowledge base as one JSON object.
///
/// # Errors
///
/// [`ExportError`]. The output may hold the beginning of an export.
pub async fn export_index(
    store: &dyn KnowledgeStore,
    name: &str,
    to: &mut (dyn Write + Send),
) -> Result<Exported, ExportError> {
    let mut export = Export {
        to,
        exported: Exported::default(),
        numbers: HashMap::new(),
        postings: BTreeMap::new(),
    };
    write!(export.to, "{{\"nameTag\":{},\"messages\":[", json!(name))?;
    let mut sources = Vec::new();
    for source in in_reading_order(store).await? {
        export.messages(store, &source).await?;
        sources.push(source);
    }
    write!(export.to, "],\"tags\":[],\"semanticRefs\":[")?;
    export.refs(store).await?;
    write!(export.to, "],\"semanticIndexData\":{{\"items\":[")?;
    export.postings()?;
    let aliases = aliases(store).await?;
    let failures = export.failures(store).await?;
    write!(
        export.to,
        "]}},\"relatedTermsIndexData\":{{\"aliasData\":{{\"relatedTerms\":{}}}}},\"sourceData\":{},\"failureData\":{},\
         \"unreadData\":{},\"fileHeader\":{{\"version\":\"0.1\"}}}}",
        Value::from(aliases),
        serde_json::to_string(&sources)?,
        Value::from(failures),
        serde_json::to_string(&store.unread(None).await?)?
    )?;
    writeln!(export.to)?;
    export.to.flush()?;
    Ok(export.exported)
}

/// Sorts the sources by the numbers of their first messages. Sources without messages come last.
async fn in_reading_order(store: &dyn KnowledgeStore) -> Result<Vec<Source>, MemoryError> {
    let mut sources = Vec::new();
    for source in store.sources().await? {
        let first = store.source_messages(&source.name, 0, 1).await?;
        let first = first.first().map_or(u32::MAX, |message| message.ordinal.0);
        sources.push((first, source));
    }
    sources.sort_by(|left, right| (left.0, &left.1.name).cmp(&(right.0, &right.1.name)));
    Ok(sources.into_iter().map(|(_, source)| source).collect())
}

struct Export<'a> {
    to: &'a mut (dyn Write + Send),
    exported: Exported,
    /// The number of each message in the export, by its number in the store.
    numbers: HashMap<u32, u64>,
    /// The refs of each term, as often as the term occurs in them.
    postings: BTreeMap<String, Vec<u32>>,
}

impl Export<'_> {
    fn separate(&mut self, is_first: bool) -> io::Result<()> {
        self.to.write_all(if is_first { b"\n" } else { b",\n" })
    }

    async fn messages(&mut self, store: &dyn KnowledgeStore, source: &Source) -> Result<(), ExportError> {
        let mut position = 0;
        self.exported.sources += 1;
        loop {
            let page = store
                .source_messages(&source.name, position, MESSAGES_PAGE)
                .await?;
            let Some(last) = page.last() else { return Ok(()) };
            assert!(last.position >= position, "pages of messages ascend");
            position = last.position + 1;
            for message in page {
                self.separate(self.exported.messages == 0)?;
                serde_json::to_writer(&mut *self.to, &recorded_message(&message))?;
                let before = self.numbers.insert(message.ordinal.0, self.exported.messages);
                assert!(before.is_none(), "each message is exported once");
                self.exported.messages += 1;
            }
        }
    }

    async fn refs(&mut self, store: &dyn KnowledgeStore) -> Result<(), ExportError> {
        let end = store.columns().await?.ref_end();
        for first in (0..end).step_by(REFS_PAGE as usize) {
            let page = (first..end.min(first + REFS_PAGE)).map(RefOrdinal).collect();
            for reference in store.refs(page).await? {
                // A message that was added during the export is left out, and so is its knowledge.
                if let Some(&message) = self.numbers.get(&reference.range.message.0) {
                    self.reference(&reference, message)?;
                }
            }
        }
        Ok(())
    }

    fn reference(&mut self, reference: &SemanticRef, message: u64) -> Result<(), ExportError> {
        let number = self.exported.refs;
        let mut recorded = json!({
            "semanticRefOrdinal": number,
            "range": { "start": { "messageOrdinal": message, "chunkOrdinal": reference.range.chunk } },
        });
        let knowledge = serde_json::to_value(&reference.knowledge)?;
        if let (Value::Object(recorded), Value::Object(knowledge)) = (&mut recorded, knowledge) {
            recorded.extend(knowledge);
        }
        self.separate(number == 0)?;
        serde_json::to_writer(&mut *self.to, &recorded)?;
        terms(&reference.knowledge, |_, term| {
            self.postings.entry(term).or_default().push(number as u32);
        });
        self.exported.refs += 1;
        Ok(())
    }

    fn postings(&mut self) -> Result<(), ExportError> {
        for (at, (term, refs)) in std::mem::take(&mut self.postings).into_iter().enumerate() {
            let refs: Vec<Value> = refs
                .into_iter()
                .map(|number| json!({ "semanticRefOrdinal": number, "score": 1 }))
                .collect();
            self.separate(at == 0)?;
            serde_json::to_writer(
                &mut *self.to,
                &json!({ "term": term, "semanticRefOrdinals": refs }),
            )?;
        }
        Ok(())
    }

    async fn failures(&self, store: &dyn KnowledgeStore) -> Result<Vec<Value>, MemoryError> {
        let failures = store.failures().await?.into_iter().filter_map(|failure| {
            let message = self.numbers.get(&failure.message.0)?;
            Some(json!({
                "messageOrdinal": message, "chunkOrdinal": failure.chunk, "error": failure.error, "at": failure.at,
            }))
        });
        Ok(failures.collect())
    }
}

fn recorded_message(stored: &StoredMessage) -> Value {
    let message = &stored.message;
    let mut metadata = serde_json::Map::new();
    if let Some(speaker) = &message.speaker {
        metadata.insert("speaker".to_owned(), json!(speaker));
    }
    metadata.insert("listeners".to_owned(), json!(message.recipients));
    if let Some(subject) = &message.subject {
        metadata.insert("subject".to_owned(), json!(subject));
    }
    let mut recorded =
        json!({ "textChunks": message.text_chunks, "metadata": metadata, "tags": message.tags });
    if let Some(moment) = message.moment {
        recorded["timestamp"] = json!(moment.at.to_string());
        if let Some(minutes) = moment.zone_minutes {
            recorded["zoneMinutes"] = json!(minutes);
        }
    }
    for (name, value) in [
        ("id", &message.id),
        ("thread", &message.thread),
        ("place", &message.place),
    ] {
        if let Some(value) = value {
            recorded[name] = json!(value);
        }
    }
    recorded
}

async fn aliases(store: &dyn KnowledgeStore) -> Result<Vec<Value>, MemoryError> {
    let mut by_term: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (term, related) in store.all_aliases().await? {
        by_term.entry(term).or_default().push(json!(related));
    }
    let aliases = by_term
        .into_iter()
        .map(|(term, related)| json!({ "termText": term, "relatedTerms": related }));
    Ok(aliases.collect())
}
