//! The store works over slow, choppy and silent links: it takes the server's bytes as they come, in whatever pieces,
//! and replaces a connection that gives no answer.

use std::sync::Arc;
use std::time::Duration;

use gristmill_model::{ManualClock, Report, ReportWrite, Timestamp};
use gristmill_private_postgres::{Proxy, Silence, shared};
use gristmill_store::{JobFilter, Store};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

/// A check that never ends fails after this.
const CHECK_MAX: Duration = Duration::from_secs(120);

/// The numbers of lanes: one, as many as fit into one piece, and more.
const LANES: [u32; 3] = [1, 50, 500];

fn name(url: &str) -> &str {
    let path = url.trim_start_matches("postgresql:///");
    path.split('?').next().unwrap()
}

fn name_of_proxied(url: &str) -> &str {
    let path = url.rsplit('/').next().unwrap();
    path.split('?').next().unwrap()
}

fn options() -> PostgresOptions {
    PostgresOptions::new(Arc::new(ManualClock::new(Timestamp(1_000_000))), 7)
}

/// Makes a database with one job in each of this many lanes, and a link to it.
async fn database(lanes: u32) -> (String, Proxy) {
    let url = shared().create_database().unwrap();
    let store = PostgresStore::open(&url, options()).await.unwrap();
    for lane in 0..lanes {
        let mut new = batch(1);
        new.options.group = Some(format!("tenant-{lane}"));
        submit(&store, new).await;
    }
    store.close().await.unwrap();
    let proxy = shared().proxy(7).unwrap();
    let url = proxy.url(name(&url));
    (url, proxy)
}

/// Claims and completes jobs until none are left. Returns how many it completed.
async fn drain(store: &dyn Store) -> u32 {
    let worker = worker(store).await;
    let (mut reports, mut jobs) = (Vec::new(), 0);
    loop {
        let exchanged = exchange(store, worker, reports, Some(want(40))).await;
        let Some(lease) = exchanged.lease else { return jobs };
        reports = lease.slices.iter().map(completed).collect();
        jobs += lease
            .slices
            .iter()
            .map(|slice| slice.positions.len())
            .sum::<u32>();
    }
}

async fn in_time<T>(check: impl Future<Output = T>) -> T {
    let checked = tokio::time::timeout(CHECK_MAX, check).await;
    checked.expect("the check waits for ever")
}

/// A claim asks for new lanes and for their slices at once. The first answer comes in many pieces, before anybody awaits it.
#[tokio::test]
async fn claims_take_answers_in_pieces() {
    for lanes in LANES {
        for sizes in [1..=12, 724..=1_448] {
            // A page of five hundred names in pieces of some bytes takes longer than the check may.
            if lanes == 500 && *sizes.end() < 100 {
                continue;
            }
            let (url, proxy) = database(lanes).await;
            proxy.split(sizes.clone(), Duration::from_micros(200));
            let drained = in_time(async {
                let store = PostgresStore::open(&url, options()).await.unwrap();
                drain(&store).await
            });
            assert_eq!(drained.await, lanes, "{lanes} lanes in pieces of {sizes:?} bytes");
        }
    }
}

/// Options of a store whose statements, and so its connections, have little time.
fn hasty() -> PostgresOptions {
    PostgresOptions {
        busy_timeout_ms: 100,
        statement_timeout_ms: 200,
        ..options()
    }
}

/// The parameters of the URL for a pooler. Behind one, no process of the server belongs to a connection.
const POOLERS: [&str; 2] = ["", "&pooler=transaction"];

#[tokio::test]
async fn a_silent_connection_is_given_up() {
    for pooler in POOLERS {
        let (url, proxy) = database(4).await;
        let store = PostgresStore::open(&format!("{url}{pooler}"), hasty())
            .await
            .unwrap();
        let worker = worker(&store).await;
        // The statements are known from now on, so that no lock is held while one is prepared.
        let lease = claim(&store, worker, 1).await.unwrap();
        exchange(&store, worker, vec![completed(&lease.slices[0])], None).await;
        store.counts(&JobFilter::default()).await.unwrap();
        // Behind a pooler, locks of a transaction that is cut off in the middle stay for some seconds: longer than
        // these waits.
        let silences: &[Silence] = match pooler {
            "" => &[Silence::Both, Silence::Answers],
            _ => &[Silence::Both, Silence::Both],
        };
        for &silence in silences {
            let before = proxy.connections();
            proxy.silence_connections(silence);
            let lease = in_time(claim(&store, worker, 1)).await.unwrap();
            let reports = lease.slices.iter().map(completed).collect();
            proxy.silence_connections(silence);
            // The store looks up whether its transaction was committed, and completes it once.
            let exchanged = in_time(exchange(&store, worker, reports, None)).await;
            assert_eq!(exchanged.receipts[0].accepted.len(), 1);
            proxy.silence_connections(silence);
            in_time(store.counts(&JobFilter::default())).await.unwrap();
            assert!(proxy.connections() > before);
        }
        let counts = store.counts(&JobFilter::default()).await.unwrap();
        assert_eq!((counts.completed, counts.total()), (3, 4));
    }
}

/// A silent connection is closed long before a statement would have to end.
#[tokio::test]
async fn silence_is_not_waited_for_like_a_statement() {
    // The server is asked after a sixteenth of this.
    const STATEMENT_MS: u32 = 32_000;
    for pooler in POOLERS {
        let (url, proxy) = database(1).await;
        let options = PostgresOptions {
            busy_timeout_ms: 100,
            statement_timeout_ms: STATEMENT_MS,
            ..options()
        };
        let store = PostgresStore::open(&format!("{url}{pooler}"), options)
            .await
            .unwrap();
        let worker = worker(&store).await;
        store.counts(&JobFilter::default()).await.unwrap();
        proxy.silence_connections(Silence::Both);
        let filter = JobFilter::default();
        let both = async { tokio::join!(store.counts(&filter), claim(&store, worker, 1)) };
        let both = tokio::time::timeout(Duration::from_millis(STATEMENT_MS.into()), both).await;
        let (counts, lease) = both.expect("silence is found sooner");
        assert_eq!((counts.unwrap().total(), lease.unwrap().slices.len()), (1, 1));
    }
}

/// The store waits for a working server, however long a connection gives no sign.
#[tokio::test]
async fn a_long_statement_is_waited_for() {
    for pooler in POOLERS {
        let (url, proxy) = database(1).await;
        let database = name_of_proxied(&url).to_owned();
        let options = PostgresOptions {
            busy_timeout_ms: 10,
            statement_timeout_ms: 16_000,
            ..options()
        };
        let store = PostgresStore::open(&format!("{url}{pooler}"), options)
            .await
            .unwrap();
        let worker = worker(&store).await;
        let lease = claim(&store, worker, 1).await.unwrap();
        // Twice as long as until the server is asked.
        let write = ReportWrite {
            position: 0,
            sql: "SELECT pg_sleep(2) WHERE $1::jsonb IS NOT NULL".into(),
            item: "1".to_owned(),
        };
        let report = Report {
            writes: vec![write],
            ..completed(&lease.slices[0])
        };
        let writers = || {
            shared()
                .psql(&database, "SELECT count(*) FROM gristmill.writer")
                .unwrap()
        };
        let before = writers();
        let connections = proxy.connections();
        let exchanged = in_time(exchange(&store, worker, vec![report], None)).await;
        assert_eq!(exchanged.receipts[0].accepted.len(), 1);
        // The server was asked, and no other connection was made for the operation.
        assert!(proxy.connections() > connections);
        assert_eq!(writers(), before);
    }
}

#[tokio::test]
async fn a_database_that_is_silent_for_a_while_is_reached_again() {
    let (url, proxy) = database(3).await;
    let store = PostgresStore::open(&url, hasty()).await.unwrap();
    let worker = worker(&store).await;
    proxy.silence();
    let before = proxy.connections();
    let claimed = claim(&store, worker, 3);
    let speaking = tokio::task::spawn_blocking(move || {
        // The store has tried another connection, which is silent as well.
        proxy.wait_for_connection(before);
        proxy.speak();
        proxy
    });
    let (claimed, _proxy) = in_time(async { tokio::join!(claimed, speaking) }).await;
    assert_eq!(claimed.unwrap().slices.len(), 3);
}
