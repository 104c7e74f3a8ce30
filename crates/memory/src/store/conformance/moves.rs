//! Names of sources, and what the columns tell of them.

use gristmill_model::Timestamp;

use super::{append, begin, delete, message};
use crate::message::{Message, thread_number};
use crate::source::SourceKind;
use crate::store::{Change, KnowledgeStore, NewMessage, NewSource, Unread};

fn moved(source: &str, name: &str) -> Change {
    Change::Move {
        source: source.to_owned(),
        name: name.to_owned(),
    }
}

pub(super) async fn sources_get_other_names(store: &dyn KnowledgeStore) {
    let unread = Change::Unread {
        source: "old".to_owned(),
        first: 0,
        unread: vec![Unread {
            place: "line 2".to_owned(),
            error: "old, line 2: no JSON".to_owned(),
        }],
        at: Timestamp(7),
    };
    let failed = |source: &str, place: &str| Change::SourceFailure {
        source: source.to_owned(),
        error: Some("it is gone".to_owned()),
        place: Some(place.to_owned()),
        at: Timestamp(7),
    };
    let seen = Change::Seen {
        source: "old".to_owned(),
        stamp: Some("9 1.5 7 /notes/new".to_owned()),
    };
    let messages = vec![message("Bees hum.", Vec::new())];
    let changes = vec![
        begin("old"),
        append("old", 0, messages),
        begin("other"),
        unread,
        failed("new", "/notes/new"),
        seen,
    ];
    store.apply(changes).await.expect("adds");
    let failures = store.source_failures().await.expect("reads");
    assert_eq!(failures[0].place.as_deref(), Some("/notes/new"));
    let before = store.columns().await.expect("columns");
    assert_eq!(before.sources_named("old").len(), 1);

    store.apply(vec![moved("old", "new")]).await.expect("moves");
    assert_eq!(store.source("old").await.expect("reads"), None);
    let source = store.source("new").await.expect("reads").expect("it is there");
    assert_eq!(
        (source.messages, source.stamp.as_deref()),
        (1, Some("9 1.5 7 /notes/new"))
    );
    let messages = store.source_messages("new", 0, 10).await.expect("reads");
    assert_eq!(messages[0].source, "new");
    assert_eq!(store.unread(Some("new")).await.expect("reads").len(), 1);
    assert!(store.source_failures().await.expect("reads").is_empty());
    let columns = store.columns().await.expect("columns");
    assert!(columns.sources_named("old").is_empty());
    assert_eq!(columns.sources_named("new"), before.sources_named("old"));

    // Another file of a new name that could not be read is known by its path from then on, also if it has a record of that name.
    let others = ["free", "/others/free"].map(|name| failed(name, "/others/free"));
    store.apply(Vec::from(others)).await.expect("records");
    for (source, name) in [("new", "free"), ("free", "new")] {
        store.apply(vec![moved(source, name)]).await.expect("moves");
        let failures = store.source_failures().await.expect("reads");
        let names: Vec<&str> = failures.iter().map(|failure| failure.source.as_str()).collect();
        assert_eq!(names, ["/others/free"]);
    }

    // A deleted source leaves no failure.
    let other = failed("other", "/notes/other");
    store
        .apply(vec![other, delete("other"), begin("other")])
        .await
        .expect("deletes");
    assert_eq!(store.source_failures().await.expect("reads").len(), 1);

    for (source, name) in [("new", "other"), ("nothing", "free")] {
        store
            .apply(vec![moved(source, name)])
            .await
            .expect_err("it does not fit");
    }
    let names: Vec<String> = store
        .sources()
        .await
        .expect("reads")
        .into_iter()
        .map(|source| source.name)
        .collect();
    assert_eq!(names, ["new", "other"]);
}

pub(super) async fn columns_tell_sources_and_threads(store: &dyn KnowledgeStore) {
    let source = |name: &str, format: &str| {
        Change::Begin(NewSource {
            name: name.to_owned(),
            format: format.to_owned(),
            ..NewSource::default()
        })
    };
    let mail = |text: &str, thread: Option<&str>| NewMessage {
        message: Message {
            thread: thread.map(str::to_owned),
            ..Message::new(text)
        },
        ..NewMessage::default()
    };
    let mails = vec![mail("Bees?", Some("1@bees")), mail("Hum.", None)];
    let changes = vec![source("mails/a.mbox", "mbox"), append("mails/a.mbox", 0, mails)];
    store.apply(changes).await.expect("adds");
    // Columns are read again for what is new.
    store.columns().await.expect("columns");
    let notes = vec![mail("Hum.", None)];
    let changes = vec![source("mails.md", "markdown"), append("mails.md", 0, notes)];
    store.apply(changes).await.expect("adds");
    let columns = store.columns().await.expect("columns");
    let kinds: Vec<SourceKind> = (0..3).map(|message| columns.source_kind(message)).collect();
    assert_eq!(kinds, [SourceKind::Mail, SourceKind::Mail, SourceKind::Document]);
    assert_eq!(
        (columns.thread(0), columns.thread(1)),
        (thread_number("1@bees"), 0)
    );
    let folder = columns.sources_named("mails/");
    assert_eq!(folder, [columns.source(0).expect("a source")]);
    assert!(
        columns.sources_named("mai").is_empty(),
        "a folder is a whole name"
    );
}
