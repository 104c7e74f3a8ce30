//! Questions to a knowledge base, in words and as queries of a model.

use std::cell::LazyCell;
use std::sync::Arc;

use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{IngestOptions, NewInput};
use gristmill_memory::recall::{Relations, recall_query};
use gristmill_memory::{Memory, RecallOptions, SearchQuery};
use tokio::runtime::Runtime;

const SHOW: &str = "ADA KING: Bees like drums in London.\nBOB RAY: Honey bees hum. Nobody knows why.\n\
    ADA KING: The queen met Cleo in May 2023.\n";

struct Knowledge {
    runtime: Runtime,
    memory: Memory,
    _folder: tempfile::TempDir,
}

thread_local! {
    static KNOWLEDGE: LazyCell<Knowledge> = LazyCell::new(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("an event loop");
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("kb.db").display().to_string();
        let memory = runtime.block_on(async {
            let memory = Memory::open(&place).await.expect("opens");
            let inputs = [NewInput::from_bytes("show.txt", SHOW.into())];
            let ingested = memory.ingest(inputs, Arc::new(LocalExtractor), 1, IngestOptions::default(), |_| {});
            ingested.await.expect("ingests");
            memory
        });
        Knowledge { runtime, memory, _folder: folder }
    });
}

pub fn ask(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let query: Option<SearchQuery> = serde_json::from_str(text).ok();
    KNOWLEDGE.with(|knowledge| {
        let store = &**knowledge.memory.knowledge();
        let options = RecallOptions::default();
        let recalled = recall_query(store, text, query, &Relations::Stored, &options);
        // A refusal is an answer.
        let _ = knowledge.runtime.block_on(recalled);
    });
}
