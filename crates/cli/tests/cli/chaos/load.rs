//! Jobs that are submitted over HTTP without an end, while servers come and go, and the check of their outcomes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gristmill_model::{BatchId, JobState};
use gristmill_store::{JobFilter, Page, Store};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::processes::PATIENCE;

/// The number of jobs in one batch.
pub const BATCH: u64 = 200;

/// The number of callers. Each submits a batch and waits for its end, so that there is always some work, but a limited
/// amount.
pub const CALLERS: usize = 40;

/// The number of callers of flows. Each flow has several jobs, and all batches advance together.
pub const FLOW_CALLERS: usize = 4;

/// Payloads that are multiples of this number fail, on both of their attempts.
pub const FAILS: u64 = 97;

/// The attempts of a job that fails.
pub const ATTEMPTS: [u32; 2] = [1, 2];

/// Notes each payload before it answers, in one write, so that no kill can tear a line. Half a millisecond of work per
/// job keeps workers from claiming all jobs at once.
pub const SCRIPT: &str = "import os, time\n\
    ran = os.open(os.path.dirname(os.path.abspath(__file__)) + '/ran.txt', os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n\
    def main(payload):\n\
    \x20   os.write(ran, b'%d\\n' % payload)\n\
    \x20   if payload % 97 == 0:\n\
    \x20       raise ValueError('no')\n\
    \x20   time.sleep(0.0005)\n\
    \x20   return payload * 2\n";

/// The same work as flows. Each takes two steps at once, one of which may fail; then a race that the step wins; then a map beside a
/// timeout.
pub const FLOW: &str = "import asyncio, os, time\n\
    import gristmill\n\
    ran = os.open(os.path.dirname(os.path.abspath(__file__)) + '/ran.txt', os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n\
    def noted(payload):\n\
    \x20   os.write(ran, b'%d\\n' % payload)\n\
    \x20   if payload % 97 == 0:\n\
    \x20       raise ValueError('no')\n\
    \x20   return payload\n\
    def half(payload):\n\
    \x20   time.sleep(0.0005)\n\
    \x20   return payload / 2\n\
    @gristmill.flow\n\
    async def double(flow, payload):\n\
    \x20   one, two = await asyncio.gather(flow.step(noted, payload), flow.step(half, payload))\n\
    \x20   first = await flow.first(flow.step(half, 2 * payload, key='raced'), flow.event('never'), flow.sleep('1d'))\n\
    \x20   async with asyncio.timeout(86400):\n\
    \x20       halves = await flow.map(half, [payload] * 3)\n\
    \x20   assert first.value == payload and halves == [two] * 3, (first, halves)\n\
    \x20   return round(one + halves[0] + two)\n";

/// The position of a recording. Each answer is noted with its position.
pub type Position = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The submitted batches and jobs. Payloads count up from 1.
#[derive(Clone, Default)]
pub struct Submitted {
    /// Acknowledged batches, by id.
    acknowledged: BTreeMap<i64, Acknowledged>,
    /// The first payloads of batches that may or may not have arrived.
    unsure: BTreeSet<u64>,
    /// The data that was read of ended batches.
    seen: HashMap<i64, Seen>,
}

#[derive(Clone, Copy)]
struct Acknowledged {
    first: u64,
    position: u64,
}

#[derive(Clone)]
struct Seen {
    results: String,
    position: u64,
}

impl Submitted {
    fn add(&mut self, other: Submitted) {
        self.acknowledged.extend(other.acknowledged);
        self.unsure.extend(other.unsure);
        self.seen.extend(other.seen);
    }

    /// The knowledge at a position. Batches that were acknowledged later may or may not have arrived.
    pub fn until(&self, position: u64) -> Submitted {
        let mut known = self.clone();
        known.acknowledged.retain(|_, batch| batch.position <= position);
        known.seen.retain(|_, seen| seen.position <= position);
        let later = self
            .acknowledged
            .values()
            .filter(|batch| batch.position > position);
        known.unsure.extend(later.map(|batch| batch.first));
        known
    }
}

/// Submits until it is stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// Whether nothing answers the callers.
    outage: watch::Sender<bool>,
    ended: watch::Receiver<u64>,
    callers: Vec<JoinHandle<Submitted>>,
}

impl Load {
    /// Starts the load of some callers, with each batch in one of this many groups. With 0, batches have no group.
    pub fn begin_in_groups(urls: Vec<String>, groups: u64, callers: usize) -> Load {
        Load::begin_with(urls, Arc::new(|| 0), groups, callers)
    }

    /// Starts the load, and notes the recording's position with each answer.
    pub fn begin_recorded(urls: Vec<String>, position: Position) -> Load {
        Load::begin_with(urls, position, 0, CALLERS)
    }

    fn begin_with(urls: Vec<String>, position: Position, groups: u64, callers: usize) -> Load {
        let (stop, first) = (Arc::<AtomicBool>::default(), Arc::new(AtomicU64::new(1)));
        let (ended, outage) = (watch::Sender::new(0), watch::Sender::new(false));
        let client = Client::builder()
            .timeout(Duration::from_secs(40))
            .build()
            .expect("a client can be made");
        let callers = (0..callers).map(|number| {
            let caller = Caller {
                client: client.clone(),
                urls: urls.clone(),
                url: number,
                stop: stop.clone(),
                outage: outage.subscribe(),
                ended: ended.clone(),
                first: first.clone(),
                position: position.clone(),
                groups,
            };
            tokio::spawn(caller.submit_until_stopped())
        });
        Load {
            callers: callers.collect(),
            stop,
            outage,
            ended: ended.subscribe(),
        }
    }

    /// Tells callers whether there is an outage. A caller that fails during an outage waits for its end.
    pub fn set_outage(&self, is_outage: bool) {
        self.outage.send_replace(is_outage);
    }

    /// The number of ended batches.
    pub fn ended(&self) -> u64 {
        *self.ended.borrow()
    }

    /// Waits until this many batches have ended. Returns whether they did in time.
    #[must_use]
    pub async fn until_ended(&mut self, count: u64) -> bool {
        let waited = tokio::time::timeout(PATIENCE, self.ended.wait_for(|ended| *ended >= count)).await;
        waited.is_ok_and(|ended| ended.is_ok())
    }

    /// Stops, and waits until all acknowledged batches have ended.
    pub async fn end(self) -> Submitted {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Submitted::default();
        for caller in self.callers {
            all.add(caller.await.expect("no caller panics"));
        }
        all
    }
}

struct Caller {
    client: Client,
    urls: Vec<String>,
    url: usize,
    stop: Arc<AtomicBool>,
    outage: watch::Receiver<bool>,
    ended: watch::Sender<u64>,
    first: Arc<AtomicU64>,
    position: Position,
    groups: u64,
}

impl Caller {
    async fn submit_until_stopped(mut self) -> Submitted {
        let mut submitted = Submitted::default();
        while !self.stop.load(Ordering::Relaxed) {
            let first = self.first.fetch_add(BATCH, Ordering::Relaxed);
            let payloads: Vec<u64> = (first..first + BATCH).collect();
            let group = (self.groups > 0).then(|| format!("tenant {}", first / BATCH % self.groups));
            let retry = json!({"attempts_max": ATTEMPTS.len(), "delay_ms": 0});
            let body = json!({"kind": "double", "payloads": payloads, "retry": retry, "group": group});
            let url = self.next_url().to_owned();
            match submit(&self.client, &url, &body).await {
                Ok(batch) => {
                    let position = (self.position)();
                    submitted
                        .acknowledged
                        .insert(batch, Acknowledged { first, position });
                    let results = self.results(batch).await;
                    let position = (self.position)();
                    submitted.seen.insert(batch, Seen { results, position });
                    self.ended.send_modify(|ended| *ended += 1);
                }
                Err(_) => {
                    submitted.unsure.insert(first);
                    self.outage_ends().await;
                }
            }
        }
        submitted
    }

    /// The results of an ended batch. Asks one server after the other.
    async fn results(&mut self, batch: i64) -> String {
        loop {
            let url = format!("{}/api/v1/results?batches={batch}&wait_ms=20000", self.next_url());
            match fetch(&self.client, &url).await {
                Ok(text) if text.lines().count() as u64 == BATCH => return text,
                Ok(_) => {}
                Err(_) => self.outage_ends().await,
            }
        }
    }

    async fn outage_ends(&mut self) {
        // A test ends the outage before it ends the load.
        let _ = self.outage.wait_for(|is_outage| !is_outage).await;
    }

    fn next_url(&mut self) -> &str {
        self.url += 1;
        &self.urls[self.url % self.urls.len()]
    }
}

/// The text at a URL.
pub async fn fetch(client: &Client, url: &str) -> reqwest::Result<String> {
    client.get(url).send().await?.error_for_status()?.text().await
}

async fn submit(client: &Client, url: &str, body: &Value) -> Result<i64, String> {
    let sent = client
        .post(format!("{url}/api/v1/jobs"))
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await
        .map_err(|error| error.to_string())?;
    let status = sent.status();
    let text = sent.text().await.map_err(|error| error.to_string())?;
    assert!(
        status.is_success() || status.is_server_error(),
        "a right request is refused with {status}: {text}"
    );
    let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    answer["batches"][0]["batch"].as_i64().ok_or(text)
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct Found {
    pub jobs: u64,
    pub dead: u64,
    pub unsure_arrived: usize,
}

impl Submitted {
    /// Checks that each job has exactly one correct outcome, that acknowledged batches exist, that all other batches
    /// are complete and have ended, and that earlier readings of ended batches still hold.
    ///
    /// `attempts` are those of a job that fails. Steps of flows have ended.
    pub async fn check(&self, store: &dyn Store, attempts: &[u32]) -> Found {
        let mut found = Found::default();
        let mut firsts = BTreeSet::new();
        for batch in batches(store).await {
            let first = self.check_batch(store, batch, attempts, &mut found).await;
            assert!(
                firsts.insert(first),
                "batch {batch} is there twice, from payload {first} on"
            );
            match self.acknowledged.get(&batch.0) {
                Some(acknowledged) => assert_eq!(first, acknowledged.first, "batch {batch}"),
                None => {
                    assert!(self.unsure.contains(&first), "nobody submitted batch {batch}");
                    found.unsure_arrived += 1;
                }
            }
        }
        for (batch, acknowledged) in &self.acknowledged {
            assert!(
                firsts.contains(&acknowledged.first),
                "batch {batch} was acknowledged and is gone"
            );
        }
        found
    }

    /// Checks, before any job runs again, that acknowledged batches exist and that ended batches have still ended.
    /// Returns the first loss.
    pub async fn loss(&self, store: &dyn Store) -> Option<String> {
        for batch in self.acknowledged.keys() {
            let Some(outcomes) = store.outcomes(BatchId(*batch)).await.unwrap() else {
                return Some(format!("batch {batch} was acknowledged and is gone"));
            };
            let ended: u64 = outcomes
                .reports
                .iter()
                .map(|report| u64::from(report.positions.len()))
                .sum();
            if self.seen.contains_key(batch) && ended != BATCH {
                return Some(format!(
                    "batch {batch} had ended, and has {ended} outcomes of {BATCH}"
                ));
            }
        }
        None
    }

    /// The highest acknowledged id.
    pub fn batch_max(&self) -> i64 {
        self.acknowledged.keys().next_back().copied().unwrap_or(0)
    }

    async fn check_batch(
        &self,
        store: &dyn Store,
        batch: BatchId,
        attempts: &[u32],
        found: &mut Found,
    ) -> u64 {
        let outcomes = store.outcomes(batch).await.unwrap().expect("it is listed");
        assert_eq!(u64::from(outcomes.count), BATCH);
        let mut ended: BTreeMap<u32, (JobState, Option<u64>)> = BTreeMap::new();
        for report in &outcomes.reports {
            let values: Vec<u64> = match &report.values {
                Some(packed) => packed
                    .items()
                    .map(|value| value.parse().expect("a number"))
                    .collect(),
                None => Vec::new(),
            };
            for (index, position) in report.positions.iter().enumerate() {
                let before = ended.insert(position, (report.state, values.get(index).copied()));
                assert_eq!(before, None, "job {batch}:{position} has two outcomes");
            }
        }
        assert_eq!(ended.len() as u64, BATCH, "every job of {batch} has an outcome");
        let (position, value) = ended
            .iter()
            .find_map(|(position, (_, value))| Some((*position, (*value)?)))
            .expect("most jobs complete");
        let first = value / 2 - u64::from(position);
        for (position, (state, value)) in &ended {
            let payload = first + u64::from(*position);
            if payload.is_multiple_of(FAILS) {
                assert_eq!(*state, JobState::Dead, "{batch}:{position}");
                let job = format!("{batch}:{position}").parse().unwrap();
                let failed: Vec<u32> = store
                    .job(job)
                    .await
                    .unwrap()
                    .unwrap()
                    .failures
                    .iter()
                    .map(|failure| failure.attempt)
                    .collect();
                assert_eq!(failed, attempts, "{batch}:{position}: a kill costs no attempt");
                found.dead += 1;
            } else {
                assert_eq!(
                    (*state, *value),
                    (JobState::Completed, Some(2 * payload)),
                    "{batch}:{position}"
                );
            }
        }
        if let Some(seen) = self.seen.get(&batch.0) {
            for line in seen.results.lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let job = line["job"].as_str().unwrap();
                let position: u32 = job.split_once(':').unwrap().1.parse().unwrap();
                let (state, value) = ended[&position];
                assert_eq!(
                    line["state"].as_str(),
                    Some(state.name()),
                    "{job} was seen to be over"
                );
                assert_eq!(line["value"].as_u64(), value, "{job} was seen to be over");
            }
        }
        found.jobs += BATCH;
        first
    }
}

/// All submitted batches of a store.
async fn batches(store: &dyn Store) -> BTreeSet<BatchId> {
    let mut batches = BTreeSet::new();
    let mut after = None;
    loop {
        let page = Page { after, limit: 10_000 };
        let filter = JobFilter {
            kind: Some("double".to_owned()),
            no_steps: true,
            ..JobFilter::default()
        };
        let rows = store.jobs(&filter, page).await.unwrap();
        let Some(last) = rows.last() else { return batches };
        after = Some(last.job);
        batches.extend(rows.iter().map(|row| row.job.batch));
    }
}

/// Waits until no batch of a store is open, including batches that may or may not have arrived.
pub async fn until_all_ended(store: &dyn Store, patience: Duration) {
    let begun = Instant::now();
    loop {
        let counts = store.counts(&JobFilter::default()).await.unwrap();
        if counts.total() == counts.ended() {
            return;
        }
        assert!(begun.elapsed() < patience, "some jobs do not end: {counts:?}");
        tokio::task::yield_now().await;
    }
}
