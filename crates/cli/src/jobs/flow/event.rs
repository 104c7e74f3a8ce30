//! `gristmill flow event`: sends events to flows.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use gristmill_model::limits::{KEPT_EVENTS_MAX, VALUE_BYTES_MAX};
use gristmill_operations::jobs::events::{FoundEvents, SentEvent};
use gristmill_operations::limits::EVENTS_PER_REQUEST_MAX;
use gristmill_operations::{
    Access, AddressedEvent, FlowAddress, FlowEventRequest, checked_event_name, read_job,
};
use gristmill_store::Store;

use crate::arguments::flow::FlowEventArguments;
use crate::exit::{Exit, refused};
use crate::output::print_line;
use crate::span::{show_count, show_number_of};

/// Bytes of one line: a value of the largest size, and the names beside it.
const LINE_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);

/// Bytes of the lines of one transaction, beyond which it has no further line.
const SEND_BYTES_MAX: usize = 32 << 20;

/// The number of sent events, by receipt.
#[derive(Default)]
struct Sent {
    delivered: u64,
    kept: u64,
    refused: u64,
}

/// Runs the command.
pub async fn event(arguments: FlowEventArguments) -> anyhow::Result<Exit> {
    let event = match &arguments.input {
        None => Some(single(&arguments)?),
        Some(_) => None,
    };
    let store = arguments.store.open_existing().await?;
    let mut sent = Sent::default();
    let ended = match (event, &arguments.input) {
        (Some(event), _) => send(&arguments, &*store, vec![event], &mut sent).await,
        (None, Some(path)) => send_lines(&arguments, &*store, path, &mut sent).await,
        (None, None) => Ok(()),
    };
    store.close().await?;
    ended?;
    if arguments.input.is_some() && !arguments.json {
        print_line(&format!(
            "{} delivered, {} kept until their flows await them",
            show_number_of(sent.delivered, "event"),
            show_count(sent.kept)
        ))?;
    }
    Ok(match sent.refused {
        0 => Exit::Done,
        _ => Exit::SomeFailed,
    })
}

/// The event of the arguments.
fn single(arguments: &FlowEventArguments) -> anyhow::Result<AddressedEvent> {
    let text = arguments.flow.as_deref().unwrap_or_default();
    let flow = match (text.strip_prefix("key="), &arguments.kind) {
        (Some(key), kind) => FlowAddress::Key {
            key: key.to_owned(),
            kind: kind.clone(),
        },
        (None, Some(_)) => bail!("--kind goes with key=KEY: an id names one job of any kind"),
        (None, None) => FlowAddress::Job(read_job(text).map_err(|refused| {
            anyhow::anyhow!("{}, or the deduplication key, as in key=order-17", refused.told())
        })?),
    };
    let name = checked_event_name(arguments.name.clone().unwrap_or_default());
    let value_json = match arguments.value.as_deref() {
        None => "null".to_owned(),
        Some("-") => value_of_stdin()?,
        Some(value) => value.to_owned(),
    };
    serde_json::from_str::<serde::de::IgnoredAny>(&value_json).with_context(|| {
        let shown: String = value_json.chars().take(60).collect();
        format!("the value `{shown}` is not JSON; a string needs its own quotes, as in '\"text\"'; nothing is sent")
    })?;
    Ok(AddressedEvent {
        flow,
        name: name.map_err(refused)?,
        value_json,
    })
}

fn value_of_stdin() -> anyhow::Result<String> {
    let mut value = String::new();
    let mut input = std::io::stdin().lock().take(VALUE_BYTES_MAX as u64 + 1);
    input
        .read_to_string(&mut value)
        .context("standard input cannot be read as the value")?;
    if value.len() > VALUE_BYTES_MAX {
        bail!("the value on standard input is larger than {VALUE_BYTES_MAX} bytes; nothing is sent");
    }
    Ok(value)
}

/// Sends an event for each line.
async fn send_lines(
    arguments: &FlowEventArguments,
    store: &dyn Store,
    path: &Path,
    sent: &mut Sent,
) -> anyhow::Result<()> {
    let mut input: Box<dyn BufRead> = match path.as_os_str() == "-" {
        true => Box::new(BufReader::new(std::io::stdin())),
        false => Box::new(BufReader::new(
            File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?,
        )),
    };
    let (mut number, mut first, mut bytes) = (0u64, 1u64, 0);
    let mut events = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut input).take(LINE_BYTES_MAX as u64 + 1);
        let read = limited
            .read_until(b'\n', &mut line)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        if read == 0 || events.len() == EVENTS_PER_REQUEST_MAX || bytes > SEND_BYTES_MAX {
            send(arguments, store, std::mem::take(&mut events), sent).await?;
            (first, bytes) = (number + 1, 0);
        }
        if read == 0 {
            return Ok(());
        }
        number += 1;
        bytes += read;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let event = read_line(&line).with_context(|| {
            let before = match first {
                1 => "no event is sent".to_owned(),
                first => format!(
                    "the events of the first {} lines are sent, the others are not",
                    show_count(first - 1)
                ),
            };
            format!("line {number} of {}: {before}", path.display())
        })?;
        events.push(event);
    }
}

fn read_line(line: &[u8]) -> anyhow::Result<AddressedEvent> {
    if line.len() > LINE_BYTES_MAX {
        bail!("the line is longer than {LINE_BYTES_MAX} bytes");
    }
    let request: FlowEventRequest<'_> = serde_json::from_slice(line)?;
    request.check().map_err(refused)
}

/// Sends events in one transaction, and tells what became of them.
async fn send(
    arguments: &FlowEventArguments,
    store: &dyn Store,
    events: Vec<AddressedEvent>,
    sent: &mut Sent,
) -> anyhow::Result<()> {
    let found = FoundEvents::of(store, &Access::all(), events).await;
    let mut found = found.map_err(refused)?;
    let events = found.events();
    let receipts = match events.is_empty() {
        true => Vec::new(),
        false => store.send_events(events).await?,
    };
    for event in found.told(receipts) {
        sent.count(event.receipt);
        tell(arguments, &event)?;
    }
    Ok(())
}

impl Sent {
    fn count(&mut self, receipt: &str) {
        match receipt {
            "delivered" => self.delivered += 1,
            "kept" => self.kept += 1,
            _ => self.refused += 1,
        }
    }
}

/// Tells what became of one event. Of many lines, only the refused ones are told one by one.
fn tell(arguments: &FlowEventArguments, event: &SentEvent) -> anyhow::Result<()> {
    if arguments.json {
        return Ok(print_line(&serde_json::to_string(event)?)?);
    }
    let SentEvent { flow, name, .. } = event;
    let is_single = arguments.input.is_none();
    match event.receipt {
        "delivered" if is_single => print_line(&format!("flow {flow} has the event {name}"))?,
        "kept" if is_single => print_line(&format!(
            "kept: flow {flow} does not await the event {name} yet, and gets it when it does"
        ))?,
        "ended" => say!("flow {flow} has ended: the event {name} is not sent"),
        "unknown" => say!(
            "flow {flow} does not exist: the event {name} is not sent; `gristmill flow list` lists flows"
        ),
        "full" => say!(
            "flow {flow} has {} events that it has not awaited: the event {name} is not sent",
            show_count(u64::from(KEPT_EVENTS_MAX))
        ),
        _ => {}
    }
    Ok(())
}
