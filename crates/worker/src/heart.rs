//! Heartbeats. They have their own task, so that a slow step of the loop does not make a worker look dead. A heartbeat
//! shows that the worker can work. The heart stops beating when the loop makes no turn, or when a claim or report stays
//! unanswered (see [`Pulse`]). The store then gives the worker's jobs to others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_batching::BatchStats;
use gristmill_model::limits::{LIVE_OUTPUT_EVERY_MS, PROGRESS_EVERY_MS};
use gristmill_store::{Heartbeat, NEWS};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::hops::HopRecorder;
use crate::live_output::LiveOutputBoard;
use crate::mill::pulse::Pulse;
use crate::progress::ProgressBoard;
use crate::source::Source;

/// The task that sends heartbeats.
#[derive(Debug)]
pub struct Heart {
    task: JoinHandle<()>,
    answers: mpsc::Receiver<Heartbeat>,
    stats: HopRecorder,
    board: ProgressBoard,
    output: LiveOutputBoard,
    pulse: Pulse,
}

impl Heart {
    /// Sends heartbeats at this interval until it is stopped. With news of progress, sends them about once a second.
    pub fn start(source: Arc<dyn Source>, every: Duration) -> Heart {
        let stats = HopRecorder::default();
        // One answer may wait. The heart then waits until the loop has taken it.
        let (sender, answers) = mpsc::channel(1);
        let recorder = stats.clone();
        let board = ProgressBoard::default();
        let said = board.clone();
        let output = LiveOutputBoard::default();
        let printed = output.clone();
        let pulse = Pulse::new(every, Instant::now());
        let felt = pulse.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            let mut told_at: Option<Instant> = None;
            let mut written_at: Option<Instant> = None;
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = news(&said, told_at) => {}
                    followed = source.followed() => {
                        printed.follow(followed);
                        continue;
                    }
                    () = new_output(&printed, written_at) => {
                        written_at = Some(Instant::now());
                        if let Err(error) = source.put_output(printed.take()).await {
                            // The log shows the output again after the end of the job.
                            tracing::debug!(%error, "live output was not taken");
                        }
                        continue;
                    }
                }
                if felt.is_stalled(Instant::now()) {
                    ticks.tick().await;
                    continue;
                }
                let began = Instant::now();
                let moved = recorder.take();
                let progress = said.take();
                if progress.is_some() {
                    told_at = Some(Instant::now());
                }
                let idle = felt.ask_why(Instant::now());
                match source
                    .heartbeat(moved.clone(), progress.unwrap_or_default(), idle)
                    .await
                {
                    Ok(mut answer) => {
                        if began.elapsed() > every {
                            // The source was away and is back. The loop also gets the time of a beat for its answer before it counts as
                            // stalled.
                            ticks.reset();
                        }
                        printed.follow(std::mem::take(&mut answer.followed));
                        if let Some(reasons) = answer.held_back.take() {
                            tracing::warn!(target: NEWS, "the worker runs nothing: {reasons}");
                        }
                        if answer == ALL_IS_WELL {
                            continue;
                        }
                        if sender.send(answer).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        recorder.give_back(&moved);
                        if told_at.is_some() {
                            said.give_back();
                        }
                        tracing::warn!(%error, "a heartbeat was not answered");
                    }
                }
            }
        });
        Heart {
            task,
            answers,
            stats,
            board,
            output,
            pulse,
        }
    }

    /// The place where the loop shows that it works.
    pub(crate) fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// The counters of the hops.
    pub fn stats(&self) -> HopRecorder {
        self.stats.clone()
    }

    /// The progress of the jobs.
    pub fn board(&self) -> ProgressBoard {
        self.board.clone()
    }

    /// The output of followed jobs.
    pub fn output(&self) -> LiveOutputBoard {
        self.output.clone()
    }

    /// The next answer with news.
    pub async fn answer(&mut self) -> Option<Heartbeat> {
        self.answers.recv().await
    }

    /// Stops the heart, and returns the unsent counters.
    pub fn stop(self) -> BatchStats {
        self.task.abort();
        self.stats.take()
    }
}

/// Resolves when jobs have new progress, and the minimum interval has passed.
async fn news(said: &ProgressBoard, told_at: Option<Instant>) {
    said.changed().await;
    if let Some(told_at) = told_at {
        tokio::time::sleep_until((told_at + Duration::from_millis(PROGRESS_EVERY_MS)).into()).await;
    }
}

/// Resolves when followed jobs have new output, and the minimum interval has passed.
async fn new_output(printed: &LiveOutputBoard, written_at: Option<Instant>) {
    printed.changed().await;
    if let Some(written_at) = written_at {
        tokio::time::sleep_until((written_at + Duration::from_millis(LIVE_OUTPUT_EVERY_MS)).into()).await;
    }
}

const ALL_IS_WELL: Heartbeat = Heartbeat {
    known: true,
    revoked: Vec::new(),
    followed: Vec::new(),
    drain: false,
    held_back: None,
};
