//! `gristmill events`: events of jobs, as JSON lines.

use std::sync::Arc;

use gristmill_engine::{Engine, EngineSettings};
use gristmill_model::limits::EVENTS_PAGE_MAX;
use gristmill_store::{EventCursor, RecordedEvent, Store};

use crate::arguments::job::EventsArguments;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::json::print_json;

/// Runs the command.
pub async fn events(arguments: EventsArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    if arguments.follow {
        follow(store, arguments.after).await
    } else {
        print_kept(&*store, arguments.after).await
    }
}

/// Prints the stored events.
async fn print_kept(store: &dyn Store, mut after: Option<EventCursor>) -> anyhow::Result<Exit> {
    loop {
        let page = store.events(after, EVENTS_PAGE_MAX).await?;
        if page.events.is_empty() {
            return Ok(Exit::Done);
        }
        page.events.iter().try_for_each(print)?;
        after = Some(page.next);
    }
}

/// Prints events until the program is asked to end.
async fn follow(store: Arc<dyn Store>, after: Option<EventCursor>) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let settings = EngineSettings {
        housekeeping: false,
        ..EngineSettings::default()
    };
    let engine = Engine::new(store, settings).await?;
    let mut events = engine.events(after).await?;
    loop {
        tokio::select! {
            event = events.next() => print(&event?)?,
            exit = interrupt.wait() => return Ok(exit),
        }
    }
}

fn print(event: &RecordedEvent) -> anyhow::Result<()> {
    print_json(event)
}
