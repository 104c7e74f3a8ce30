//! `gristmill token`: creates, lists and revokes tokens.

use gristmill_model::{Clock, SystemClock, Timestamp};
use gristmill_operations::read_job;
use gristmill_server::{EventScope, NewToken, Role, TokenRecord, TrustFolder};
use serde_json::json;

use crate::arguments::fleet::{TokenArguments, TokenCommand};
use crate::exit::Exit;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::span::milliseconds;

/// Runs the command.
pub fn token(arguments: TokenArguments) -> anyhow::Result<Exit> {
    match arguments.command {
        TokenCommand::Create(create) => {
            let event = event_of(&create.event)?;
            let new = NewToken {
                subject: create.group,
                role: create.role.unwrap_or(Role::Submit),
                queues: match event {
                    Some(_) => Vec::new(),
                    None => create.queues,
                },
                event,
                life_ms: i64::try_from(milliseconds(create.expires)).unwrap_or(i64::MAX),
            };
            let (text, record) = TrustFolder::new(create.trust.trust).create(&new, &SystemClock)?;
            if create.json {
                let mut shown = serde_json::to_value(&record)?;
                shown["token"] = json!(text);
                print_json(&shown)?;
                return Ok(Exit::Done);
            }
            print_line(&text)?;
            say!(
                "gristmill: token {} for {} `{}` {} until {}; it is not shown again",
                record.jti,
                record.role,
                record.subject,
                scope(&record),
                record.expires_at
            );
        }
        TokenCommand::List(list) => {
            for record in TrustFolder::new(list.trust.trust).tokens()? {
                if list.json {
                    print_json(&record)?;
                } else {
                    print_line(&line(&record, SystemClock.now()))?;
                }
            }
        }
        TokenCommand::Revoke(revoke) => {
            let folder = TrustFolder::new(revoke.trust.trust);
            for jti in &revoke.tokens {
                let record = folder.revoke(jti, &SystemClock)?;
                if revoke.json {
                    print_json(&record)?
                } else {
                    print_line(&format!("{} revoked", record.jti))?
                }
            }
        }
        TokenCommand::RotateKey(rotate) => {
            let kid = TrustFolder::new(rotate.trust.trust).rotate_key(&SystemClock)?;
            print_line(&if rotate.json {
                json!({"kid": kid}).to_string()
            } else {
                kid
            })?;
        }
    }
    Ok(Exit::Done)
}

/// The one event that a token is for.
fn event_of(words: &[String]) -> anyhow::Result<Option<EventScope>> {
    let [job, name] = words else { return Ok(None) };
    let job = read_job(job).map_err(|refused| anyhow::anyhow!("--event: {}", refused.told()))?;
    let name = name.clone();
    Ok(Some(EventScope { job, name }))
}

/// The scope of a token, in words.
fn scope(record: &TokenRecord) -> String {
    match &record.event {
        Some(event) => format!("for the event {} of {}", event.name, event.job),
        None => format!("on {}", record.queues.join(", ")),
    }
}

/// One token of the list.
fn line(record: &TokenRecord, now: Timestamp) -> String {
    let state = match record.revoked_at {
        Some(at) => format!("revoked {at}"),
        None if record.expires_at <= now => "expired".to_owned(),
        None => format!("until {}", record.expires_at),
    };
    format!(
        "{}  {:<6}  {}  {}  {state}",
        record.jti,
        record.role,
        record.subject,
        match &record.event {
            Some(event) => format!("event {} of {}", event.name, event.job),
            None => record.queues.join(","),
        }
    )
}
