//! Mail: single messages and mailboxes.
//!
//! A mail becomes the message of its sender, a message of each person whom it quotes and who is not read elsewhere in
//! the mailbox, and the messages of the mails that are attached to it.

mod archive;
mod attribution;
mod calendar;
pub(super) mod charset;
mod flowed;
pub(super) mod html;
pub mod mbox;
mod parts;
mod quotes;

use std::collections::VecDeque;
use std::io::BufRead;

use chrono::NaiveDateTime;
use mail_parser::{Address, HeaderValue, MessageParser};

use crate::error::MemoryError;
use crate::message::{Message, Moment};
use crate::source::chunk::split_if_long;
use crate::source::content::ReadLineError;
use crate::source::{Item, ReadOptions, moment};
use archive::{Archive, Names};
use mbox::{RawMail, RawMails};
use parts::Parts;
use quotes::Words;

/// The error for bytes that are not a mail.
const NO_MAIL: &str = "it is not a mail: it has no headers such as `From: …`";

/// Depth of mails in mails at most. Deeper ones are not read.
const ATTACHED_DEPTH_MAX: usize = 8;

/// The flag of Thunderbird for a mail that was deleted and is not removed from its file yet.
const EXPUNGED: u32 = 0x8;

/// The times that programs write above quotations, in the zone of whoever quotes.
const QUOTED_TIMES: [&str; 5] = [
    "%a, %b %d, %Y at %I:%M %p",
    "%A, %B %d, %Y %I:%M %p",
    "%A, %B %d, %Y %I:%M:%S %p",
    "%A, %d %B %Y %H:%M",
    "%d %B %Y %H:%M",
];

/// Reads the messages of one mail.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the bytes are not a mail.
pub fn read_mail(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    // The mails in the files of some programs begin with a `From ` line.
    let end = bytes
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(0, |end| end + 1);
    let (from_line, bytes) = match mbox::is_from_line(&bytes[..end]) {
        true => (bytes[..end].trim_ascii_end().to_vec(), &bytes[end..]),
        false => (Vec::new(), bytes),
    };
    let mail = RawMail {
        from_line,
        bytes: bytes.to_vec(),
        line: 1,
    };
    let messages = Reading::new(options).messages(&mail, "mail 1", 0);
    messages.ok_or_else(|| MemoryError::invalid(name, NO_MAIL))
}

/// Whether a text begins with the `From ` line of a mailbox.
pub fn is_mailbox(beginning: &[u8]) -> bool {
    let line = beginning.trim_ascii_start().split(|&byte| byte == b'\n').next();
    line.is_some_and(mbox::is_from_line)
}

/// Whether a text begins with the headers of a mail: one that only mails have, and another.
pub fn is_mail(beginning: &[u8]) -> bool {
    let mut names = Vec::new();
    for line in beginning.split(|&byte| byte == b'\n').take(40) {
        let line = line.trim_ascii_end();
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            continue;
        }
        if !mbox::is_header(line) {
            break;
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or_default();
        names.push(String::from_utf8_lossy(&line[..colon]).to_lowercase());
    }
    let own = [
        "return-path",
        "received",
        "message-id",
        "delivered-to",
        "mime-version",
        "x-mozilla-status",
    ];
    names.len() >= 2 && names.iter().any(|name| own.contains(&name.as_str()))
}

/// Reads the messages of a mailbox. A mail that cannot be read gives [`MemoryError::Unread`] with its number.
pub struct Mbox<R> {
    mails: RawMails<R>,
    name: String,
    reading: Reading,
    /// The number of the last mail that was read, from 1.
    number: usize,
    /// The messages of that mail that are not taken yet.
    ahead: VecDeque<Message>,
}

impl<R: BufRead> Mbox<R> {
    /// Reads mails from `reader`. `name` is used in errors.
    pub fn new(name: &str, reader: R, options: &ReadOptions) -> Mbox<R> {
        Mbox {
            mails: RawMails::new(reader),
            name: name.to_owned(),
            reading: Reading::new(options),
            number: 0,
            ahead: VecDeque::new(),
        }
    }
}

impl<R: BufRead> Iterator for Mbox<R> {
    type Item = Item;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(message) = self.ahead.pop_front() {
                return Some(Ok(message));
            }
            self.number += 1;
            let place = format!("mail {}", self.number);
            let mail = match self.mails.next_mail() {
                Ok(mail) => mail?,
                Err(error @ ReadLineError::TooLong) => {
                    return Some(Err(MemoryError::unread(&self.name, place, error.to_string())));
                }
                Err(ReadLineError::System(error)) => {
                    return Some(Err(MemoryError::invalid(&self.name, error.to_string())));
                }
            };
            match self.reading.messages(&mail, &place, 0) {
                Some(messages) => self.ahead.extend(messages),
                None => {
                    let place = format!("{place} at line {}", mail.line);
                    return Some(Err(MemoryError::unread(&self.name, place, NO_MAIL)));
                }
            }
        }
    }
}

/// The reading of mails, one after another.
struct Reading {
    options: ReadOptions,
    parser: MessageParser,
    archive: Archive,
}

/// The subject of a mail, and the names by which its thread is found.
fn names_of<'m>(mail: &'m mail_parser::Message<'_>) -> (Option<String>, Names<'m>) {
    let subject = mail.subject().map(|subject| subject.trim().to_owned());
    let subject = subject.filter(|subject| !subject.is_empty());
    let references = ids(mail.references())
        .into_iter()
        .chain(ids(mail.in_reply_to()))
        .collect();
    let names = Names {
        id: mail.message_id(),
        references,
        subject: mail.thread_name().filter(|name| !name.is_empty()),
        is_reply: subject
            .as_deref()
            .is_some_and(|subject| Some(subject.len()) != mail.thread_name().map(str::len)),
    };
    (subject, names)
}

impl Reading {
    fn new(options: &ReadOptions) -> Reading {
        Reading {
            options: options.clone(),
            parser: MessageParser::default(),
            archive: Archive::default(),
        }
    }

    /// Makes the messages of a mail; none if the mail was deleted. `None` if it is not a mail.
    fn messages(&mut self, raw: &RawMail, place: &str, depth: usize) -> Option<Vec<Message>> {
        let bytes = in_utf_8(&raw.bytes);
        // The headers of a mail without any are those of its `From ` line.
        let headerless = (!raw.from_line.is_empty() && !begins_with_header(&bytes))
            .then(|| [&b"\n"[..], bytes.trim_ascii_start()].concat());
        let bytes = headerless.as_deref().unwrap_or(&bytes);
        let mail = self.parser.parse(bytes);
        let has_headers = mail.as_ref().is_some_and(|mail| !mail.headers().is_empty());
        if !has_headers && raw.from_line.is_empty() {
            return None;
        }
        let mail = mail?;
        if mail.header_raw("X-Mozilla-Status").is_some_and(is_expunged) {
            return Some(Vec::new());
        }
        let parts = Parts::of(&mail);
        let (from_sender, from_moment) = sender_of(&raw.from_line, &self.options);
        let sender = mail.from().or(mail.sender()).into_iter().flat_map(people).next();
        let sender = sender.or(from_sender).map(without_at);
        let recipients: Vec<String> = mail
            .all_to()
            .chain(mail.all_cc())
            .flat_map(people)
            .map(without_at)
            .collect();
        sender
            .iter()
            .chain(&recipients)
            .for_each(|person| self.archive.meet(person));
        let (subject, names) = names_of(&mail);
        let answered = self.archive.sender_of(&names);
        let thread = self.archive.thread(&names, sender.as_deref());
        let at = mail
            .date()
            .filter(|date| date.is_valid())
            .and_then(|date| moment::parse(&date.to_rfc3339(), self.options.zone_minutes))
            .or(from_moment);
        let mut told = quotes::words(&parts.text()).into_iter();
        let own = told.next().unwrap_or_default();
        let text = match own.text.is_empty() {
            true => subject.clone().unwrap_or_default(),
            false => own.text,
        };
        let mut messages = vec![Message {
            text_chunks: split_if_long(&text, self.options.chunk_characters),
            speaker: sender,
            recipients,
            subject: subject.clone(),
            tags: Vec::new(),
            moment: at,
            id: mail.message_id().map(str::to_owned),
            thread: thread.clone(),
            place: Some(place.to_owned()),
        }];
        for words in told {
            let text = self.archive.without_known(&words.text);
            if text.is_empty() {
                continue;
            }
            self.archive.remember(&text);
            messages.push(Message {
                text_chunks: split_if_long(&text, self.options.chunk_characters),
                speaker: self.author(&words, answered.as_deref()),
                subject: words.subject.clone().or_else(|| subject.clone()),
                moment: words
                    .date
                    .and_then(|date| quoted_moment(&date, at, &self.options)),
                thread: thread.clone(),
                place: Some(format!("{place}, quotation {}", messages.len())),
                ..Message::default()
            });
        }
        self.archive.remember(&text);
        if depth < ATTACHED_DEPTH_MAX {
            for (number, attached) in (1..).zip(parts.mails) {
                let attached = RawMail {
                    bytes: attached,
                    ..RawMail::default()
                };
                let place = format!("{place}, attached mail {number}");
                messages.extend(self.messages(&attached, &place, depth + 1).into_iter().flatten());
            }
        }
        Some(messages)
    }

    /// Who wrote quoted words: whom they name, or else the sender of the mail that is answered.
    fn author(&self, words: &Words, answered: Option<&str>) -> Option<String> {
        match &words.author {
            Some(author) => Some(self.archive.person(author)),
            None if words.depth == 1 => answered.map(str::to_owned),
            None => None,
        }
    }
}

/// The bytes of a mail, with its headers in UTF-8. Programs of the time before RFC 2047 wrote them in the encoding of
/// their machine.
fn in_utf_8(bytes: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    let end = bytes
        .windows(2)
        .position(|pair| pair == b"\n\n")
        .or_else(|| bytes.windows(4).position(|four| four == b"\r\n\r\n"));
    let (headers, body) = bytes.split_at(end.unwrap_or(bytes.len()));
    if std::str::from_utf8(headers).is_ok() {
        return bytes.into();
    }
    [charset::decode(headers, None).as_bytes(), body].concat().into()
}

fn begins_with_header(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    mbox::is_header(line)
}

fn is_expunged(status: &str) -> bool {
    u32::from_str_radix(status.trim(), 16).is_ok_and(|status| status & EXPUNGED != 0)
}

fn ids<'m>(value: &'m HeaderValue<'m>) -> Vec<&'m str> {
    match value {
        HeaderValue::Text(id) => vec![id.as_ref()],
        HeaderValue::TextList(ids) => ids.iter().map(AsRef::as_ref).collect(),
        _ => Vec::new(),
    }
}

/// The sender and the time of a `From ` line.
fn sender_of(from_line: &[u8], options: &ReadOptions) -> (Option<String>, Option<Moment>) {
    let line = String::from_utf8_lossy(from_line);
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let is_weekday = |word: &&str| {
        let word = word.trim_end_matches(',');
        word.len() == 3 && "Mon Tue Wed Thu Fri Sat Sun".contains(word)
    };
    let Some(date) = words.iter().position(is_weekday) else {
        return (None, None);
    };
    let sender = words[..date].join(" ").replace(" at ", "@");
    let at = NaiveDateTime::parse_from_str(&words[date..].join(" "), "%a %b %d %H:%M:%S %Y").ok();
    (
        (sender != "-" && !sender.is_empty()).then_some(sender),
        at.and_then(|at| moment::parse(&at.to_string(), options.zone_minutes)),
    )
}

/// The time of quoted words, in the zone of the mail that quotes them.
fn quoted_moment(text: &str, quoted_in: Option<Moment>, options: &ReadOptions) -> Option<Moment> {
    let zone = quoted_in
        .and_then(|moment| moment.zone_minutes)
        .or(options.zone_minutes);
    let text = text.replace(['\u{202f}', '\u{a0}'], " ");
    moment::parse(&text, zone).or_else(|| {
        let mut forms = QUOTED_TIMES.iter();
        let at = forms.find_map(|form| NaiveDateTime::parse_from_str(text.trim(), form).ok())?;
        moment::parse(&at.to_string(), zone)
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

/// Restores an address that an archive of a mailing list hides: `ada at bees.example (Ada King)`.
fn without_at(person: String) -> String {
    if person.contains('@') || !person.contains(" at ") {
        return person;
    }
    let (name, address) = match (person.split_once(" <"), person.split_once(" (")) {
        (Some((name, address)), _) => (Some(name), address.trim_end_matches('>')),
        (None, Some((address, name))) => (Some(name.trim_end_matches(')')), address),
        (None, None) => (None, person.as_str()),
    };
    let address = Some(address.replacen(" at ", "@", 1));
    attribution::written(name.map(str::to_owned), address).unwrap_or_default()
}

#[cfg(test)]
mod tests;
