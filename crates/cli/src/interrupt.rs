//! Ctrl-C and SIGTERM: the first signal asks the program to end, and the second ends it at once.

use std::sync::mpsc;
use std::time::Duration;

use gristmill_engine::{SourceError, WorkerSummary};
use gristmill_worker::SourceErrorKind;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::arguments::shared::StopArguments;
use crate::exit::Exit;

/// The time after the grace period of its running jobs within which a program ends, whatever its store does.
const END_AFTER_GRACE_MAX: Duration = Duration::from_secs(8);

/// The time in which a stopping program leaves its store after its worker has ended. The worker's last reports take at
/// most 21 s, so both together stay below the 30 s after which Kubernetes kills the program.
pub const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Reports whether the program was asked to end.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Receiver<Option<Exit>>);

impl Interrupt {
    /// Starts to listen. Must be called within a tokio runtime.
    pub fn listen() -> std::io::Result<Interrupt> {
        Interrupt::listen_with_grace(None)
    }

    /// Like [`listen`](Interrupt::listen), for a program that gives running jobs this time after it is asked to end.
    pub fn listen_with_grace(grace: Option<Duration>) -> std::io::Result<Interrupt> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                let exit = tokio::select! {
                    _ = interrupts.recv() => Exit::Interrupted,
                    _ = terminations.recv() => Exit::Terminated,
                };
                if sender.borrow().is_some() {
                    // A second signal abandons running jobs. The store keeps all commits.
                    std::process::exit(i32::from(exit.code()));
                }
                if let Some(grace) = grace {
                    end_within(grace + END_AFTER_GRACE_MAX, exit);
                }
                sender.send_replace(Some(exit));
            }
        });
        Ok(Interrupt(receiver))
    }

    /// The exit status if the program was asked to end.
    pub fn asked(&self) -> Option<Exit> {
        *self.0.borrow()
    }

    /// Resolves when the program is asked to end.
    pub async fn wait(&mut self) -> Exit {
        let asked = self.0.wait_for(Option::is_some).await.map(|exit| *exit);
        match asked {
            Ok(exit) => exit.unwrap_or(Exit::Interrupted),
            // The receiver is gone.
            Err(_) => std::future::pending().await,
        }
    }

    /// Notes that the jobs have ended. If the program was asked to end, it ends within this time, whatever its store does.
    pub fn end_within(&self, time: Duration) {
        if let Some(exit) = self.asked() {
            end_within(time, exit);
        }
    }
}

fn end_within(time: Duration, exit: Exit) {
    // This is a thread, because whatever blocks the end may block the event loop.
    std::thread::spawn(move || {
        let (_nobody, never) = mpsc::channel::<()>();
        let _ = never.recv_timeout(time);
        say!("gristmill: stopped while something else did not come to its end; commits are not lost");
        std::process::exit(i32::from(exit.code()));
    });
}

/// Describes how a program ends that was asked to stop.
pub fn how_it_ends(stop: StopArguments) -> String {
    match stop.grace {
        None => "finishing running jobs".to_owned(),
        Some(grace) => format!(
            "finishing running jobs; those that still run after {} s are released",
            grace.as_secs_f64()
        ),
    }
}

/// The summary of a worker that has ended. For a stopped worker that could not report its last outcomes, prints a
/// message and returns `None`.
pub fn summary_of(
    ended: Result<WorkerSummary, SourceError>,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<WorkerSummary>> {
    match ended {
        Ok(summary) => Ok(Some(summary)),
        Err(error) if interrupt.asked().is_some() && error.kind == SourceErrorKind::Transient => {
            say!("gristmill: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
