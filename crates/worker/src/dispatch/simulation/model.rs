//! The simulated source and runners, and the loop of a worker without its I/O.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use crate::claims::give_back::GiveBack;
use crate::claims::{Claimed, Claims, Holding};
use crate::dispatch::{DispatchSettings, Dispatcher};
use crate::handler::Capacity;
use crate::settings::WorkerSettings;
use gristmill_model::{Rng, SplitMix64};

#[derive(Debug, Clone, Copy)]
pub struct JobModel {
    pub duration: Duration,
    pub timeout: Option<Duration>,
    /// The job kills its process at its end.
    pub crashes: bool,
}

impl JobModel {
    pub fn takes(&self) -> Duration {
        self.timeout
            .map_or(self.duration, |timeout| self.duration.min(timeout))
    }

    /// Reports whether the process dies at the end of the job.
    fn kills(&self) -> bool {
        self.crashes || self.timeout.is_some_and(|timeout| self.duration > timeout)
    }
}

/// The simulated workload. All workers are alike.
#[derive(Debug)]
pub struct Workload {
    pub seed: u64,
    pub jobs: Vec<JobModel>,
    pub workers: usize,
    pub runners: usize,
    pub concurrency: u32,
    pub drain_after: Option<Duration>,
    pub claim_takes: Duration,
    pub answer_takes: Duration,
    pub recall_takes: Duration,
    pub start_takes: Duration,
    /// The number of failing starts among ten. A runner whose process does not start is out, and tries again after
    /// [`START_AGAIN`].
    pub start_failures: u64,
}

/// The pause after a failed start.
const START_AGAIN: Duration = Duration::from_millis(50);

/// The result of a simulation.
#[derive(Debug)]
pub struct Outcome {
    /// The end of the last job.
    pub makespan: Duration,
    /// The lost running time of jobs whose process was killed by another job.
    pub lost: Duration,
    /// The longest time for which a slot was idle while its worker held a job that had not begun.
    pub idle_longest: Duration,
    /// The number of replaced processes.
    pub crashes: u32,
    /// The total time that runners were out, times the runs that their slots could have done.
    pub out: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Drain,
    /// The answer to a claim reaches its worker.
    Claimed {
        worker: usize,
        asked: u32,
        jobs: Vec<usize>,
    },
    Announced {
        worker: usize,
    },
    Given {
        worker: usize,
        runner: usize,
        jobs: Vec<usize>,
    },
    Started {
        worker: usize,
        runner: usize,
    },
    Ended {
        worker: usize,
        runner: usize,
        job: usize,
        epoch: u32,
    },
    Answered {
        worker: usize,
        runner: usize,
        job: usize,
    },
    Recalled {
        worker: usize,
        runner: usize,
    },
    Returned {
        worker: usize,
        runner: usize,
        jobs: Vec<usize>,
    },
    Look {
        worker: usize,
    },
    /// A worker learns that a runner is out, or back.
    Out {
        worker: usize,
        runner: usize,
        is_out: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Ended,
    Released,
}

#[derive(Debug, Default)]
struct Runner {
    /// The process cannot start.
    is_out: bool,
    is_up: bool,
    is_starting: bool,
    epoch: u32,
    window: VecDeque<usize>,
    running: Vec<(usize, Duration)>,
    /// The start of the time during which a slot is idle while the worker holds a job for it.
    idle_since: Option<Duration>,
}

struct Worker {
    dispatcher: Dispatcher,
    claims: Claims,
    queue: VecDeque<usize>,
    runners: Vec<Runner>,
    claiming: bool,
    reports: u32,
    in_hand: u32,
    give_back: GiveBack,
    /// The time of the next look, if it is known.
    look_at: Option<Duration>,
}

pub struct Simulation<'workload> {
    workload: &'workload Workload,
    began: Instant,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    scheduled: u64,
    source: VecDeque<usize>,
    workers: Vec<Worker>,
    fates: Vec<Fate>,
    begun: Vec<u32>,
    undone: Vec<u32>,
    draining: bool,
    rng: SplitMix64,
    outcome: Outcome,
}

impl<'workload> Simulation<'workload> {
    pub fn run(workload: &'workload Workload) -> Outcome {
        let settings = WorkerSettings {
            concurrency: workload.runners,
            ..WorkerSettings::default()
        };
        let worker = |_| {
            let capacity = Capacity {
                runners: Some(workload.runners),
                concurrency: workload.concurrency,
                whole_batches: false,
                gathers_for: Duration::ZERO,
            };
            let dispatch = DispatchSettings {
                busy_runners_max: workload.runners,
                window_target: settings.window_target,
                micro_batch_jobs_max: settings.micro_batch_jobs_max,
            };
            let dispatcher = Dispatcher::new(dispatch, &[capacity]);
            Worker {
                claims: Claims::new(&settings, dispatcher.free_slots_of_all()),
                dispatcher,
                queue: VecDeque::new(),
                runners: (0..workload.runners).map(|_| Runner::default()).collect(),
                claiming: false,
                reports: 0,
                in_hand: 0,
                give_back: GiveBack::default(),
                look_at: None,
            }
        };
        let count = workload.jobs.len();
        let mut simulation = Simulation {
            workload,
            began: Instant::now(),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            scheduled: 0,
            source: (0..count).collect(),
            workers: (0..workload.workers).map(worker).collect(),
            fates: vec![Fate::Open; count],
            begun: vec![0; count],
            undone: vec![0; count],
            draining: false,
            rng: SplitMix64::new(workload.seed),
            outcome: Outcome {
                makespan: Duration::ZERO,
                lost: Duration::ZERO,
                idle_longest: Duration::ZERO,
                crashes: 0,
                out: Duration::ZERO,
            },
        };
        simulation.turn();
        simulation.check();
        simulation.outcome
    }

    fn turn(&mut self) {
        if let Some(after) = self.workload.drain_after {
            self.at(after, Event::Drain);
        }
        for worker in 0..self.workers.len() {
            self.step(worker);
        }
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = at;
            self.take(event);
            if self.fates.iter().all(|fate| *fate != Fate::Open) {
                break;
            }
        }
    }

    fn check(&self) {
        for (job, fate) in self.fates.iter().enumerate() {
            assert!(
                *fate == Fate::Ended || (self.draining && *fate == Fate::Released),
                "seed {}: job {job} was lost",
                self.workload.seed
            );
            let allowed = self.undone[job] + u32::from(*fate == Fate::Ended);
            assert_eq!(
                self.begun[job], allowed,
                "seed {}: job {job} began too often or too rarely",
                self.workload.seed
            );
        }
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.scheduled += 1;
        self.events
            .push(Reverse((at.max(self.now), self.scheduled, event)));
    }

    fn after(&mut self, pause: Duration, event: Event) {
        self.at(self.now + pause, event);
    }

    fn instant(&self) -> Instant {
        self.began + self.now
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Drain => self.drain(),
            Event::Claimed { worker, asked, jobs } => self.claimed(worker, asked, jobs),
            Event::Announced { worker } => {
                self.workers[worker].claims.announce();
                self.step(worker);
            }
            Event::Given { worker, runner, jobs } => {
                if !self.draining && self.workers[worker].runners[runner].is_out {
                    let answer_takes = self.workload.answer_takes;
                    self.after(answer_takes, Event::Returned { worker, runner, jobs });
                } else if !self.draining {
                    self.workers[worker].runners[runner].window.extend(jobs);
                    self.begin(worker, runner);
                }
                self.step(worker);
            }
            Event::Started { worker, runner } => {
                self.started(worker, runner);
                self.step(worker);
            }
            Event::Out {
                worker,
                runner,
                is_out,
            } => {
                let dispatcher = &mut self.workers[worker].dispatcher;
                if is_out {
                    dispatcher.out(0, runner, self.now);
                } else {
                    dispatcher.back(0, runner, self.now);
                }
                self.step(worker);
            }
            Event::Ended {
                worker,
                runner,
                job,
                epoch,
            } => self.end(worker, runner, job, epoch),
            Event::Answered { worker, runner, job } => self.answered(worker, runner, job),
            Event::Recalled { worker, runner } => {
                let jobs: Vec<usize> = self.workers[worker].runners[runner].window.drain(..).collect();
                if !jobs.is_empty() {
                    let answer_takes = self.workload.answer_takes;
                    self.after(answer_takes, Event::Returned { worker, runner, jobs });
                }
            }
            Event::Returned { worker, runner, jobs } => {
                let it = &mut self.workers[worker];
                it.dispatcher.returned(0, runner, jobs.len() as u32, self.now);
                if !self.draining {
                    it.queue.extend(jobs);
                    it.queue.make_contiguous().sort_unstable();
                }
                self.step(worker);
            }
            Event::Look { worker } => {
                if self.workers[worker].look_at == Some(self.now) {
                    self.workers[worker].look_at = None;
                    self.step(worker);
                }
            }
        }
        for worker in 0..self.workers.len() {
            self.watch(worker);
        }
    }

    /// A process has started, or failed to start. In the second case its runner is out, and gives its jobs back.
    fn started(&mut self, worker: usize, runner: usize) {
        let answer_takes = self.workload.answer_takes;
        let fails = self.rng.next_u64() % 10 < self.workload.start_failures;
        let it = &mut self.workers[worker].runners[runner];
        let was_out = it.is_out;
        (it.is_up, it.is_starting, it.is_out) = (!fails, fails, fails);
        if fails {
            let jobs: Vec<usize> = it.window.drain(..).collect();
            self.outcome.out += START_AGAIN + self.workload.start_takes;
            self.after(
                START_AGAIN + self.workload.start_takes,
                Event::Started { worker, runner },
            );
            if !jobs.is_empty() {
                self.after(answer_takes, Event::Returned { worker, runner, jobs });
            }
        }
        if was_out != fails {
            let is_out = fails;
            self.after(
                answer_takes,
                Event::Out {
                    worker,
                    runner,
                    is_out,
                },
            );
        }
        self.begin(worker, runner);
    }

    fn drain(&mut self) {
        self.draining = true;
        self.source.clear();
        for worker in &mut self.workers {
            worker.queue.clear();
            worker.runners.iter_mut().for_each(|runner| runner.window.clear());
        }
        let begun: Vec<usize> = self.workers.iter().flat_map(running).collect();
        for (job, fate) in self.fates.iter_mut().enumerate() {
            if *fate == Fate::Open && !begun.contains(&job) {
                *fate = Fate::Released;
            }
        }
    }

    fn claimed(&mut self, worker: usize, asked: u32, jobs: Vec<usize>) {
        let (now, got) = (self.instant(), jobs.len() as u32);
        let is_empty = self.source.is_empty();
        let it = &mut self.workers[worker];
        it.claiming = false;
        it.claims.exchange_took(self.workload.claim_takes);
        if asked > 0 {
            let claimed = Claimed {
                asked,
                got,
                is_cut: got >= asked && !is_empty,
                ..Claimed::default()
            };
            it.claims.claimed(claimed, now);
        }
        if self.draining {
            it.in_hand -= got;
        } else {
            it.queue.extend(jobs);
        }
        self.step(worker);
    }

    fn answered(&mut self, worker: usize, runner: usize, job: usize) {
        let (since_began, now) = (self.now, self.instant());
        let duration_us = self.workload.jobs[job].takes().as_micros() as u32;
        let it = &mut self.workers[worker];
        it.in_hand -= 1;
        it.reports += 1;
        it.dispatcher.answered(0, runner, 1, [duration_us], since_began);
        it.claims.ran(1, now);
        let target = it.claims.hold_target();
        it.claims.fits(it.dispatcher.jobs_within(target));
        self.step(worker);
    }

    /// Lets the process of a runner begin the jobs that it can.
    fn begin(&mut self, worker: usize, runner: usize) {
        let concurrency = self.workload.concurrency as usize;
        let start_takes = self.workload.start_takes;
        let it = &mut self.workers[worker].runners[runner];
        if !it.is_up {
            if !it.is_starting && !it.window.is_empty() {
                it.is_starting = true;
                self.after(start_takes, Event::Started { worker, runner });
            }
            return;
        }
        while it.running.len() < concurrency
            && let Some(job) = it.window.pop_front()
        {
            it.running.push((job, self.now));
            it.idle_since = None;
            self.begun[job] += 1;
            let epoch = it.epoch;
            let ends_at = self.now + self.workload.jobs[job].takes();
            self.scheduled += 1;
            let event = Event::Ended {
                worker,
                runner,
                job,
                epoch,
            };
            self.events.push(Reverse((ends_at, self.scheduled, event)));
        }
    }

    fn end(&mut self, worker: usize, runner: usize, job: usize, epoch: u32) {
        let model = self.workload.jobs[job];
        let it = &mut self.workers[worker].runners[runner];
        if it.epoch != epoch {
            return;
        }
        it.running.retain(|(other, _)| *other != job);
        if model.kills() {
            self.outcome.crashes += 1;
            it.epoch += 1;
            it.is_up = false;
            for (undone, since) in std::mem::take(&mut it.running).into_iter().rev() {
                it.window.push_front(undone);
                self.undone[undone] += 1;
                self.outcome.lost += self.now - since;
                // The job runs again, even under a drain. The simulation then counts it as released.
                if self.draining {
                    self.fates[undone] = Fate::Released;
                }
            }
            if self.draining {
                it.window.clear();
            }
        }
        assert_eq!(self.fates[job], Fate::Open, "job {job} ended twice");
        self.fates[job] = Fate::Ended;
        self.outcome.makespan = self.now;
        self.begin(worker, runner);
        self.after(
            self.workload.answer_takes,
            Event::Answered { worker, runner, job },
        );
    }

    /// The step of a worker after each event.
    fn step(&mut self, worker: usize) {
        if self.draining {
            return;
        }
        let now = self.now;
        let it = &mut self.workers[worker];
        if !it.dispatcher.can_run(0) && !it.queue.is_empty() {
            // Other workers may run the jobs.
            let released: Vec<usize> = it.queue.drain(..).collect();
            it.in_hand -= released.len() as u32;
            self.give_back(released);
            return self.exchange(worker);
        }
        let mut given = Vec::new();
        while let Some(delivery) = it.dispatcher.next(0, it.queue.len() as u64, now) {
            let count = (delivery.jobs_max as usize).min(it.queue.len());
            let jobs: Vec<usize> = it.queue.drain(..count).collect();
            it.dispatcher.gave(0, delivery.runner, count as u32, now);
            it.give_back.gave(now);
            given.push((delivery.runner, jobs));
        }
        let mut recalled = Vec::new();
        while let Some(runner) = it.dispatcher.recall(0, it.queue.len() as u64, now) {
            recalled.push(runner);
        }
        let is_stuck = it.dispatcher.free_slots_of_all() == 0 && !it.queue.is_empty();
        let mut look_at = it.dispatcher.look_at(0, it.queue.len() as u64);
        let mut released = Vec::new();
        if !is_stuck {
            it.give_back.nothing_waits();
        }
        if is_stuck && it.give_back.is_stalled(now) {
            it.claims.stalled();
            it.give_back.gave(now);
            released = it.queue.drain(..).collect();
        } else if is_stuck {
            look_at = look_at.into_iter().chain([it.give_back.stalled_at()]).min();
            let surplus = it.give_back.surplus(it.queue.len() as u64, it.claims.soon(), now);
            released = it.queue.split_off(it.queue.len() - surplus as usize).into();
        }
        it.in_hand -= released.len() as u32;
        if it.dispatcher.free_slots_of_all() > 0 {
            it.claims.ran_dry();
        }
        for (runner, jobs) in given {
            self.after(Duration::from_micros(100), Event::Given { worker, runner, jobs });
        }
        for runner in recalled {
            self.after(self.workload.recall_takes, Event::Recalled { worker, runner });
        }
        if !released.is_empty() {
            self.give_back(released);
        }
        if let Some(at) = look_at {
            self.look(worker, at);
        }
        self.exchange(worker);
    }

    /// Makes a worker look again at a time, or sooner.
    fn look(&mut self, worker: usize, at: Duration) {
        let known = &mut self.workers[worker].look_at;
        if known.is_none_or(|known| at < known) {
            *known = Some(at.max(self.now));
            self.at(at, Event::Look { worker });
        }
    }

    fn give_back(&mut self, released: Vec<usize>) {
        self.source.extend(released);
        self.source.make_contiguous().sort_unstable();
        for other in 0..self.workers.len() {
            self.after(self.workload.claim_takes, Event::Announced { worker: other });
        }
    }

    fn exchange(&mut self, worker: usize) {
        let now = self.instant();
        let it = &mut self.workers[worker];
        if it.claiming {
            return;
        }
        let holding = Holding {
            waiting: it.queue.len() as u64,
            free_slots: it.dispatcher.free_slots_of_all(),
            is_running: it.in_hand as usize > it.queue.len(),
            has_reports: it.reports > 0,
        };
        if let Some(look_again_at) = it.claims.look_again_at()
            && look_again_at <= now
        {
            it.claims.announce();
        }
        let asked = if it.dispatcher.can_run(0) {
            it.claims.wanted(holding, now)
        } else {
            0
        };
        if asked == 0 && it.reports == 0 {
            return;
        }
        let exchange_at = it.claims.exchange_at(asked, holding, now);
        if exchange_at > now {
            let at = exchange_at - self.began;
            self.look(worker, at);
            return;
        }
        it.claims.exchange_began(now);
        it.claiming = true;
        it.reports = 0;
        let got = (asked as usize).min(self.source.len());
        let jobs: Vec<usize> = self.source.drain(..got).collect();
        it.in_hand += got as u32;
        self.after(self.workload.claim_takes, Event::Claimed { worker, asked, jobs });
    }

    /// Measures for how long each runner has an idle slot while its worker holds a job that has not begun.
    fn watch(&mut self, worker: usize) {
        let (now, concurrency) = (self.now, self.workload.concurrency as usize);
        let it = &mut self.workers[worker];
        let is_held = !it.queue.is_empty()
            || it
                .runners
                .iter()
                .any(|runner| runner.is_up && !runner.window.is_empty());
        for runner in &mut it.runners {
            let is_idle = !runner.is_starting && !runner.is_out && runner.running.len() < concurrency;
            if let Some(since) = runner.idle_since {
                self.outcome.idle_longest = self.outcome.idle_longest.max(now - since);
            }
            let goes_on = is_idle && is_held && !self.draining;
            runner.idle_since = goes_on.then(|| runner.idle_since.unwrap_or(now));
        }
    }
}

fn running(worker: &Worker) -> Vec<usize> {
    let of = |runner: &Runner| runner.running.iter().map(|(job, _)| *job).collect::<Vec<_>>();
    worker.runners.iter().flat_map(of).collect()
}
