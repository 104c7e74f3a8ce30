//! Mail: single messages and mailboxes.

use std::io::BufRead;

use mail_parser::{Address, MessageParser};

use crate::error::MemoryError;
use crate::limits::SOURCE_PIECE_BYTES_MAX;
use crate::message::Message;
use crate::source::chunk::split_if_long;
use crate::source::content::{ReadLineError, read_line};
use crate::source::{ReadOptions, moment};

/// The error for bytes that are not a mail.
const NO_MAIL: &str = "it is not a mail: it has no headers such as `From: …`";

/// Reads the message of one mail.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the bytes are not a mail.
pub fn read_mail(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    let message = message(bytes, options).ok_or_else(|| MemoryError::invalid(name, NO_MAIL))?;
    Ok(vec![message])
}

/// Reads the messages of a mailbox one by one. A malformed mail gives [`MemoryError::Invalid`] with its number.
pub struct Mbox<R> {
    reader: R,
    name: String,
    options: ReadOptions,
    /// The number of the last mail that was read, from 1.
    number: usize,
    /// Whether the `From ` line of the next mail has been read.
    is_begun: bool,
}

impl<R: BufRead> Mbox<R> {
    /// Reads mails from `reader`. `name` is used in errors.
    pub fn new(name: &str, reader: R, options: &ReadOptions) -> Mbox<R> {
        Mbox {
            reader,
            name: name.to_owned(),
            options: options.clone(),
            number: 0,
            is_begun: false,
        }
    }

    /// Reads the bytes of the next mail. Skips everything before the first `From ` line.
    fn next_mail(&mut self) -> Result<Option<Vec<u8>>, ReadLineError> {
        let mut mail = Vec::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            if !read_line(&mut self.reader, &mut line)? {
                let is_last = std::mem::take(&mut self.is_begun);
                return Ok(is_last.then_some(mail));
            }
            if line.starts_with(b"From ") {
                if std::mem::replace(&mut self.is_begun, true) {
                    return Ok(Some(mail));
                }
            } else if self.is_begun {
                if mail.len() > SOURCE_PIECE_BYTES_MAX {
                    return Err(ReadLineError::TooLong);
                }
                mail.extend_from_slice(unquoted(&line));
            }
        }
    }
}

/// Restores a line of a mail in a mailbox: `>From ` becomes `From `, and `>>From ` becomes `>From `.
fn unquoted(line: &[u8]) -> &[u8] {
    let marks = line.iter().take_while(|&&byte| byte == b'>').count();
    if marks > 0 && line[marks..].starts_with(b"From ") {
        &line[1..]
    } else {
        line
    }
}

impl<R: BufRead> Iterator for Mbox<R> {
    type Item = Result<Message, MemoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.number += 1;
        let read = self.next_mail();
        let place = format!("mail {}", self.number);
        let mail = match read {
            Ok(mail) => mail?,
            Err(error @ ReadLineError::TooLong) => {
                return Some(Err(MemoryError::unread(&self.name, place, error.to_string())));
            }
            Err(ReadLineError::System(error)) => {
                return Some(Err(MemoryError::invalid(&self.name, error.to_string())));
            }
        };
        let Some(message) = message(&mail, &self.options) else {
            return Some(Err(MemoryError::unread(&self.name, place, NO_MAIL)));
        };
        Some(Ok(Message {
            place: Some(place),
            ..message
        }))
    }
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
        ..Message::default()
    })
}

/// Writes each address as `Name <address>`, or the one part that it has.
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

/// Removes quotations of other mails, because those mails are read themselves.
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
        let read = |text: &str| -> Result<Vec<Message>, MemoryError> {
            Mbox::new("x.mbox", text.as_bytes(), &ReadOptions::default()).collect()
        };
        assert_eq!(read(&mailbox).expect("reads").len(), 2);
        let quoted = "From ada\nSubject: x\n\n>From Paris.\n> >From\n\nFrom bob\n\n";
        let error = read(quoted).expect_err("the second has no headers").to_string();
        assert!(error.starts_with("x.mbox, mail 2: "), "{error}");
        let mut mails = Mbox::new("x.mbox", quoted.as_bytes(), &ReadOptions::default());
        assert_eq!(
            mails.next_mail().expect("reads"),
            Some(b"Subject: x\n\nFrom Paris.\n> >From\n\n".to_vec())
        );
        let error = read_mail("x.eml", b"", &ReadOptions::default()).expect_err("empty");
        assert!(error.to_string().contains("not a mail"), "{error}");
    }
}
