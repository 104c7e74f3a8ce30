//! Mail: single messages and mailboxes.

use mail_parser::mailbox::mbox::MessageIterator;
use mail_parser::{Address, MessageParser};

use crate::error::MemoryError;
use crate::message::Message;
use crate::source::chunk::split_if_long;
use crate::source::{ReadOptions, moment};

/// The message of one mail.
///
/// # Errors
///
/// [`MemoryError::Invalid`] where the bytes are no mail.
pub fn read_mail(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    let message = message(bytes, options)
        .ok_or_else(|| MemoryError::invalid(name, "it is no mail: it has no headers such as `From: …`"))?;
    Ok(vec![message])
}

/// The messages of a mailbox.
///
/// # Errors
///
/// [`MemoryError::Invalid`] with the number of a mail that is none.
pub fn read_mbox(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    let mut messages = Vec::new();
    for (number, mail) in MessageIterator::new(bytes).enumerate() {
        let place = || format!("{name}, mail {}", number + 1);
        let mail = mail.map_err(|error| MemoryError::invalid(place(), error.to_string()))?;
        let message = message(mail.contents(), options).ok_or_else(|| {
            MemoryError::invalid(place(), "it is no mail: it has no headers such as `From: …`")
        })?;
        messages.push(message);
    }
    Ok(messages)
}

fn message(bytes: &[u8], options: &ReadOptions) -> Option<Message> {
    let mail = MessageParser::default().parse(bytes)?;
    if mail.headers().is_empty() {
        return None;
    }
    let text = mail.body_text(0).unwrap_or_default();
    let text = without_quotes(&text);
    let subject = mail.subject().map(|subject| subject.trim().to_owned());
    Some(Message {
        text_chunks: split_if_long(
            if text.is_empty() {
                subject.as_deref().unwrap_or_default()
            } else {
                &text
            },
            options.chunk_characters,
        ),
        speaker: mail.from().into_iter().flat_map(people).next(),
        recipients: mail.to().into_iter().chain(mail.cc()).flat_map(people).collect(),
        subject: subject.filter(|subject| !subject.is_empty()),
        tags: Vec::new(),
        moment: mail
            .date()
            .filter(|date| date.is_valid())
            .and_then(|date| moment::parse(&date.to_rfc3339(), options.zone_minutes)),
    })
}

/// `Name <address>`, or what there is of it.
fn people(address: &Address<'_>) -> Vec<String> {
    let written = address
        .iter()
        .filter_map(|one| match (one.name(), one.address()) {
            (Some(name), Some(address)) if name != address => Some(format!("{name} <{address}>")),
            (_, Some(address)) => Some(address.to_owned()),
            (Some(name), None) => Some(name.to_owned()),
            (None, None) => None,
        });
    written.collect()
}

/// The text without what it quotes of other mails: they have been read, or will be.
fn without_quotes(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_quote = |at: usize| lines.get(at).is_some_and(|line| line.starts_with('>'));
    let introduces = |at: usize| {
        let line = lines[at].trim_end();
        line.ends_with(':')
            && line.contains('@') | line.starts_with("On ")
            && (is_quote(at + 1) || is_quote(at + 2))
    };
    let kept = (0..lines.len())
        .filter(|&at| !is_quote(at) && !introduces(at))
        .map(|at| lines[at]);
    kept.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = "From: Ada King <ada@bees.example>\r\nTo: Bob <bob@bees.example>, c@bees.example\r\n\
        Subject: =?utf-8?Q?Bees_=26_drums?=\r\nDate: Mon, 1 May 2023 09:30:00 +0200\r\n\r\n\
        They hum.\r\n\r\nOn Sunday Bob wrote:\r\n> Do they?\r\n";

    #[test]
    fn reads_a_mail() {
        let messages = read_mail("x.eml", MAIL.as_bytes(), &ReadOptions::default()).expect("reads");
        let message = &messages[0];
        assert_eq!(message.speaker.as_deref(), Some("Ada King <ada@bees.example>"));
        assert_eq!(message.recipients, ["Bob <bob@bees.example>", "c@bees.example"]);
        assert_eq!(message.subject.as_deref(), Some("Bees & drums"));
        assert_eq!(message.text(), "They hum.");
        let moment = message.moment.expect("a date");
        assert_eq!(moment.at.to_string(), "2023-05-01T07:30:00.000Z");
        assert_eq!(moment.zone_minutes, Some(120));
    }

    #[test]
    fn reads_a_mailbox() {
        let mailbox = format!("From ada Mon May  1 2023\r\n{MAIL}\r\nFrom bob Mon May  1 2023\r\n{MAIL}");
        let messages = read_mbox("x.mbox", mailbox.as_bytes(), &ReadOptions::default()).expect("reads");
        assert_eq!(messages.len(), 2);
        let error = read_mail("x.eml", b"", &ReadOptions::default()).expect_err("empty");
        assert!(error.to_string().contains("no mail"), "{error}");
    }
}
