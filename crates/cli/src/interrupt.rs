//! Ctrl-C and SIGTERM: the first asks the program to come to an end, the second ends it.

use std::sync::mpsc;
use std::time::Duration;

use gristmill_engine::{SourceError, WorkerSummary};
use gristmill_worker::SourceErrorKind;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::arguments::shared::StopArguments;
use crate::exit::Exit;

/// How long after the grace of its running jobs a program ends at the latest, whatever its store does.
const END_AFTER_GRACE_MAX: Duration = Duration::from_secs(8);

/// How long a program that is asked to stop takes to leave its store, once its worker has ended. With the time that a worker takes for
/// its last reports, which is 21 s at most, it is less than the 30 s after which Kubernetes kills.
pub const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Tells whether the program was asked to come to an end.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Receiver<Option<Exit>>);

impl Interrupt {
    /// Listens from now on. Must be called within a tokio runtime.
    pub fn listen() -> std::io::Result<Interrupt> {
        Interrupt::listen_with_grace(None)
    }

    /// The same in a program that gives running jobs so much time when it is asked to come to an end.
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

    /// How the program is to end, if it was asked to.
    pub fn asked(&self) -> Option<Exit> {
        *self.0.borrow()
    }

    /// Resolves when the program is asked to come to an end.
    pub async fn wait(&mut self) -> Exit {
        let asked = self.0.wait_for(Option::is_some).await.map(|exit| *exit);
        match asked {
            Ok(exit) => exit.unwrap_or(Exit::Interrupted),
            // The receiver is gone.
            Err(_) => std::future::pending().await,
        }
    }

    /// The jobs have ended. Ends the program at the latest after this time, if it was asked to, whatever its store does.
    pub fn end_within(&self, time: Duration) {
        if let Some(exit) = self.asked() {
            end_within(time, exit);
        }
    }
}

fn end_within(time: Duration, exit: Exit) {
    // A thread, since whatever blocks the end may block the event loop.
    std::thread::spawn(move || {
        let (_nobody, never) = mpsc::channel::<()>();
        let _ = never.recv_timeout(time);
        say!("gristmill: stopped while something else did not come to its end; commits are not lost");
        std::process::exit(i32::from(exit.code()));
    });
}

/// Describes how a program stops that was asked to.
pub fn how_it_ends(stop: StopArguments) -> String {
    match stop.grace {
        None => "finishing running jobs".to_owned(),
        Some(grace) => format!(
            "finishing running jobs; those that still run after {} s are released",
            grace.as_secs_f64()
        ),
    }
}

/// The summary of a worker that has ended. `None`, with a word to the user, for one that was asked to stop and could not report
/// its last outcomes.
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
