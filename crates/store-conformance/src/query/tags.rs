//! Jobs are found, counted and changed by their tags and keys.

use gristmill_model::limits::LEASE_BYTES_TARGET;
use gristmill_model::{
    Clock, JobState, KeyedBatch, LeasedSlice, NewBatch, PackedArray, PackedBuilder, Positions, Tag,
    TagCondition, Unique,
};
use gristmill_store::{Change, JobFilter, Page, Selection, Store, StoreError};

use crate::Database;
use crate::fixture::*;

/// A tag of these jobs. An empty text means all jobs.
fn tag(name: &str, value: &str, of: &str) -> Tag {
    Tag {
        positions: (!of.is_empty()).then(|| positions(of)),
        ..Tag::all(name, value)
    }
}

fn tagged(count: u32, tags: Vec<Tag>) -> NewBatch {
    NewBatch { tags, ..batch(count) }
}

fn by_tags(conditions: &[&str]) -> JobFilter {
    JobFilter {
        tags: conditions.iter().map(|text| TagCondition::parse(text)).collect(),
        ..JobFilter::default()
    }
}

/// The matching jobs, as `batch:positions`.
async fn ids(store: &dyn Store, filter: &JobFilter) -> Vec<String> {
    let found = store.job_ids(filter, None, 1_000).await.unwrap();
    let ids: Vec<String> = found
        .iter()
        .map(|found| format!("{}:{}", found.batch, found.positions))
        .collect();
    let page = Page {
        after: None,
        limit: 1_000,
    };
    let listed: Vec<_> = store.jobs(filter, page).await.unwrap();
    let packed: Vec<_> = found
        .iter()
        .flat_map(|found| found.positions.iter().map(|position| job(found.batch, position)))
        .collect();
    assert_eq!(listed.iter().map(|row| row.job).collect::<Vec<_>>(), packed);
    let counts = store.counts(filter).await.unwrap();
    assert_eq!(counts.total(), packed.len() as u64);
    ids
}

/// All conditions on tags must hold: by name, by value and by prefix.
pub async fn jobs_are_found_by_tags(database: &dyn Database) {
    let store = database.open().await;
    let tags = vec![
        tag("customer", "7", ""),
        tag("page", "a", "0-4"),
        tag("page", "b", "5-8"),
    ];
    let one = submit(&*store, tagged(10, tags)).await;
    let two = submit(
        &*store,
        tagged(3, vec![tag("customer", "8", ""), tag("page", "a", "1")]),
    )
    .await;
    let plain = submit(&*store, batch(4)).await;
    for (conditions, expected) in [
        (vec!["customer=7"], vec![format!("{one}:0-9")]),
        (vec!["customer"], vec![format!("{one}:0-9"), format!("{two}:0-2")]),
        (vec!["page=a"], vec![format!("{one}:0-4"), format!("{two}:1")]),
        (vec!["customer=8", "page=a"], vec![format!("{two}:1")]),
        (vec!["customer=8", "page=b"], vec![]),
        (vec!["pa*"], vec![format!("{one}:0-8"), format!("{two}:1")]),
        (vec!["*=a"], vec![format!("{one}:0-4"), format!("{two}:1")]),
        (vec!["custom"], vec![]),
    ] {
        assert_eq!(
            ids(&*store, &by_tags(&conditions)).await,
            expected,
            "{conditions:?}"
        );
    }
    let of_batch = JobFilter {
        batch: Some(two),
        ..by_tags(&["page=a"])
    };
    assert_eq!(ids(&*store, &of_batch).await, [format!("{two}:1")]);
    let elsewhere = JobFilter {
        kind: Some("other".to_owned()),
        ..by_tags(&["page=a"])
    };
    assert_eq!(ids(&*store, &elsewhere).await, [""; 0]);
    let all = ids(&*store, &JobFilter::default()).await;
    assert_eq!(
        all,
        [format!("{one}:0-9"), format!("{two}:0-2"), format!("{plain}:0-3")]
    );
    let rest = store.job_ids(&JobFilter::default(), Some(one), 1).await.unwrap();
    assert_eq!((rest.len(), rest[0].batch), (1, two));

    let details = store.job(job(one, 5)).await.unwrap().unwrap();
    let pairs: Vec<_> = details
        .tags
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    assert_eq!(pairs, [("customer", "7"), ("page", "b")]);
    let values = store.tag_values("page", None, 10).await.unwrap();
    let values: Vec<_> = values.iter().map(|found| (&*found.value, found.jobs)).collect();
    assert_eq!(values, [("a", 6), ("b", 4)]);
    let values = store.tag_values("page", Some("a"), 10).await.unwrap();
    assert_eq!(values.len(), 1);
}

/// Jobs are cancelled and retried by tags, whatever their state, and no others of their batches.
pub async fn jobs_are_changed_by_tags(database: &dyn Database) {
    let store = database.open().await;
    let one = submit(&*store, tagged(10, vec![tag("page", "a", "0-5")])).await;
    let two = submit(&*store, tagged(2, vec![tag("page", "a", "")])).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 3).await.unwrap();
    let report = completed_at(&lease.slices[0], &positions("0"));
    exchange(&*store, worker, vec![report], None).await;
    let by_tag = Selection::Filter(by_tags(&["page=a"]));
    assert_eq!(change(&*store, by_tag.clone(), Change::Cancel).await.changed, 7);
    let waiting = JobFilter {
        states: vec![JobState::Waiting],
        ..JobFilter::default()
    };
    assert_eq!(ids(&*store, &waiting).await, [format!("{one}:6-9")]);
    let cancelled = JobFilter {
        states: vec![JobState::Cancelled],
        ..by_tags(&["page"])
    };
    assert_eq!(
        ids(&*store, &cancelled).await,
        [format!("{one}:1-5"), format!("{two}:0-1")]
    );
    assert_eq!(change(&*store, by_tag, Change::Retry).await.changed, 7);
    let counts = store.counts(&by_tags(&["page"])).await.unwrap();
    assert_eq!((counts.completed, counts.waiting, counts.total()), (1, 7, 8));
}

/// Jobs are found by their keys, open or ended. They keep their tags when other jobs of their batch are left out.
pub async fn jobs_are_found_by_keys(database: &dyn Database) {
    let store = database.open().await;
    let keyed = |keys: &str, tags| {
        let keys = PackedArray::parse(keys).unwrap();
        KeyedBatch::new(tagged(keys.count(), tags), keys, Unique::default())
    };
    let first = keyed(r#"["eu/1", null, "us/1"]"#, vec![tag("page", "a", "0-1")]);
    let one = store.submit_keyed(vec![first]).await.unwrap()[0].batch.unwrap();
    let second = keyed(
        r#"["us/1", "eu/2", "us/2"]"#,
        vec![tag("page", "b", "0"), tag("page", "c", "2"), tag("all", "", "")],
    );
    let two = store.submit_keyed(vec![second]).await.unwrap()[0].batch.unwrap();
    change(&*store, job(one, 0), Change::Cancel).await;
    let key = |key: &str| JobFilter {
        key: Some(key.to_owned()),
        ..JobFilter::default()
    };
    let prefix = |prefix: &str| JobFilter {
        key_prefix: Some(prefix.to_owned()),
        ..JobFilter::default()
    };
    assert_eq!(ids(&*store, &key("eu/1")).await, [format!("{one}:0")]);
    assert_eq!(ids(&*store, &key("eu/")).await, [""; 0]);
    assert_eq!(
        ids(&*store, &prefix("eu/")).await,
        [format!("{one}:0"), format!("{two}:0")]
    );
    assert_eq!(ids(&*store, &by_tags(&["page=b"])).await, [""; 0]);
    assert_eq!(ids(&*store, &by_tags(&["page=c"])).await, [format!("{two}:1")]);
    let both = JobFilter {
        key_prefix: Some("us".to_owned()),
        ..by_tags(&["all"])
    };
    assert_eq!(ids(&*store, &both).await, [format!("{two}:1")]);
    let changed = change(&*store, prefix("us/"), Change::Cancel).await;
    assert_eq!(changed.changed, 2);
}

/// A key is found in every JSON form: quotes and backslashes have escapes, and some clients escape further characters.
pub async fn jobs_are_found_by_keys_that_json_escapes(database: &dyn Database) {
    let store = database.open().await;
    let texts = ["say \"hi\"", "C:\\temp", "caf\u{e9}/1", "100%_of a", "\u{1F980}"];
    let packed = serde_json::to_string(&texts)
        .unwrap()
        .replace('\u{e9}', "\\u00E9");
    let keys = PackedArray::parse(&packed).unwrap();
    let tags = (0..)
        .zip(texts)
        .map(|(position, text)| tag(text, text, &format!("{position}")));
    let new = KeyedBatch::new(tagged(keys.count(), tags.collect()), keys, Unique::default());
    let batch = store.submit_keyed(vec![new]).await.unwrap()[0].batch.unwrap();
    for (position, text) in texts.iter().enumerate() {
        let by_key = JobFilter {
            key: Some((*text).to_owned()),
            ..JobFilter::default()
        };
        let by_prefix = JobFilter {
            key_prefix: Some(text.chars().take(6).collect()),
            ..JobFilter::default()
        };
        let condition = |prefix| TagCondition {
            name: (*text).to_owned(),
            prefix,
            value: Some((*text).to_owned()),
        };
        let with = |condition| JobFilter {
            tags: vec![condition],
            ..JobFilter::default()
        };
        for filter in [
            by_key.clone(),
            by_prefix,
            with(condition(false)),
            with(condition(true)),
        ] {
            assert_eq!(
                ids(&*store, &filter).await,
                [format!("{batch}:{position}")],
                "{filter:?}"
            );
        }
        assert_eq!(store.tag_values(text, None, 10).await.unwrap()[0].value, *text);
        assert_eq!(change(&*store, by_key, Change::Cancel).await.changed, 1, "{text}");
    }
}

/// Groups are found by their first characters, in one queue or in all.
pub async fn groups_are_listed(database: &dyn Database) {
    let store = database.open().await;
    for (queue, group) in [
        ("default", Some("acme")),
        ("default", Some("100%")),
        ("slow", Some("Acme")),
        ("slow", Some("acme")),
        ("slow", Some("acorn")),
        ("slow", None),
    ] {
        let mut new = batch(1);
        new.queue = queue.to_owned();
        new.options.group = group.map(str::to_owned);
        submit(&*store, new).await;
    }
    let groups = async |queue, prefix, limit| store.groups(queue, prefix, limit).await.unwrap();
    assert_eq!(groups(None, "", 10).await, ["100%", "Acme", "acme", "acorn"]);
    assert_eq!(groups(None, "ac", 10).await, ["acme", "acorn"]);
    assert_eq!(groups(Some("default"), "", 10).await, ["100%", "acme"]);
    assert_eq!(groups(Some("slow"), "ac", 1).await, ["acme"]);
    assert!(groups(Some("none"), "", 10).await.is_empty() && groups(None, "%", 10).await.is_empty());
}

/// Invalid tags are refused, and nothing is stored. Tags are deleted with their batch.
pub async fn tags_are_checked_and_deleted(database: &dyn Database) {
    let store = database.open().await;
    for wrong in [
        vec![tag("", "1", "")],
        vec![tag("a", "1", "2")],
        vec![tag("a", "1", ""), tag("a", "2", "1")],
        (0..33)
            .map(|number| tag(&format!("t{number}"), "1", ""))
            .collect(),
    ] {
        let refused = store.submit(vec![tagged(2, wrong)], None).await;
        assert!(matches!(refused, Err(StoreError::InvalidBatch(_))), "{refused:?}");
    }
    let many: Vec<&str> = vec!["a"; 33];
    assert!(matches!(
        store.counts(&by_tags(&many)).await,
        Err(StoreError::InvalidInput(_))
    ));
    let id = submit(&*store, tagged(2, vec![tag("a", "1", "")])).await;
    change(&*store, JobFilter::default(), Change::Cancel).await;
    database.clock().advance_ms(10);
    let options = gristmill_store::PruneOptions {
        finished_before: store.now(),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(store.prune(options).await.unwrap().jobs, 2);
    assert!(store.tag_values("a", None, 10).await.unwrap().is_empty(), "{id}");
}

/// Single jobs with the same tags are packed. Jobs with other tags are not mixed with them.
pub async fn single_jobs_keep_their_tags(database: &dyn Database) {
    let store = database.open().await;
    let submits = (0..40).map(|number: u32| {
        let of = if number % 4 < 2 { "" } else { "0" };
        store.submit_one(tagged(1, vec![tag("parity", &(number % 2).to_string(), of)]))
    });
    let jobs = futures::future::join_all(submits).await;
    for (number, job) in jobs.into_iter().enumerate() {
        let details = store.job(job.unwrap()).await.unwrap().unwrap();
        assert_eq!(details.tags["parity"], (number % 2).to_string());
    }
}

/// A claim includes the group of its jobs, and the keys and tags of each job: also for a part of a batch, on another
/// handle, and on a later attempt. A batch without keys and tags needs no query for them.
pub async fn leased_jobs_are_known(database: &dyn Database) {
    let store = database.open().await;
    let mut first = tagged(
        4,
        vec![
            tag("customer", "7", ""),
            tag("page", "a", "0,2"),
            tag("page", "b", "3"),
        ],
    );
    first.options.group = Some("acme".to_owned());
    first.options.complete_within_ms = Some(60_000);
    let keys = PackedArray::parse(r#"["one",null,"say \"three\"",null]"#).unwrap();
    let submitted = store
        .submit_keyed(vec![KeyedBatch::new(first, keys, Unique::default())])
        .await
        .unwrap();
    let id = submitted[0].jobs[0].batch;
    let plain = submit(&*store, batch(2)).await;
    let only_tagged = submit(&*store, tagged(2, vec![tag("page", "c", "1")])).await;

    let deadline = database.clock().now().plus_ms(60_000);
    let described = |slice: &LeasedSlice| -> Vec<String> {
        let described = slice.positions.iter().map(|position| {
            let labels = slice.labels_of(&Positions::from(position..position + 1));
            let key = labels.as_ref().and_then(|labels| labels.key_of(position));
            let tags = labels.map(|labels| labels.tags_of(position)).unwrap_or_default();
            format!("{position} {key:?} {tags:?}")
        });
        described.collect()
    };
    let jobs = [
        r#"0 Some("one") {"customer": "7", "page": "a"}"#,
        r#"1 None {"customer": "7"}"#,
        r#"2 Some("say \"three\"") {"customer": "7", "page": "a"}"#,
        r#"3 None {"customer": "7", "page": "b"}"#,
    ];
    let other = database.open().await;
    let (here, there) = (worker(&*store).await, worker(&*other).await);
    let head = only(claim(&*other, there, 1).await);
    let tail = only(claim(&*store, here, 3).await);
    for (slice, jobs) in [(&head, &jobs[..1]), (&tail, &jobs[1..])] {
        assert_eq!(
            (slice.batch, &*slice.queue, slice.group.as_deref()),
            (id, "default", Some("acme"))
        );
        assert_eq!(slice.deadline, Some(deadline));
        assert_eq!(described(slice), jobs);
    }
    let slice = only(claim(&*other, there, 2).await);
    assert_eq!(
        (slice.batch, &slice.labels, &slice.group, slice.deadline),
        (plain, &None, &None, None)
    );
    let rest = only(claim(&*other, there, 2).await);
    assert_eq!(rest.batch, only_tagged);
    assert_eq!(described(&rest), ["0 None {}", r#"1 None {"page": "c"}"#]);

    database.clock().advance_ms(1_000);
    let failed = failed_at(&tail, &positions("2"), &error());
    exchange(&*store, here, vec![failed], None).await;
    database.clock().advance_ms(30_000);
    let again = only(claim(&*other, there, 1).await);
    assert_eq!((again.attempt, described(&again)), (2, vec![jobs[2].to_owned()]));
    let moved_ms = again.deadline.unwrap().since_ms(deadline);
    // The first attempt sets the deadline for good. It counts from the start of the attempt.
    assert!((0..=1_000).contains(&moved_ms), "{moved_ms}");
}

/// A lease has as many jobs as its bytes allow, including their keys and tags. This also holds for jobs that come back,
/// and for batches that another process has read.
pub async fn labels_count_as_bytes_of_a_lease(database: &dyn Database) {
    const JOBS: u32 = 10_000;
    let store = database.open().await;
    let mut jobs = batch(JOBS);
    jobs.tags = (0..JOBS)
        .map(|position| Tag {
            positions: Some(Positions::from(position..position + 1)),
            ..Tag::all("customer", format!("{position:0>200}"))
        })
        .collect();
    let mut keys = PackedBuilder::new();
    for position in 0..JOBS {
        keys.push_value(&format!("{position:0>200}")).unwrap();
    }
    let keyed = KeyedBatch::new(jobs, keys.finish(), Unique::default());
    store.submit_keyed(vec![keyed]).await.unwrap();
    let first = worker(&*store).await;
    // Each job has about 490 bytes.
    let expected = 8_000..9_000;
    let all = Positions::all(JOBS);
    let lease = claim(&*store, first, JOBS).await.unwrap();
    let bytes: usize = lease.slices.iter().map(LeasedSlice::weight_bytes).sum();
    assert!(bytes < LEASE_BYTES_TARGET + (64 << 10), "{bytes}");
    assert!(expected.contains(&lease.jobs()), "{}", lease.jobs());
    exchange(&*store, first, vec![released_at(&lease.slices[0], &all)], None).await;
    let other = database.open().await;
    let lease = claim(&*other, first, JOBS).await.unwrap();
    assert!(expected.contains(&lease.jobs()), "{}", lease.jobs());
    let everything = || Selection::Filter(JobFilter::default());
    change(&*store, everything(), Change::Cancel).await;
    assert_eq!(
        change(&*store, everything(), Change::Retry).await.changed,
        u64::from(JOBS)
    );
    let lease = claim(&*store, first, JOBS).await.unwrap();
    assert!(expected.contains(&lease.jobs()), "{}", lease.jobs());
}
