//! Heartbeats: a task of their own, so that nothing in the loop can make a worker look dead.

use std::sync::Arc;
use std::time::Duration;

use gristmill_batching::BatchStats;
use gristmill_store::Heartbeat;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::hops::HopRecorder;
use crate::source::Source;

/// A beating heart.
#[derive(Debug)]
pub struct Heart {
    task: JoinHandle<()>,
    answers: mpsc::Receiver<Heartbeat>,
    stats: HopRecorder,
}

impl Heart {
    /// Beats every so often until stopped.
    pub fn start(source: Arc<dyn Source>, every: Duration) -> Heart {
        let stats = HopRecorder::default();
        // One answer may wait; while the loop has not taken it, the heart waits with it, then goes on.
        let (sender, answers) = mpsc::channel(1);
        let recorder = stats.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let moved = recorder.take();
                match source.heartbeat(moved.clone()).await {
                    Ok(answer) if answer == ALL_IS_WELL => {}
                    Ok(answer) => {
                        if sender.send(answer).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        recorder.give_back(&moved);
                        tracing::warn!(%error, "a heartbeat was not answered");
                    }
                }
            }
        });
        Heart { task, answers, stats }
    }

    /// Where the hops are counted.
    pub fn stats(&self) -> HopRecorder {
        self.stats.clone()
    }

    /// The next answer that says more than that all is well.
    pub async fn answer(&mut self) -> Option<Heartbeat> {
        self.answers.recv().await
    }

    /// Stops, and gives what has not been sent.
    pub fn stop(self) -> BatchStats {
        self.task.abort();
        self.stats.take()
    }
}

const ALL_IS_WELL: Heartbeat = Heartbeat {
    known: true,
    revoked: Vec::new(),
};
