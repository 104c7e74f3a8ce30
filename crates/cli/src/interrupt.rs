//! Ctrl-C and SIGTERM: the first asks the program to come to an end, the second ends it.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;

/// Tells whether the program was asked to come to an end.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Receiver<Option<Exit>>);

impl Interrupt {
    /// Listens from now on. Must be called within a tokio runtime.
    pub fn listen() -> std::io::Result<Interrupt> {
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
}
