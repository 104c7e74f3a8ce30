//! A mailbox in one file: the mails behind its `From ` lines.

use std::collections::VecDeque;
use std::io::{BufRead, Cursor, Read};

use crate::limits::SOURCE_PIECE_BYTES_MAX;
use crate::source::content::{ReadLineError, read_line, skip_line};

/// Wrong `Content-Length` headers of a mailbox after which no more are believed. Looking behind a body costs a second
/// reading of it.
const WRONG_LENGTHS_MAX: usize = 8;

/// Bytes of the headers of a mail at most by which a mail is recognised in a mailbox without `From ` lines.
const BARE_HEADERS_BYTES_MAX: usize = 64 << 10;

/// The headers that programs of delivery put before all others, by which a mail begins in a mailbox without `From ` lines.
const DELIVERY_HEADERS: [&str; 2] = ["return-path", "received"];

/// The date in the `From ` lines of `git format-patch`, which is the same in all.
const PATCH_DATE: &[u8] = b"Mon Sep 17 00:00:00 2001";

/// One mail of a mailbox.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct RawMail {
    /// The `From ` line before it without its end, if there is one.
    pub from_line: Vec<u8>,
    /// Its headers and its body.
    pub bytes: Vec<u8>,
    /// The number of its first line in the mailbox, from 1.
    pub line: usize,
}

/// Cuts a mailbox into mails.
///
/// A `From ` line begins a mail only if a date stands at its end, as a sentence may begin with the word. So says
/// `Content-Length`, too, if the next mail or the end stands where it leads.
pub struct RawMails<R> {
    reader: Pushback<R>,
    /// The lines that are read and not taken yet.
    ahead: VecDeque<Vec<u8>>,
    /// The number of lines that are taken.
    lines: usize,
    /// The `From ` line of the next mail.
    from_line: Option<Vec<u8>>,
    is_begun: bool,
    /// Whether the mailbox is a series of patches; in others, the `From ` line of a patch is part of a body.
    is_patches: bool,
    wrong_lengths: usize,
    /// The name of the first header of the first mail, if no `From ` line stands before it.
    first_header: String,
}

impl<R: BufRead> RawMails<R> {
    /// Cuts the mailbox that `reader` reads.
    pub fn new(reader: R) -> RawMails<R> {
        RawMails {
            reader: Pushback {
                pushed: Vec::new(),
                reader,
            },
            ahead: VecDeque::new(),
            lines: 0,
            from_line: None,
            is_begun: false,
            is_patches: false,
            wrong_lengths: 0,
            first_header: String::new(),
        }
    }

    /// Reads the next mail; `None` at the end. Of a mail that is too long, the rest is passed over.
    pub(in crate::source) fn next_mail(&mut self) -> Result<Option<RawMail>, ReadLineError> {
        let mut mail = RawMail {
            from_line: self.from_line.take().unwrap_or_default(),
            bytes: Vec::new(),
            line: self.lines + 1,
        };
        let mut is_after_empty = true;
        let mut is_in_headers = true;
        let mut bare = Bare::default();
        let mut is_too_long = false;
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let mut line = Vec::new();
        loop {
            match self.take_line(&mut line) {
                Ok(true) => {}
                Ok(false) => break,
                Err(ReadLineError::TooLong) => {
                    is_too_long = true;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if line.starts_with(b"From ") && self.is_separator(&line, is_after_empty)? {
                let is_mail = !mail.from_line.is_empty() || !mail.bytes.trim_ascii().is_empty();
                if is_first && !is_mail {
                    self.is_patches = line.trim_ascii_end().ends_with(PATCH_DATE);
                    mail.from_line = line.trim_ascii_end().to_vec();
                    mail.bytes.clear();
                    mail.line = self.lines + 1;
                    continue;
                }
                self.from_line = Some(line.trim_ascii_end().to_vec());
                return self.complete(mail, is_too_long);
            }
            let may_begin = mail.from_line.is_empty() && is_after_empty && !is_in_headers;
            if may_begin && bare.may_end_before(&line, &self.first_header) && self.begins_bare_mail(&line)? {
                self.reader.push(line);
                self.lines -= 1;
                return self.complete(mail, is_too_long);
            }
            is_after_empty = line.trim_ascii_end().is_empty();
            if is_first
                && is_after_empty
                && mail.from_line.is_empty()
                && mail.bytes.is_empty()
                && !is_too_long
            {
                // The first mail has not begun yet.
                mail.line = self.lines + 1;
                continue;
            }
            if mail.from_line.is_empty() && !is_in_headers {
                bare.see(&line);
            }
            if is_too_long || mail.bytes.len() + line.len() > SOURCE_PIECE_BYTES_MAX {
                is_too_long = true;
                continue;
            }
            mail.bytes.extend_from_slice(unquoted(&line));
            if is_in_headers && is_after_empty {
                is_in_headers = false;
                if mail.from_line.is_empty() {
                    bare = Bare::of(&mail.bytes);
                    if is_first {
                        self.first_header = header_name(&mail.bytes);
                    }
                }
                self.read_body(&mut mail.bytes)?;
            }
        }
        match mail.from_line.is_empty() && mail.bytes.trim_ascii().is_empty() && !is_too_long {
            true => Ok(None),
            false => self.complete(mail, is_too_long),
        }
    }

    /// Whether a line begins the headers of a mail: up to the next empty line there are headers alone, among them those that every
    /// mail has. procmail separates mails so that came to it without a `From ` line.
    fn begins_bare_mail(&mut self, line: &[u8]) -> Result<bool, ReadLineError> {
        while let Some(ahead) = self.ahead.pop_back() {
            self.reader.push(ahead);
        }
        let mut block = line.to_vec();
        let mut is_headers = true;
        let mut next = Vec::new();
        while is_headers && block.len() < BARE_HEADERS_BYTES_MAX {
            next.clear();
            let is_line = match read_line(&mut self.reader, &mut next) {
                Ok(is_line) => is_line,
                Err(ReadLineError::TooLong) => false,
                Err(error) => return Err(error),
            };
            block.extend_from_slice(&next);
            if !is_line || next.trim_ascii_end().is_empty() {
                break;
            }
            is_headers = is_header(&next) || next.starts_with(b" ") || next.starts_with(b"\t");
        }
        let lines = block.split(|&byte| byte == b'\n');
        let names: Vec<String> = lines.filter(|line| is_header(line)).map(header_name).collect();
        self.reader.push(block.split_off(line.len()));
        let has = |name: &str| names.iter().any(|found| found == name);
        Ok(is_headers && has("from") && has("message-id") && has("date"))
    }

    fn complete(&self, mail: RawMail, is_too_long: bool) -> Result<Option<RawMail>, ReadLineError> {
        match is_too_long {
            true => Err(ReadLineError::TooLong),
            false => Ok(Some(mail)),
        }
    }

    /// Reads a body whose length the headers in `mail` tell, if the next mail or the end stands behind it.
    fn read_body(&mut self, mail: &mut Vec<u8>) -> Result<(), ReadLineError> {
        let Some(length) = content_length(mail) else {
            return Ok(());
        };
        if self.wrong_lengths >= WRONG_LENGTHS_MAX
            || length > SOURCE_PIECE_BYTES_MAX - mail.len().min(SOURCE_PIECE_BYTES_MAX)
        {
            return Ok(());
        }
        while let Some(line) = self.ahead.pop_back() {
            self.reader.push(line);
        }
        let mut body = Vec::new();
        self.reader.by_ref().take(length as u64).read_to_end(&mut body)?;
        let is_whole = body.len() == length;
        // The next `From ` line stands behind an empty line or none.
        let mut after = Vec::new();
        let mut lines = Vec::new();
        while is_whole && lines.len() < 3 {
            after.clear();
            match read_line(&mut self.reader, &mut after) {
                Ok(true) => lines.push(after.clone()),
                Ok(false) => break,
                Err(ReadLineError::TooLong) => {
                    lines.push(after.clone());
                    break;
                }
                Err(error) => return Err(error),
            }
            if !after.trim_ascii_end().is_empty() {
                break;
            }
        }
        let next = lines.last().map_or(&b""[..], Vec::as_slice);
        let is_landed = is_whole && (next.trim_ascii_end().is_empty() || is_from_line(next));
        let mut unread: Vec<u8> = lines.concat();
        if is_landed {
            self.lines += body.iter().filter(|&&byte| byte == b'\n').count();
            append_unquoted(mail, &body);
            assert!(mail.len() <= SOURCE_PIECE_BYTES_MAX, "mails have a limit");
        } else {
            self.wrong_lengths += 1;
            body.append(&mut unread);
            unread = body;
        }
        self.reader.push(unread);
        Ok(())
    }

    /// Whether a line that begins with `From ` begins a mail.
    fn is_separator(&mut self, line: &[u8], is_after_empty: bool) -> Result<bool, ReadLineError> {
        if !is_from_line(line) {
            return Ok(false);
        }
        let is_patch = line.trim_ascii_end().ends_with(PATCH_DATE);
        if is_patch && self.lines > 1 && !self.is_patches {
            return Ok(false);
        }
        // Some programs write no empty line before the next mail. Its headers tell it from a quotation.
        if is_after_empty {
            return Ok(true);
        }
        if self.ahead.is_empty() {
            let mut next = Vec::new();
            match read_line(&mut self.reader, &mut next) {
                Ok(true) => self.ahead.push_back(next),
                Ok(false) => {}
                Err(ReadLineError::TooLong) => {
                    skip_line(&mut self.reader)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.ahead.front().is_some_and(|next| is_header(next)))
    }

    /// Takes the next line into `line`. Returns `false` at the end.
    fn take_line(&mut self, line: &mut Vec<u8>) -> Result<bool, ReadLineError> {
        self.lines += 1;
        if let Some(ahead) = self.ahead.pop_front() {
            assert!(self.ahead.is_empty(), "one line is read ahead");
            *line = ahead;
            return Ok(true);
        }
        line.clear();
        match read_line(&mut self.reader, line) {
            Err(ReadLineError::TooLong) => {
                skip_line(&mut self.reader)?;
                Err(ReadLineError::TooLong)
            }
            other => other,
        }
    }
}

/// The state of reading a mail without a `From ` line. Another mail may begin behind it.
#[derive(Debug, Default)]
struct Bare {
    /// The line that ends the parts of a mail; `None` if it has no parts. A part may be another mail.
    parts_end: Option<Vec<u8>>,
    /// Whether it has parts that have not ended.
    is_in_parts: bool,
    /// Whether its lines are encoded, so that one that looks like a header is more likely a quoted one.
    is_encoded: bool,
}

impl Bare {
    /// Looks at the headers of a mail.
    fn of(headers: &[u8]) -> Bare {
        // A long header goes on in the next line, behind a blank.
        let headers = String::from_utf8_lossy(headers).replace('\r', "");
        let headers = headers.replace("\n ", " ").replace("\n\t", " ");
        let value = |name: &str| {
            let mut lines = headers.lines().filter_map(|line| line.split_once(':'));
            let line = lines.find(|(found, _)| found.trim().eq_ignore_ascii_case(name));
            line.map_or("", |(_, value)| value.trim())
        };
        let content = value("content-type");
        // Both have the same length in bytes.
        let lower = content.to_ascii_lowercase();
        let has_parts = lower.starts_with("multipart/") || lower.starts_with("message/");
        let boundary = lower
            .find("boundary=")
            .map(|at| &content[at + "boundary=".len()..]);
        let boundary = boundary.and_then(|boundary| match boundary.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => boundary.split([';', ' ']).next(),
        });
        Bare {
            parts_end: boundary
                .filter(|_| has_parts)
                .map(|boundary| format!("--{boundary}--").into_bytes()),
            is_in_parts: has_parts,
            is_encoded: value("content-transfer-encoding").eq_ignore_ascii_case("quoted-printable"),
        }
    }

    /// Whether a line may be the first header of the next mail, in a mailbox whose first mail begins with this header.
    fn may_end_before(&self, line: &[u8], first_header: &str) -> bool {
        if self.is_in_parts || !is_header(line) {
            return false;
        }
        let name = header_name(line);
        name == first_header || !self.is_encoded && DELIVERY_HEADERS.contains(&name.as_str())
    }

    /// Looks at a line of the body.
    fn see(&mut self, line: &[u8]) {
        let line = line.trim_ascii_end();
        self.is_in_parts &= match &self.parts_end {
            Some(end) => line != end,
            None => !(line.len() > 4 && line.starts_with(b"--") && line.ends_with(b"--")),
        };
    }
}

/// A reader that takes bytes back.
struct Pushback<R> {
    /// Lines that were taken back and are not read again yet. The last one is read first.
    pushed: Vec<Cursor<Vec<u8>>>,
    reader: R,
}

impl<R: BufRead> Pushback<R> {
    /// Takes bytes back, before those that were taken back earlier.
    fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.pushed.push(Cursor::new(bytes));
        }
    }

    /// The bytes to read next that were taken back.
    fn next_pushed(&mut self) -> Option<&mut Cursor<Vec<u8>>> {
        let is_read = |pushed: &mut Cursor<Vec<u8>>| pushed.position() >= pushed.get_ref().len() as u64;
        while self.pushed.pop_if(is_read).is_some() {}
        self.pushed.last_mut()
    }
}

impl<R: BufRead> Read for Pushback<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.next_pushed() {
            Some(pushed) => pushed.read(buffer),
            None => self.reader.read(buffer),
        }
    }
}

impl<R: BufRead> BufRead for Pushback<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        // Twice, because a borrow that is returned lasts through the other branch.
        if self.next_pushed().is_none() {
            return self.reader.fill_buf();
        }
        self.pushed.last_mut().map_or(Ok(&[]), BufRead::fill_buf)
    }

    fn consume(&mut self, amount: usize) {
        match self.next_pushed() {
            Some(pushed) => pushed.consume(amount),
            None => self.reader.consume(amount),
        }
    }
}

/// The value of `Content-Length` in the headers of a mail.
fn content_length(headers: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let mut lines = headers.split(|&byte| byte == b'\n');
    let line = lines.find(|line| line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME))?;
    std::str::from_utf8(&line[NAME.len()..]).ok()?.trim().parse().ok()
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

/// Appends a body whose length its mail tells. Some programs quote `From ` in it all the same, and formail does so without counting
/// the marks. A mark beside other lines with marks is that of a reply.
fn append_unquoted(mail: &mut Vec<u8>, body: &[u8]) {
    // Most bodies have no mark.
    if !body.contains(&b'>') {
        mail.extend_from_slice(body);
        return;
    }
    let mut lines = body.split_inclusive(|&byte| byte == b'\n').peekable();
    let mut is_after_mark = false;
    while let Some(line) = lines.next() {
        let is_before_mark = lines.peek().is_some_and(|next| next.starts_with(b">"));
        mail.extend_from_slice(match is_after_mark || is_before_mark {
            true => line,
            false => unquoted(line),
        });
        is_after_mark = line.starts_with(b">");
    }
}

/// Whether a line is `From `, a sender, and a date: a time and a year, or a month, a day and a year.
pub fn is_from_line(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"From ") else {
        return false;
    };
    // A sender may be written in the encoding of an old machine.
    let text = String::from_utf8_lossy(rest.trim_ascii_end());
    // UUCP adds the host from which the mail came.
    let text = text.split(" remote from ").next().unwrap_or(&text);
    let mut words = text.split_whitespace().rev().peekable();
    let is_number = |word: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_zone = |word: &str| {
        word.strip_prefix(['+', '-'])
            .is_some_and(|rest| is_number(rest, 4..=4))
            || (2..=5).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    let is_year = |word: &str| is_number(word, 4..=4) && ("1970".."2100").contains(&word);
    let is_clock = |word: &str| {
        let parts: Vec<&str> = word.split(':').collect();
        (2..=3).contains(&parts.len()) && parts.iter().all(|part| is_number(part, 1..=2))
    };
    // The end is `09:30:00 2023`, `09:30:00 +0200 2023`, `2023 09:30:00 +0200` or `May 1 2023`.
    let mut has_clock = false;
    let mut has_year = false;
    for _ in 0..4 {
        let Some(word) = words.peek() else { break };
        match *word {
            word if !has_clock && is_clock(word) => has_clock = true,
            word if !has_year && is_year(word) => has_year = true,
            word if is_zone(word) => {}
            _ => break,
        }
        words.next();
    }
    let day_and_month = (words.next(), words.next());
    let is_month = |word: &str| MONTHS.contains(&word);
    let has_day = match day_and_month {
        (Some(day), Some(month)) => {
            is_number(day, 1..=2) && is_month(month) || is_number(month, 1..=2) && is_month(day)
        }
        _ => false,
    };
    let has_weekday = words
        .next()
        .is_some_and(|word| WEEKDAYS.contains(&word.trim_end_matches(',')));
    has_year && has_day && (has_clock || has_weekday)
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Whether a line is a header such as `Subject: Bees`.
pub fn is_header(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return false;
    };
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    (1..=76).contains(&colon) && line[..colon].iter().all(is_letter)
}

/// The name of the header with which bytes begin, in small letters.
fn header_name(bytes: &[u8]) -> String {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
    String::from_utf8_lossy(name).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<String> {
        let mut mails = RawMails::new(text.as_bytes());
        let mut found = Vec::new();
        while let Some(mail) = mails.next_mail().expect("reads") {
            found.push(String::from_utf8(mail.bytes).expect("UTF-8"));
        }
        found
    }

    #[test]
    fn a_from_line_has_a_date() {
        for line in [
            "From ada Mon May  1 09:30:00 2023",
            "From ada@bees.example  Mon May  1 09:30 2023\r\n",
            "From ada at bees.example  Mon May  1 09:30:00 2023",
            "From - Mon May 01 09:30:00 2023\n",
            "From 1764@xxx Mon May 01 09:30:00 +0000 2023",
            "From ada Mon May  1 09:30:00 CEST 2023",
            "From ada Mon, 1 May 2023 09:30:00 +0200",
            "From ada Mon May  1 2023",
            "From MAILER-DAEMON Mon May  1 09:30:00 2023 remote from hive",
            "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001",
        ] {
            assert!(is_from_line(line.as_bytes()), "{line}");
        }
        assert!(is_from_line(b"From J\xfcrgen Mon May  1 09:30:00 2023"));
        for line in [
            "From the beginning, bees hummed.",
            "From Paris to London in May 2023",
            "From 09:30 on, they drum.",
            "From ada",
            "From ",
            "Fromage",
            "From now on: 12:30",
        ] {
            assert!(!is_from_line(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn sentences_and_patches_in_a_body_begin_no_mail() {
        let mailbox = "From ada Mon May  1 09:30:00 2023\nSubject: x\n\nFrom Paris.\n>From London.\n>>From Rome.\n\n\
            From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nFrom: Bob\n\n---\n\n\
            From bob Tue May  2 09:30:00 2023\nSubject: y\n\nHum.\n";
        let mails = cut(mailbox);
        assert_eq!(mails.len(), 2);
        assert!(
            mails[0].contains("\nFrom Paris.\nFrom London.\n>From Rome.\n"),
            "{}",
            mails[0]
        );
        let patches =
            "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nSubject: a\n\n1\n"
                .repeat(3);
        assert_eq!(cut(&patches).len(), 3);
    }

    #[test]
    fn mails_need_neither_headers_nor_empty_lines_between() {
        let mailbox = "From ada Mon May  1 09:30:00 2023\n\nOnly a text.\n\nFrom bob Tue May  2 09:30:00 2023\nSubject: y\n\nHum.\n\
            From cleo Tue May  2 09:31:00 2023\nSubject: z\n\nDrum.\nFrom bob Tue May  2 09:30:00 2023\nsaid Bob.\n";
        assert_eq!(
            cut(mailbox),
            [
                "\nOnly a text.\n\n",
                "Subject: y\n\nHum.\n",
                "Subject: z\n\nDrum.\nFrom bob Tue May  2 09:30:00 2023\nsaid Bob.\n"
            ]
        );
        assert_eq!(cut("Subject: one\n\nHum.\n"), ["Subject: one\n\nHum.\n"]);
        assert_eq!(cut("\n\n"), [""; 0]);
    }

    #[test]
    fn mails_of_procmail_without_from_lines_are_told_by_their_headers() {
        let mail = |number: u32, body: &str| {
            format!(
                "Return-Path: <a@b>\nDate: x\nFrom: a@b\nSubject: {number}\n\tand more\nMessage-ID: <{number}@b>\n\n{body}\n"
            )
        };
        let quoted = "See:\n\nFrom: Bob\nDate: x\nSubject: y\n\nHum.\n";
        let mailbox = [mail(1, quoted), mail(2, "Drum.\n\nDate: soon\n"), mail(3, "")].concat();
        let mails = cut(&mailbox);
        assert_eq!(mails.len(), 3, "{mails:?}");
        assert!(mails[0].contains("Hum.") && mails[1].contains("Date: soon") && mails[2].contains("<3@b>"));
        // The mail that another one has attached is a part of it.
        let attached = mail(4, "--x\nContent-Type: message/rfc822\n\n")
            .trim_end()
            .to_owned();
        let attached = attached.replace("Subject", "Content-Type: multipart/mixed; boundary=x\nSubject");
        let mailbox = format!(
            "{attached}\n\n{}\n--x--\n\n{}",
            mail(5, "Inner."),
            mail(6, "Last.")
        );
        let mails = cut(&mailbox);
        assert_eq!(mails.len(), 2, "{mails:?}");
        assert!(mails[0].contains("Inner.") && mails[1].contains("Last."));
        let mut lines = RawMails::new(mailbox.as_bytes());
        let begins = std::iter::from_fn(|| lines.next_mail().expect("reads")).map(|mail| mail.line);
        assert_eq!(begins.collect::<Vec<_>>(), [1, 23]);
    }

    #[test]
    fn a_mail_that_quotes_headers_is_one_without_from_lines_too() {
        let quoted = "From: Bob\nDate: x\nMessage-ID: <7@b>\nSubject: y\n\nHum.\n";
        let delivered = format!("Return-Path: <b>\n{quoted}");
        let digest =
            format!("Received: x\nFrom: a\nDate: x\nMessage-ID: <1@b>\n\nDigest.\n\n{quoted}\n{quoted}");
        assert_eq!(cut(&digest).len(), 1);
        assert_eq!(cut(&format!("{digest}\n{delivered}")).len(), 2);
        // A report of delivery. Its parts have parts, and its headers are folded.
        let report = format!(
            "Received: x\nFrom: a\nDate: x\nMessage-ID: <1@b>\nContent-Type:\n multipart/report;\n\tboundary=\"=_1 x\"\n\n\
                 --=_1 x\nContent-Type: multipart/mixed; boundary=y\n\n--y\n\n{delivered}\n--y--\n\n{delivered}\n--=_1 x--\nList footer\n"
        );
        assert_eq!(cut(&report).len(), 1);
        assert_eq!(cut(&format!("{report}\n{delivered}")).len(), 2);
        let encoded = "Received: x\nFrom: a\nContent-Transfer-Encoding: Quoted-Printable\n\nH=C3=BCm:\n\n";
        assert_eq!(cut(&format!("{encoded}{delivered}")).len(), 1);
        assert_eq!(cut(&format!("{encoded}Received: z\n{quoted}")).len(), 2);
    }

    #[test]
    fn empty_lines_before_the_first_mail_are_no_mail() {
        let mail = "Return-Path: <b>\nFrom: Bob\nDate: x\nMessage-ID: <7@b>\n\nHum.\n\n";
        assert_eq!(cut(&format!("\n\r\n{mail}{mail}")), [mail, mail]);
        let mailbox = format!("\n\n{mail}");
        let first = RawMails::new(mailbox.as_bytes()).next_mail().expect("reads");
        assert_eq!(first.map(|mail| mail.line), Some(3));
    }

    #[test]
    fn marks_of_formail_are_removed_and_those_of_replies_stay() {
        let body = |body: &str| {
            let mut mail = Vec::new();
            append_unquoted(&mut mail, body.as_bytes());
            String::from_utf8(mail).expect("UTF-8")
        };
        assert_eq!(
            body("Hum.\n\n>From ada\nand so on\n>From bob"),
            "Hum.\n\nFrom ada\nand so on\nFrom bob"
        );
        let reply = "Ada wrote:\n>From here,\n>they hum.\nI know.\n";
        assert_eq!(body(reply), reply);
        assert_eq!(body(""), "");
        let mailbox = "From ada Mon May  1 09:30:00 2023\nContent-Length: 26\n\nHum.\n\n>From Rome.\nThey hum.\n\n\
            From bob Tue May  2 09:30:00 2023\nSubject: y\n\nEnd.\n";
        let mails = cut(mailbox);
        assert_eq!(mails.len(), 2);
        assert!(mails[0].contains("\nFrom Rome.\n"), "{}", mails[0]);
    }

    #[test]
    fn a_length_counts_where_it_leads_to_the_next_mail() {
        let inner = "Hum.\n\nFrom eve Wed May  3 09:30:00 2023\nSubject: inner\n\nDrum.\n";
        let mail = |length: usize| {
            format!(
                "From ada Mon May  1 09:30:00 2023\nContent-Length: {length}\nSubject: x\n\n{inner}\n\
                 From bob Tue May  2 09:30:00 2023\nSubject: y\n\nEnd.\n"
            )
        };
        assert_eq!(cut(&mail(inner.len())).len(), 2);
        for wrong in [0, 3, inner.len() + 7, 1_000_000, usize::MAX] {
            assert_eq!(cut(&mail(wrong)).len(), 3, "{wrong}");
        }
    }
}
