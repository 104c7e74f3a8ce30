//! `gristmill dashboard`: a store's page on loopback, opened in the browser.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

use anyhow::bail;
use gristmill_server::{ServeOptions, bind};

use crate::arguments::fleet::DashboardArguments;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::memory::served::served_knowledge;
use crate::output::OutputError;
use crate::store::open::engine_over;

/// Runs the command.
pub async fn dashboard(arguments: DashboardArguments) -> anyhow::Result<Exit> {
    if !arguments.listen.ip().is_loopback() {
        bail!(
            "--listen {} is not an address of this machine alone, such as 127.0.0.1:8400; `gristmill serve --trust DIR` shows the \
             page to others, who sign in with a token",
            arguments.listen
        );
    }
    let mut interrupt = Interrupt::listen()?;
    let store = arguments.store().open_existing().await?;
    let engine = engine_over(store, &arguments.lease).await?;
    let options = ServeOptions {
        listen: arguments.listen,
        knowledge: served_knowledge(arguments.memory).await?,
        ..ServeOptions::default()
    };
    let server = bind(engine.clone(), options).await?;
    let address = format!("{}/", server.base_url());
    writeln!(std::io::stdout(), "{address}")
        .map_err(|reason| OutputError::of("standard output".to_owned(), reason))?;
    if std::io::stdout().is_terminal() {
        if !arguments.no_open {
            open_browser(&address);
        }
        say!("gristmill: the dashboard is at this address until Ctrl-C");
    }
    let mut asked = interrupt.clone();
    let served = server
        .run(async move {
            asked.wait().await;
        })
        .await;
    engine.close().await?;
    served?;
    Ok(interrupt.wait().await)
}

/// Asks the system to show a page. Without a browser, the printed address is enough.
fn open_browser(address: &str) {
    let program = match std::env::consts::OS {
        "macos" => "open",
        _ => "xdg-open",
    };
    let opened = Command::new(program)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = opened {
        tracing::debug!(%error, program, "the browser was not opened");
    }
}
