//! Random sequences of operations, compared with a reference that keeps one row for each job in memory.

mod fates;
mod flows;
mod groups;
mod labels;
mod reference;
mod step;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use futures::FutureExt;
use gristmill_model::positions::by_batch;
use gristmill_model::{
    After, Backoff, BatchId, Clock, Control, Debounce, Effect, JobId, JobState, KeyedBatch, LeaseId,
    LeasedSlice, NewBatch, OnFailure, PackedArray, RetryPolicy, Scope, Unique, WorkerId,
};
use gristmill_store::family::ChildReader;
use gristmill_store::{
    BatchPositions, Change, ControlFilter, Exchanged, JobFilter, Page, PruneOptions, Selection, Store, Want,
    WorkSeen,
};
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::Database;
use crate::fixture::*;
use crate::machine::groups::{jobs_of_groups, sequence};
use crate::machine::reference::{Created, Reference};
use crate::machine::step::{Fate, Manual, Step, Submission};
use crate::machine::tally::Tally;

/// The number of threads that try sequences. One thread continues while another waits for its store.
const RUNNERS: u32 = 4;
const KINDS: [&str; 2] = ["left", "right"];
/// The number of next jobs that are compared after each step.
const NEXT_CHECKED_MAX: u32 = 12;
/// The reasons of pauses of single jobs.
const REASONS: [&str; 2] = ["deploy", "quota"];

/// Runs random sequences of operations on stores that `database` makes. Compares every answer, and the state of every
/// job after each step, with the reference. Tries this many `sequences`, or the number in the variable
/// `PROPTEST_CASES`, and prints the number. The sequences are the same in every run. The variable `PROPTEST_RNG_SEED`
/// chooses others.
///
/// # Panics
///
/// An answer differs. The message has the shortest sequence that was found.
pub fn agrees_with_the_reference<D: Database>(sequences: u32, database: impl Fn() -> D + Sync) {
    let told = Config::default();
    let sequences = match std::env::var("PROPTEST_CASES") {
        Ok(_) => told.cases,
        Err(_) => sequences,
    };
    let seed = match told.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => 0,
    };
    let tally = Tally {
        sequences,
        tried: AtomicU32::new(0),
        operations: AtomicUsize::new(0),
    };
    let (tally, database) = (&tally, &database);
    let results: Vec<_> = std::thread::scope(|scope| {
        let runners = (0..RUNNERS).map(|runner| {
            let config = Config {
                // Together the threads try all sequences.
                cases: (sequences + runner) / RUNNERS,
                rng_seed: RngSeed::Fixed(seed.wrapping_add(u64::from(runner))),
                failure_persistence: None,
                max_shrink_iters: 2_000,
                ..Config::default()
            };
            scope.spawn(move || run(config, tally, database))
        });
        let runners: Vec<_> = runners.collect();
        runners.into_iter().map(|runner| runner.join().unwrap()).collect()
    });
    let failed = results.iter().filter(|result| result.is_err()).count();
    println!(
        "tried {} sequences with {} operations, {failed} failed (seed {seed})",
        tally.tried.load(Ordering::Relaxed),
        tally.operations.load(Ordering::Relaxed),
    );
    if let Some(Err(error)) = results.into_iter().find(Result::is_err) {
        panic!("{error}");
    }
}

/// Tries the configured number of sequences. The error has the shortest failing one.
fn run<D: Database>(config: Config, tally: &Tally, database: &impl Fn() -> D) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    TestRunner::new(config)
        .run(&sequence(), |(groups, sequence)| {
            tally.add(sequence.len());
            runtime.block_on(async {
                let database = database();
                let mut machine = Machine::new(&database).await;
                for new in jobs_of_groups(groups, KINDS[0]) {
                    machine.submit(new).await;
                }
                for step in sequence {
                    machine.step(step).await;
                }
            });
            Ok(())
        })
        .map_err(|error| error.to_string())
}

/// A store and its reference.
struct Machine<'a> {
    database: &'a dyn Database,
    store: std::sync::Arc<dyn Store>,
    /// Another handle.
    other: std::sync::Arc<dyn Store>,
    reference: Reference,
    batches: Vec<BatchId>,
    workers: Vec<WorkerId>,
    /// All claimed slices, each with its worker.
    slices: Vec<(WorkerId, LeasedSlice)>,
    /// The number of payloads that occur only once.
    payloads: u32,
    /// For claimed flows with open children, the number of ended ones at the claim.
    seen: BTreeMap<(LeaseId, JobId), u32>,
    /// Reads the children of claimed flows, and keeps what never changes.
    children: ChildReader,
}

impl<'a> Machine<'a> {
    async fn new(database: &'a dyn Database) -> Self {
        let store = database.open().await;
        let workers = vec![worker(&*store).await];
        Machine {
            database,
            store,
            other: database.open().await,
            reference: Reference::new(workers[0]),
            batches: Vec::new(),
            workers,
            slices: Vec::new(),
            payloads: 0,
            seen: BTreeMap::new(),
            children: ChildReader::default(),
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Submit(submission) => self.submit_unkeyed(submission).await,
            Step::SubmitKeyed {
                kind,
                keys,
                on_duplicate,
                period_ms,
                after,
            } => {
                let unique = Unique {
                    on_duplicate,
                    period_ms,
                    ..Unique::default()
                };
                self.submit_keyed(kind, keys, unique, after).await;
            }
            Step::SubmitDebounced(kind, keys, debounce, priority) => {
                self.submit_debounced(kind, keys, debounce, priority).await;
            }
            Step::Send(jobs, name) => self.send(jobs, name).await,
            Step::Find(key) => self.find(labels::key(key)).await,
            Step::Pause(kind) => {
                let effect = Effect::Pause {
                    reason: "machine".to_owned(),
                    until: None,
                };
                self.put_control(kind, effect).await;
                self.reference.pause(KINDS[kind]);
            }
            Step::Resume(kind) => {
                let resumed = self.lift(kind, "pause").await;
                assert_eq!(resumed, self.reference.resume(KINDS[kind]));
            }
            Step::Limit(kind, jobs_max) => {
                match jobs_max {
                    Some(jobs_max) => self.put_control(kind, Effect::Concurrency { jobs_max }).await,
                    None => drop(self.lift(kind, "concurrency").await),
                }
                self.reference.limit(KINDS[kind], jobs_max);
            }
            Step::Register => {
                let id = worker(&*self.store).await;
                self.workers.push(id);
                self.reference.workers.insert(id);
            }
            Step::Exchange {
                worker,
                slice,
                fates,
                jobs_max,
                kind,
            } => self.exchange(worker, slice, &fates, jobs_max, kind).await,
            Step::SubmitAwaited {
                worker,
                kind,
                count,
                priority,
                jobs_max,
                wanted,
            } => {
                let mut new = batch_of(KINDS[kind], count);
                new.options.priority = priority;
                new.options.retry = policy(2);
                let worker = self.workers[worker % self.workers.len()];
                self.submit_awaited(new, worker, wish(jobs_max, wanted)).await;
            }
            Step::Heartbeat(worker) => self.heartbeat(worker).await,
            Step::Leave(worker) => self.leave(worker).await,
            Step::Die(worker) => self.die(worker).await,
            Step::Manual(manual) => self.change_by_hand(manual).await,
            Step::Expire => self.expire().await,
            Step::Advance(milliseconds) => self.database.clock().advance_ms(milliseconds),
            Step::Prune => self.prune().await,
            Step::BeginCleanups(chosen) => self.begin_cleanups(chosen).await,
            // No answer changes.
            Step::Compact(reports_max) => drop(self.store.compact(reports_max).await.unwrap()),
            Step::Reopen => {
                self.store.close().await.unwrap();
                self.store = self.database.open().await;
                no_damage(&*self.store).await;
            }
            Step::Swap => std::mem::swap(&mut self.store, &mut self.other),
        }
        self.compare().await;
    }

    async fn leave(&mut self, worker: usize) {
        let worker = self.workers[worker % self.workers.len()];
        self.store.leave(worker, Default::default()).await.unwrap();
        let now = self.database.clock().now();
        self.reference.leave(worker, now);
    }

    async fn submit_unkeyed(&mut self, submission: Submission) {
        let now = self.database.clock().now();
        let mut new = batch_of(KINDS[submission.kind], submission.count);
        new.options.priority = submission.priority;
        new.options.run_at = submission.delay_ms.map(|delay| now.plus_ms(delay));
        new.options.expires_at = submission.expires_ms.map(|delay| now.plus_ms(delay));
        new.options.complete_within_ms = submission.within_ms;
        new.options.retry = policy(submission.attempts_max);
        new.after = self.after(submission.after, submission.on_failure);
        // Cached jobs cannot have prerequisites.
        new.options.cached_ms = submission.cached_ms.filter(|_| new.after.is_empty());
        if submission.has_memos {
            let memos: Vec<u32> = (0..submission.count).map(|_| self.new_payload()).collect();
            new.memos = Some(PackedArray::parse(&serde_json::to_string(&memos).unwrap()).unwrap());
        }
        self.submit(new).await;
    }

    async fn heartbeat(&mut self, worker: usize) {
        let worker = self.workers[worker % self.workers.len()];
        let heartbeat = self.store.heartbeat(worker, Default::default()).await.unwrap();
        assert_eq!(heartbeat.known, self.reference.workers.contains(&worker));
        let revoked = heartbeat.revoked.iter().flat_map(|revoked| {
            let positions = revoked.positions.iter();
            positions.map(|position| (revoked.lease, job(revoked.batch, position)))
        });
        let mut revoked: Vec<_> = revoked.collect();
        revoked.sort_unstable();
        assert_eq!(revoked, self.reference.take_revoked(worker));
    }

    async fn expire(&mut self) {
        let now = self.database.clock().now();
        let expired = self.store.expire().await.unwrap();
        let mut created = self.created().await;
        assert_eq!(expired, self.reference.expire(&mut created, now));
        created.check_empty();
    }

    async fn die(&mut self, worker: usize) {
        let now = self.database.clock().now();
        let worker = self.workers[worker % self.workers.len()];
        let silent_before = gristmill_model::Timestamp(0);
        let rescued = self.store.rescue(silent_before, vec![worker]).await.unwrap();
        let (jobs, dead) = self.reference.rescue(worker, now);
        assert_eq!((rescued.jobs, rescued.dead), (jobs, dead));
    }

    async fn prune(&mut self) {
        let finished_before = self.database.clock().now().plus_ms(-20);
        let options = PruneOptions {
            finished_before,
            keep_batches: 1,
            dead_too: false,
            dry_run: false,
        };
        let pruned = self.store.prune(options).await.unwrap();
        let (batches, jobs) = self.reference.prune(finished_before);
        assert_eq!((pruned.batches, pruned.jobs), (batches, jobs));
    }

    async fn change_by_hand(&mut self, manual: Manual) {
        let now = self.database.clock().now();
        match manual {
            Manual::Cancel(jobs) => {
                let jobs = self.named(jobs);
                let changed = change(&*self.store, jobs.clone(), Change::Cancel).await;
                assert_eq!(changed.changed, self.reference.cancel(jobs, now));
            }
            Manual::CancelKind(kind) => {
                let filter = JobFilter {
                    kind: Some(KINDS[kind].to_owned()),
                    ..JobFilter::default()
                };
                let changed = change(&*self.store, filter, Change::Cancel).await;
                let jobs = self.reference.of_kind(KINDS[kind]);
                let jobs = self.reference.without_cleanups(jobs);
                assert_eq!(changed.changed, self.reference.cancel(jobs, now));
            }
            Manual::CancelKeyed(key) => self.cancel_keyed(labels::key(key)).await,
            Manual::Retry(jobs) => {
                let jobs = self.named(jobs);
                let changed = self.store.change(jobs.clone().into(), Change::Retry).await;
                if jobs.iter().any(|job| self.reference.refuses_retry(*job)) {
                    changed.expect_err("a step of a flow, or a flow that is cleaned up after");
                } else {
                    assert_eq!(changed.unwrap().changed, self.reference.retry(jobs, now));
                }
            }
            Manual::RetryAll => {
                let jobs: Vec<JobId> = self.reference.jobs.keys().copied().collect();
                let packed = by_batch(jobs.iter().copied())
                    .into_iter()
                    .map(BatchPositions::from);
                let all = Selection::Packed {
                    jobs: packed.collect(),
                    states: Change::Retry.states().to_vec(),
                };
                let changed = change(&*self.store, all, Change::Retry).await;
                assert_eq!(changed.changed, self.reference.retry(jobs, now));
            }
            Manual::Discard(jobs) => {
                let jobs = self.named(jobs);
                let discarded = change(&*self.store, jobs.clone(), Change::Discard).await;
                assert_eq!(discarded.changed, self.reference.discard(&jobs));
            }
            Manual::Prioritise(jobs, priority) => {
                let jobs = self.named(jobs);
                let named = Selection::Jobs(jobs.clone());
                let changed = change(&*self.store, named, Change::Prioritise(priority)).await;
                assert_eq!(changed.changed, self.reference.prioritise(&jobs, priority));
            }
            Manual::Pause(jobs, reason, for_ms) => {
                let jobs = self.named(jobs);
                let until = for_ms.map(|for_ms| now.plus_ms(for_ms));
                let named = Selection::Jobs(jobs.clone());
                let paused = change(&*self.store, named, pausing(REASONS[reason], until)).await;
                assert_eq!(
                    paused.changed,
                    self.reference.pause_jobs(&jobs, REASONS[reason], until)
                );
            }
            Manual::Resume(jobs, reason) => {
                let jobs = self.named(jobs);
                let reason = reason.map(|reason| REASONS[reason]);
                let named = Selection::Jobs(jobs.clone());
                let resumed = change(&*self.store, named, resuming(reason)).await;
                assert_eq!(resumed.changed, self.reference.resume_jobs(&jobs, reason, now));
            }
        }
    }

    async fn submit(&mut self, new: NewBatch) {
        if !self.reference.has_all(&new.after) {
            let refused = self.store.submit(vec![new], None).await;
            assert!(refused.is_err(), "a prerequisite does not exist");
            return;
        }
        let id = submit(&*self.store, new.clone()).await;
        assert!(self.batches.last() < Some(&id), "batch ids ascend");
        self.batches.push(id);
        self.reference.submit(id, &new, self.database.clock().now());
    }

    /// Submits while a worker waits. If the worker is handed jobs, they are those that it would have claimed.
    async fn submit_awaited(&mut self, new: NewBatch, worker: WorkerId, want: Want) {
        let store = self.store.clone();
        let seen = WorkSeen::default();
        let mut waiting = store.wait_for_claim(worker, want.clone(), &seen);
        while let Some(handed) = waiting.as_mut().now_or_never() {
            assert_eq!(handed, None, "there was no submit yet");
            waiting = store.wait_for_claim(worker, want.clone(), &seen);
        }
        self.submit(new).await;
        if let Some(Some(handed)) = waiting.now_or_never() {
            assert!(self.reference.workers.contains(&worker));
            assert!(handed.lease.is_some());
            self.check_claim(worker, &want, handed).await;
        }
    }

    /// The prerequisites that a step names.
    fn after(&self, named: Vec<(usize, Option<u32>)>, on_failure: OnFailure) -> Vec<After> {
        if self.batches.is_empty() {
            return Vec::new();
        }
        let after = named.into_iter().map(|(batch, position)| {
            let batch = self.batches[batch % self.batches.len()];
            let after = position.map_or(After::batch(batch), |position| After::job(job(batch, position)));
            after.on_failure(on_failure)
        });
        after.collect()
    }

    async fn submit_keyed(
        &mut self,
        kind: usize,
        keys: Vec<Option<u8>>,
        unique: Unique,
        after: Vec<(usize, Option<u32>)>,
    ) {
        let now = self.database.clock().now();
        // All prerequisites have one policy, so that it does not matter which of several simultaneous failures decides.
        let mut new = batch_of(KINDS[kind], keys.len() as u32);
        new.after = self.after(after, OnFailure::Cancel);
        new.options.retry = policy(2);
        let keys: Vec<Option<String>> = keys
            .iter()
            .map(|key| key.map(|key| labels::key(key).to_owned()))
            .collect();
        new.tags = labels::tags(&keys);
        let new = KeyedBatch::new(new, labels::packed(keys.iter().map(Option::as_deref)), unique);
        let plan = self.reference.plan(&new, &keys, now);
        let plan = plan.filter(|_| self.reference.has_all(&new.batch.after));
        let answer = self.store.submit_keyed(vec![new.clone()]).await;
        let Some(plan) = plan else {
            assert!(answer.is_err(), "a key or a prerequisite forbids the submit");
            return;
        };
        let answer = answer.unwrap().remove(0);
        assert_eq!(answer.count, plan.stored.len());
        assert_eq!(answer.batch.is_some(), !plan.stored.is_empty());
        let jobs: Vec<JobId> = plan
            .jobs
            .iter()
            .map(|target| match target {
                Ok(position) => job(answer.batch.unwrap(), *position),
                Err(owner) => *owner,
            })
            .collect();
        assert_eq!(answer.jobs, jobs);
        self.batches.extend(answer.batch);
        self.reference.submit_keyed(answer.batch, &new, &keys, &plan, now);
    }

    async fn submit_debounced(&mut self, kind: usize, keys: Vec<u8>, debounce: Debounce, priority: i16) {
        let payloads: Vec<u32> = keys.iter().map(|_| self.new_payload()).collect();
        let mut new = NewBatch::new(
            KINDS[kind],
            PackedArray::parse(&serde_json::to_string(&payloads).unwrap()).unwrap(),
        );
        new.options.retry = policy(2);
        new.options.priority = priority;
        let keys: Vec<String> = keys.iter().map(|key| labels::key(*key).to_owned()).collect();
        let packed = labels::packed(keys.iter().map(|key| Some(&**key)));
        let unique = Unique {
            debounce: Some(debounce),
            ..Unique::default()
        };
        let new = KeyedBatch::new(new, packed, unique);
        let answer = self.store.submit_keyed(vec![new.clone()]).await.unwrap();
        self.batches.extend(answer[0].batch);
        let now = self.database.clock().now();
        let expected = self
            .reference
            .submit_debounced(answer[0].batch, &new, &keys, debounce, now);
        assert_eq!(answer, [expected]);
    }

    async fn put_control(&self, kind: usize, effect: Effect) {
        let scope = of_kind(kind);
        self.store
            .put_controls(vec![Control { scope, effect }])
            .await
            .unwrap();
    }

    async fn lift(&self, kind: usize, effect: &'static str) -> u64 {
        let filter = ControlFilter {
            effects: vec![effect],
            scope: Some(of_kind(kind)),
            ..ControlFilter::default()
        };
        self.store.delete_controls(filter).await.unwrap()
    }

    fn named(&self, jobs: Vec<(usize, u32)>) -> Vec<JobId> {
        let of = |(batch, position): (usize, u32)| {
            let batch = self.batches.get(batch % self.batches.len().max(1));
            batch.map(|batch| job(*batch, position))
        };
        let named: BTreeSet<JobId> = jobs.into_iter().filter_map(of).collect();
        named.into_iter().collect()
    }

    async fn exchange(
        &mut self,
        worker: usize,
        slice: usize,
        fates: &[Fate],
        jobs_max: u32,
        kind: Option<usize>,
    ) {
        let now = self.database.clock().now();
        // Most reports are on slices that are held, and some on old ones.
        let held = self
            .slices
            .iter()
            .filter(|(_, slice)| self.reference.is_held(slice));
        let held: Vec<&(WorkerId, LeasedSlice)> = held.collect();
        let chosen = match slice.is_multiple_of(4) || held.is_empty() {
            true => self.slices.get(slice / 4 % self.slices.len().max(1)).cloned(),
            false => held.get(slice / 4 % held.len()).map(|chosen| (*chosen).clone()),
        };
        let (worker, reports) = match chosen {
            Some((worker, slice)) => (worker, vec![self.report_by(&slice, fates)]),
            None => (self.workers[worker % self.workers.len()], Vec::new()),
        };
        let want = wish(jobs_max, kind);
        let want = self.reference.workers.contains(&worker).then_some(want);
        let answer = exchange(&*self.store, worker, reports.clone(), want.clone()).await;
        let mut created = self.created().await;
        for (report, receipt) in reports.iter().zip(&answer.receipts) {
            let expected = self.reference.report(worker, report, &mut created, now);
            assert_eq!(receipt, &expected);
        }
        created.check_empty();
        if let Some(want) = want {
            self.check_claim(worker, &want, answer).await;
        }
    }

    /// The jobs that the store has made since the last call. Later steps can name their batches.
    async fn created(&mut self) -> Created {
        let page = Page {
            after: None,
            limit: 10_000,
        };
        let rows = self.store.jobs(&JobFilter::default(), page).await.unwrap();
        let mut created = Created::default();
        for row in rows {
            if self.reference.was_stored(row.job) {
                continue;
            }
            let details = self.store.job(row.job).await.unwrap().unwrap();
            let payload = details.payload.get().to_owned();
            let twin = created.0.insert((row.kind.to_string(), payload), row.job);
            assert_eq!(twin, None, "a job was made twice");
            if self.batches.last() != Some(&row.job.batch) {
                assert!(self.batches.last() < Some(&row.job.batch), "batch ids ascend");
                self.batches.push(row.job.batch);
            }
        }
        created
    }

    /// Checks that the store foretells the jobs of a claim.
    async fn check_next(&self) {
        let now = self.database.clock().now();
        let want = wish(NEXT_CHECKED_MAX, None);
        let next = self.store.next_jobs(&want).await.unwrap();
        let next: Vec<_> = next.iter().map(|row| self.reference.claim_key(row.job)).collect();
        let due = self.reference.due(&[], now);
        let due = due.iter().take(NEXT_CHECKED_MAX as usize);
        let due: Vec<_> = due.map(|job| self.reference.claim_key(*job)).collect();
        assert_eq!(next, due, "the next jobs are foretold in order");
    }

    /// Checks that a worker got the right jobs, in the order of claims.
    async fn check_claim(&mut self, worker: WorkerId, want: &Want, answer: Exchanged) {
        let now = self.database.clock().now();
        let kinds: Vec<&str> = want.kinds.iter().map(|kind| &**kind).collect();
        let expected = self.reference.due(&kinds, now);
        let claimed: Vec<JobId> = held_jobs(&answer.lease);
        let keys: Vec<_> = claimed.iter().map(|job| self.reference.claim_key(*job)).collect();
        let wanted = expected.iter().take(want.jobs_max as usize);
        let wanted: Vec<_> = wanted.map(|job| self.reference.claim_key(*job)).collect();
        assert_eq!(keys, wanted, "jobs are claimed in order");
        let is_short = claimed.len() < want.jobs_max as usize;
        for slice in answer.lease.iter().flat_map(|lease| &lease.slices) {
            self.reference.claim(worker, slice, now);
            self.slices.push((worker, slice.clone()));
            self.read_children(slice).await;
        }
        if is_short {
            assert_eq!(answer.next_run_at, self.reference.next_run_at(&kinds, now));
            // The answer may also be limited because of jobs that this claim took.
            assert!(answer.limited || !self.reference.is_limited(&kinds));
        }
    }

    /// Checks that every job has the reference's state, and that the totals match.
    async fn compare(&self) {
        self.check_next().await;
        let now = self.database.clock().now();
        let page = Page {
            after: None,
            limit: 10_000,
        };
        let rows = self.store.jobs(&JobFilter::default(), page).await.unwrap();
        let stored: Vec<(JobId, JobState, u32)> =
            rows.iter().map(|row| (row.job, row.state, row.attempt)).collect();
        assert_eq!(stored, self.reference.states(now));
        let counts = self.store.counts(&JobFilter::default()).await.unwrap();
        assert_eq!(counts, self.reference.counts(now));
        let mut values: BTreeMap<JobId, String> = BTreeMap::new();
        let batches: BTreeSet<_> = rows.iter().map(|row| row.job.batch).collect();
        for batch in batches {
            let outcomes = self.store.outcomes(batch).await.unwrap().unwrap();
            let finished = self.store.is_finished(batch).await.unwrap();
            assert_eq!(finished, outcomes.ended() == outcomes.count);
            let ended = outcomes.jobs();
            let completed = ended
                .iter()
                .filter_map(|ended| Some((ended.position, ended.value?)));
            values.extend(completed.map(|(position, value)| (job(batch, position), value.to_owned())));
        }
        assert_eq!(values, self.reference.values());
    }
}

/// A policy without chance, so that the reference gets the same result.
fn policy(attempts_max: u32) -> RetryPolicy {
    RetryPolicy {
        attempts_max,
        backoff: Backoff::Linear,
        delay_ms: 7,
        delay_ms_max: 100,
    }
}

fn wish(jobs_max: u32, kind: Option<usize>) -> Want {
    Want {
        jobs_max,
        queues: vec!["default".into()],
        kinds: kind.map(|kind| KINDS[kind].into()).into_iter().collect(),
        priority_min: None,
    }
}

fn of_kind(kind: usize) -> Scope {
    Scope {
        kind: Some(KINDS[kind].to_owned()),
        ..Scope::default()
    }
}

fn held_jobs(lease: &Option<gristmill_model::Lease>) -> Vec<JobId> {
    let slices = lease.iter().flat_map(|lease| &lease.slices);
    slices
        .flat_map(|slice| slice.positions.iter().map(|position| job(slice.batch, position)))
        .collect()
}
