//! Malformed sources, and sources that have grown.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{
    Followed, IngestError, IngestEvent, IngestOptions, Ingested, Input, IntoInput, NewInput, OnFailure,
};
use gristmill_memory::source::{Content, Format};
use gristmill_memory::store::{Change, SourceFailure};
use gristmill_memory::{Memory, MemoryError, MessageOrdinal};

/// A file that is looked for when its turn comes.
struct File(PathBuf);

impl IntoInput for File {
    fn name(&self) -> Option<String> {
        Some(self.0.display().to_string())
    }

    fn file(&self) -> Option<Content> {
        Some(Content::File(self.0.clone()))
    }

    fn into_input(self) -> Result<Input, MemoryError> {
        NewInput::from_file(self.0).map(Input::from)
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
    let progress = ingested.progress;
    assert_eq!(
        (ingested.sources_failed, progress.messages, progress.unread),
        (2, 3, 1)
    );
    let names = |failures: &[SourceFailure]| -> Vec<PathBuf> {
        failures
            .iter()
            .map(|failure| PathBuf::from(&failure.source))
            .collect()
    };
    let failed = failures(&memory).await;
    assert_eq!(names(&failed), [path("c.md"), path("gone.md")]);
    assert!(failed[0].error.contains("binary"), "{}", failed[0].error);
    let unread = memory.knowledge().unread(None).await.expect("unread");
    assert_eq!((unread.len(), unread[0].place.as_str()), (1, "line 2"));
    assert_eq!(PathBuf::from(&unread[0].source), path("b.jsonl"));
    let told = events
        .iter()
        .filter(|event| matches!(event, IngestEvent::Failed { .. }));
    assert_eq!(told.count(), 2);
    let told = events.iter().find_map(|event| match event {
        IngestEvent::Unread { messages, errors, .. } => Some((*messages, errors.clone())),
        _ => None,
    });
    assert_eq!(told, Some((1, vec![unread[0].error.clone()])));

    // Nothing has changed, so a retry finds the same.
    let retry = IngestOptions {
        retry_failed: true,
        ..IngestOptions::default()
    };
    let (ended, _) = ingest(&memory, &files, retry).await;
    let ingested = ended.expect("ingests");
    let progress = ingested.progress;
    assert_eq!(
        (ingested.sources_skipped, progress.messages, progress.unread),
        (3, 0, 1)
    );

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
        (2, 0, 2)
    );
    assert_eq!(memory.knowledge().unread(None).await.expect("unread"), []);
    assert_eq!(names(&failures(&memory).await), [path("c.md"), path("gone.md")]);

    let stop = IngestOptions {
        on_failure: OnFailure::Stop,
        ..IngestOptions::default()
    };
    let error = ingest(&memory, &files, stop).await.0.expect_err("the bad source");
    assert!(error.to_string().contains("c.md: it is binary"), "{error}");
}

#[tokio::test]
async fn only_the_new_messages_of_a_grown_source_are_ingested() {
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

    // A change in the middle replaces the whole source.
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

fn followed(lines: &[&str]) -> Followed {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    Followed {
        name: "chat".to_owned(),
        reader: Box::new(Cursor::new(text)),
    }
}

/// Follows lines to their end. Returns the texts that the source has then.
async fn follow(
    memory: &Memory,
    lines: &[&str],
    options: IngestOptions,
) -> (Result<Ingested, IngestError>, Vec<String>) {
    let inputs = [Lines(followed(lines))];
    let ended = memory
        .ingest(inputs, Arc::new(LocalExtractor), 4, options, |_| {})
        .await;
    let stored = memory.knowledge().source_messages("chat", 0, 100).await;
    let texts = stored.expect("messages").into_iter();
    (
        ended,
        texts.map(|stored| stored.message.text_chunks.concat()).collect(),
    )
}

struct Lines(Followed);

impl IntoInput for Lines {
    fn name(&self) -> Option<String> {
        Some(self.0.name.clone())
    }

    fn into_input(self) -> Result<Input, MemoryError> {
        Ok(Input::Followed(self.0))
    }
}

#[tokio::test]
async fn a_followed_source_only_grows() {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = memory(folder.path()).await;
    let [a, b, c] = ["a", "b", "c"].map(|text| format!("{{\"text\": \"{text}\"}}"));
    let (a, b, c) = (a.as_str(), b.as_str(), c.as_str());
    let options = IngestOptions::default;
    let (ended, texts) = follow(&memory, &[a, b], options()).await;
    assert_eq!(ended.expect("ingests").progress.chunks_total, 2);
    assert_eq!(texts, ["a", "b"]);
    let (_, texts) = follow(&memory, &[a, b], options()).await;
    assert_eq!(texts, ["a", "b"], "what it has is passed over");
    let (_, texts) = follow(&memory, &[a, b, c], options()).await;
    assert_eq!(texts, ["a", "b", "c"]);
    let (_, texts) = follow(&memory, &[a, c], options()).await;
    assert_eq!(texts, ["a", "b", "c", "c"], "what follows on a difference is new");

    // A malformed line is recorded once, and the lines around it are messages, also when they come again.
    let (ended, texts) = follow(&memory, &[b, "no JSON", c], options()).await;
    let ingested = ended.expect("goes on");
    assert_eq!((ingested.sources_failed, ingested.progress.unread), (0, 1));
    assert_eq!(texts, ["a", "b", "c", "c", "b", "c"]);
    let (_, texts) = follow(&memory, &[a, b, c, c, b, c], options()).await;
    assert_eq!(texts.len(), 6, "other line numbers make no other messages");
    let unread = memory.knowledge().unread(Some("chat")).await.expect("unread");
    assert_eq!(unread.len(), 1);
    assert!(unread[0].error.contains("chat, line 2"), "{unread:?}");
    let stop = IngestOptions {
        on_failure: OnFailure::Stop,
        ..options()
    };
    let (ended, _) = follow(&memory, &["no JSON"], stop).await;
    assert!(ended.expect_err("ends").to_string().contains("chat, line 1"));

    // The same lines as a whole are no replacement, unless they are told to be; lines to come cannot be one.
    let replace = IngestOptions {
        replace: true,
        ..options()
    };
    let (ended, texts) = follow(&memory, &[a], replace).await;
    assert_eq!((ended.expect("goes on").sources_failed, texts.len()), (1, 6));
    let whole = NewInput::from_bytes("chat", format!("{a}\n{a}\n").into_bytes());
    let whole = NewInput {
        format: Format::JsonLines,
        ..whole
    };
    let ended = memory.ingest([whole], Arc::new(LocalExtractor), 4, options(), |_| {});
    assert_eq!(ended.await.expect("ingests").progress.messages, 1);
}

/// Sets the time of a file's last change, long ago.
fn set_changed(path: &Path, seconds: u64) {
    let file = std::fs::File::options().write(true).open(path).expect("opens");
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    file.set_modified(at).expect("sets the time");
}

#[tokio::test]
async fn a_file_with_the_same_stamp_is_not_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bees.md");
    std::fs::write(&path, "Bees hum.").expect("writes");
    set_changed(&path, 1_000_000);
    let memory = memory(folder.path()).await;
    let files = [path.clone()];
    ingest(&memory, &files, IngestOptions::default())
        .await
        .0
        .expect("ingests");
    // The same size, time and number: nothing else tells that the bytes are others.
    let write = |text: &str, seconds: u64| {
        std::fs::write(&path, text).expect("writes");
        set_changed(&path, seconds);
    };
    write("Bees sum.", 1_000_000);
    let (ended, events) = ingest(&memory, &files, IngestOptions::default()).await;
    assert_eq!(ended.expect("ingests").sources_skipped, 1);
    assert!(matches!(&events[..], [IngestEvent::Skipped { .. }]), "{events:?}");
    // Another time: it is read, and the new stamp is kept even if the bytes are the same.
    write("Bees hum.", 2_000_000);
    let (ended, _) = ingest(&memory, &files, IngestOptions::default()).await;
    assert_eq!(ended.expect("ingests").sources_skipped, 1);
    write("Bees drum", 2_000_000);
    let (ended, _) = ingest(&memory, &files, IngestOptions::default()).await;
    assert_eq!(ended.expect("ingests").sources_skipped, 1);
    write("Bees drum", 3_000_000);
    let (ended, _) = ingest(&memory, &files, IngestOptions::default()).await;
    assert_eq!(ended.expect("ingests").sources_replaced, 1);
    let replace = IngestOptions {
        replace: true,
        ..IngestOptions::default()
    };
    let (ended, _) = ingest(&memory, &files, replace).await;
    assert_eq!(ended.expect("ingests").sources_replaced, 1, "as it is told");
}

#[tokio::test]
async fn a_moved_file_keeps_its_knowledge() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for (name, text) in [("a.md", "Bees hum."), ("copy.md", "Bees hum.")] {
        std::fs::write(path(name), text).expect("writes");
    }
    let memory = memory(folder.path()).await;
    ingest(&memory, &[path("a.md")], IngestOptions::default())
        .await
        .0
        .expect("ingests");
    // A copy is another source while the first file is there.
    let (ended, events) = ingest(&memory, &[path("copy.md")], IngestOptions::default()).await;
    assert_eq!(ended.expect("ingests").progress.messages, 1);
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, IngestEvent::Moved { .. }))
    );
    let knowledge = memory.knowledge();
    let ordinal = |name: String| async move {
        let found = knowledge.source_messages(&name, 0, 1).await.expect("reads");
        found.first().map(|message| message.ordinal)
    };
    let name = |name: &str| path(name).display().to_string();
    let before = ordinal(name("a.md")).await;
    std::fs::create_dir(path("notes")).expect("a folder");
    std::fs::rename(path("a.md"), path("notes/b.md")).expect("moves");
    let (ended, events) = ingest(&memory, &[path("notes/b.md")], IngestOptions::default()).await;
    let ended = ended.expect("ingests");
    assert_eq!((ended.progress.messages, ended.sources_skipped), (0, 1));
    let moved = IngestEvent::Moved {
        from: name("a.md"),
        source: name("notes/b.md"),
    };
    assert_eq!(events.first(), Some(&moved));
    assert_eq!(ordinal(name("notes/b.md")).await, before);
    assert_eq!(ordinal(name("a.md")).await, None);
}

#[test]
fn a_mailbox_without_from_lines_needs_no_extension() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bare");
    let mail = |number: u32| {
        format!(
            "Return-Path: <ada@bees.example>\nFrom: ada@bees.example\nDate: Mon, 1 May 2023 09:30:0{number} +0000\n\
             Message-ID: <{number}@bees.example>\nSubject: Bees\n\nHive {number} hums.\n\n"
        )
    };
    for count in 1..4 {
        let mails: String = (0..count).map(mail).collect();
        std::fs::write(&path, &mails).expect("writes");
        let input = NewInput::from_file(&path).expect("reads");
        assert_eq!(input.format, Format::Mbox);
        let options = gristmill_memory::source::ReadOptions::default();
        let items = gristmill_memory::source::read("bare", input.format, mails.as_bytes(), &options);
        assert_eq!(items.expect("reads").len(), count as usize);
    }
}
