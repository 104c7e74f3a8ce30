//! `gristmill chat`: a conversation with a knowledge base, a line for each question.

use std::io::{self, IsTerminal};

use gristmill_memory::Chat;
use gristmill_memory::ask::AskOptions;
use gristmill_memory::ask::chat::{Replied, Reply};
use gristmill_memory::extract::LimiterSettings;
use gristmill_model::{Clock, SystemClock};

use super::ask;
use super::pipe::Lines;
use super::shown::{Shown, messages_text, plain};
use crate::arguments::memory::ChatArguments;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::print_line;
use crate::output::terminal;

/// The prompt before a question.
const PROMPT: &str = "> ";

/// The line that starts a new conversation.
const FORGET: &str = "/forget";

/// The largest number of messages in a reply without a model.
const MESSAGES_SHOWN: usize = 5;

/// Runs the command, until its input ends.
pub async fn chat(arguments: ChatArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let asking = &arguments.asking;
    let options = asking.answering.options(asking.scope.options())?;
    let memory = arguments
        .knowledge
        .open_with(&asking.embedder, &asking.service)
        .await?;
    let service = asking.service.named_service(LimiterSettings::default())?;
    match &service {
        Some(service) => tokio::select! {
            reached = service.reach() => reached?,
            stopped = interrupt.wait() => return Ok(stopped),
        },
        None => say!(
            "gristmill: without a model, replies are messages; --model, with a key in OPENAI_API_KEY, or --base-url names one"
        ),
    }
    let mut chat = Chat::default();
    let mut lines = Lines::of_standard_input()?;
    let is_terminal = io::stdin().is_terminal();
    let mut exit = Exit::Done;
    loop {
        if is_terminal {
            terminal::say_part(PROMPT);
        }
        let line = tokio::select! {
            line = lines.next() => line?,
            stopped = interrupt.wait() => return Ok(stopped),
        };
        let Some(line) = line else { break };
        match line.trim() {
            "" => continue,
            FORGET => {
                chat.forget();
                continue;
            }
            _ => {}
        }
        let options = AskOptions {
            asked_at: Some(SystemClock.now()),
            ..options.clone()
        };
        let reply = tokio::select! {
            reply = chat.ask(&memory, service.as_ref(), &options, line.trim()) => reply,
            stopped = interrupt.wait() => return Ok(stopped),
        };
        match reply {
            Ok(reply) => {
                if !reply.is_answered() {
                    exit = Exit::SomeFailed;
                }
                print_line(&if arguments.json {
                    serde_json::to_string(&reply)?
                } else {
                    text(&reply, is_terminal)
                })?;
            }
            // The next question may get an answer.
            Err(error) => {
                exit = Exit::SomeFailed;
                say!("gristmill: {}: {error}", plain(line.trim()));
            }
        }
    }
    if is_terminal {
        // The prompt's line has no end yet.
        say!("");
    }
    Ok(exit)
}

/// A reply for a terminal. The question comes first if the user did not type it there.
fn text(reply: &Reply, is_typed: bool) -> String {
    let mut lines = Vec::new();
    if !is_typed {
        lines.push(format!("{PROMPT}{}", plain(&reply.asked)));
    }
    if reply.understood != reply.asked {
        lines.push(format!("({})", plain(&reply.understood)));
    }
    lines.push(match &reply.found {
        Replied::Answer(answer) => ask::text(answer),
        Replied::Recalled(recalled) if recalled.messages.is_empty() => "nothing found".to_owned(),
        Replied::Recalled(recalled) => {
            let shown = recalled.messages.len().min(MESSAGES_SHOWN);
            let messages = recalled.messages[..shown].iter().map(|message| (None, message));
            messages_text(messages, Shown::default())
        }
    });
    format!("{}\n", lines.join("\n").trim_end())
}
