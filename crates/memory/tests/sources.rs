//! Sources that are bad, or that have grown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{
    IngestError, IngestEvent, IngestOptions, Ingested, IntoInput, NewInput, OnFailure,
};
use gristmill_memory::store::{Change, SourceFailure};
use gristmill_memory::{Memory, MemoryError, MessageOrdinal};

/// A file that is looked for when its turn comes.
struct File(PathBuf);

impl IntoInput for File {
    fn name(&self) -> Option<String> {
        Some(self.0.display().to_string())
    }

    fn into_input(self) -> Result<NewInput, MemoryError> {
        NewInput::from_file(self.0)
    }
}

async fn memory(folder: &Path) -> Memory {
    let place = folder.join("kb.db").display().to_string();
    Memory::open(&place).await.expect("opens")
}

async fn ingest(
    memory: &Memory,
    files: &[PathBuf],
    options: IngestOptions,
) -> (Result<Ingested, IngestError>, Vec<IngestEvent>) {
    let mut events = Vec::new();
    let inputs: Vec<File> = files.iter().cloned().map(File).collect();
    let ended = memory
        .ingest(inputs, Arc::new(LocalExtractor), 4, options, |event| {
            events.push(event.clone())
        })
        .await;
    (ended, events)
}

async fn failures(memory: &Memory) -> Vec<SourceFailure> {
    memory.knowledge().source_failures().await.expect("failures")
}

#[tokio::test]
async fn a_bad_source_does_not_stop_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a.md"), "Bees hum.").expect("writes");
    std::fs::write(path("b.jsonl"), "{\"text\": \"Bees\"}\nno JSON\n").expect("writes");
    std::fs::write(path("c.md"), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").expect("writes");
    std::fs::write(path("z.txt"), "Drums hum.").expect("writes");
    let files = ["a.md", "b.jsonl", "c.md", "gone.md", "z.txt"].map(path);
    let memory = memory(folder.path()).await;
    let (ended, events) = ingest(&memory, &files, IngestOptions::default()).await;
    let ingested = ended.expect("ingests the others");
    assert_eq!((ingested.sources_failed, ingested.progress.messages), (3, 2));
    let names = |failures: &[SourceFailure]| -> Vec<PathBuf> {
        failures
            .iter()
            .map(|failure| PathBuf::from(&failure.source))
            .collect()
    };
    let failed = failures(&memory).await;
    assert_eq!(names(&failed), [path("b.jsonl"), path("c.md"), path("gone.md")]);
    assert!(failed[0].error.contains("line 2"), "{}", failed[0].error);
    assert!(failed[1].error.contains("binary"), "{}", failed[1].error);
    let told = events
        .iter()
        .filter(|event| matches!(event, IngestEvent::Failed { .. }));
    assert_eq!(told.count(), 3);

    // A corrected source is ingested and leaves the list of failures; an uncorrected one stays on it.
    std::fs::write(path("b.jsonl"), "{\"text\": \"Bees\"}\n").expect("writes");
    let (ended, _) = ingest(&memory, &files, IngestOptions::default()).await;
    let ingested = ended.expect("ingests");
    assert_eq!(
        (
            ingested.sources_failed,
            ingested.progress.messages,
            ingested.sources_skipped
        ),
        (2, 1, 2)
    );
    assert_eq!(names(&failures(&memory).await), [path("c.md"), path("gone.md")]);

    let stop = IngestOptions {
        on_failure: OnFailure::Stop,
        ..IngestOptions::default()
    };
    let error = ingest(&memory, &files, stop).await.0.expect_err("the bad source");
    assert!(error.to_string().contains("c.md: it is binary"), "{error}");
}

#[tokio::test]
async fn of_a_source_that_grew_only_the_rest_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("chat.jsonl");
    let line = |text: &str| {
        format!("{{\"text\": \"{text}\", \"speaker\": \"Ada\", \"timestamp\": \"2023-05-01T07:00:00Z\"}}\n")
    };
    let first = line("Bees hum.") + &line("Drums hum.");
    std::fs::write(&path, &first).expect("writes");
    let memory = memory(folder.path()).await;
    let files = [path.clone()];
    ingest(&memory, &files, IngestOptions::default())
        .await
        .0
        .expect("ingests");

    std::fs::write(&path, first.clone() + &line("Queens hum.")).expect("writes");
    let (ended, _) = ingest(&memory, &files, IngestOptions::default()).await;
    let ingested = ended.expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.sources_replaced), (1, 0));
    let source = memory.knowledge().sources().await.expect("sources").remove(0);
    assert_eq!((source.messages, source.complete), (3, true));
    let messages = (0..3).map(MessageOrdinal).collect();
    let messages = memory.knowledge().messages(messages).await.expect("messages");
    let texts: Vec<String> = messages.iter().map(|message| message.message.text()).collect();
    assert_eq!(
        texts,
        ["Bees hum.", "Drums hum.", "Queens hum."],
        "with their old numbers"
    );
    let (ended, _) = ingest(&memory, &files, IngestOptions::default()).await;
    assert_eq!(ended.expect("ingests").sources_skipped, 1);

    // What changes in the middle replaces all of it.
    std::fs::write(&path, line("Wasps hum.") + &first).expect("writes");
    let (ended, _) = ingest(&memory, &files, IngestOptions::default()).await;
    let ingested = ended.expect("ingests");
    assert_eq!((ingested.progress.messages, ingested.sources_replaced), (3, 1));
    memory
        .knowledge()
        .apply(vec![Change::Delete {
            source: path.display().to_string(),
        }])
        .await
        .expect("deletes");
}
