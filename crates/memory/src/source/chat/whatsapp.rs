//! WhatsApp's export of a chat: `12/03/2024, 14:05 - Ana: Hola`, or `[12.03.24, 14:05:33] Ana: Hola`, with the date and
//! the clock of the phone's language. A message may have further lines.

use std::borrow::Cow;

use chrono::{NaiveDate, NaiveDateTime};

use super::said;
use crate::message::Message;
use crate::source::{ReadOptions, moment};

/// Maximum characters between the date and the time: `,`, `at`, `klo`, `à`, `下午`.
const BETWEEN_CHARACTERS_MAX: usize = 16;

/// Maximum characters of a sender's name.
const NAME_CHARACTERS_MAX: usize = 80;

/// Words for the first half of the day, before or after the clock time.
const MORNING: [&str; 9] = ["am", "a.m.", "a. m.", "上午", "凌晨", "早上", "午前", "오전", "ص"];

/// Words for the second half of the day. `中午` is noon: 12 o'clock belongs to it.
const AFTERNOON: [&str; 9] = ["pm", "p.m.", "p. m.", "下午", "中午", "晚上", "午後", "오후", "م"];

/// The order of the numbers of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DateOrder {
    DayMonth,
    MonthDay,
    YearMonth,
}

/// The beginning of a message: the numbers of its date, and its time of the day.
#[derive(Debug, Clone, PartialEq)]
struct Head<'t> {
    date: [u32; 3],
    /// Whether the first number has four digits.
    is_year_first: bool,
    separator: char,
    hour: u32,
    minute: u32,
    second: u32,
    /// `AM` and `PM` in capitals, as American phones write them.
    is_american: bool,
    rest: &'t str,
}

/// Whether a text is an export: its first line begins a message.
pub fn is_export(beginning: &str) -> bool {
    let beginning: String = beginning.chars().take(600).collect();
    let normal = normalised(&beginning);
    let first = normal.lines().find(|line| !line.trim().is_empty());
    first.and_then(head).is_some()
}

/// Reads the messages of an export. Lines of WhatsApp itself, such as `Ana added Bob`, have no speaker.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    let text = normalised(text);
    let mut found: Vec<(usize, Option<Head<'_>>, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        match (head(line), found.last_mut()) {
            (Some(head), _) => {
                let words = head.rest.to_owned();
                found.push((number, Some(head), words));
            }
            (None, Some((.., words))) => {
                words.push('\n');
                words.push_str(line);
            }
            (None, None) if line.trim().is_empty() => {}
            (None, None) => found.push((number, None, line.to_owned())),
        }
    }
    let order = date_order(found.iter().filter_map(|(_, head, _)| head.as_ref()));
    let messages = found.into_iter().map(|(number, head, words)| {
        let (speaker, words) = speaker(&words);
        let local = head.as_ref().and_then(|head| head.local(order));
        let moment = local.map(|local| moment::of_local(local, options.zone_minutes));
        Message {
            place: Some(format!("line {number}")),
            ..said(speaker, &words, moment, None, options)
        }
    });
    messages.collect()
}

/// Removes marks of direction, and writes blanks and digits of all scripts as those of ASCII.
fn normalised(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let letters = text.chars().filter_map(|letter| match letter {
        // Kept once behind a name: WhatsApp writes it before its own words.
        '\u{feff}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => None,
        '\u{202f}' | '\u{a0}' => Some(' '),
        '٠'..='٩' => char::from_digit(letter as u32 - '٠' as u32, 10),
        '۰'..='۹' => char::from_digit(letter as u32 - '۰' as u32, 10),
        '०'..='९' => char::from_digit(letter as u32 - '०' as u32, 10),
        '০'..='৯' => char::from_digit(letter as u32 - '০' as u32, 10),
        '،' => Some(','),
        other => Some(other),
    });
    letters.collect::<String>().into()
}

/// Parses the beginning of a message.
fn head(line: &str) -> Option<Head<'_>> {
    let line = line.trim_start_matches(['\u{200e}', ' ']);
    let (line, is_bracketed) = match line.strip_prefix('[') {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (first, rest) = number(line, 4)?;
    let separator = rest
        .chars()
        .next()
        .filter(|letter| ['.', '/', '-'].contains(letter))?;
    let (second, rest) = number(rest[1..].trim_start(), 2)?;
    let rest = rest.strip_prefix(separator)?;
    let (third, rest) = number(rest.trim_start(), 4)?;
    let is_year_first = line.as_bytes().get(..4)?.iter().all(u8::is_ascii_digit);
    let clock_at = rest
        .char_indices()
        .take(BETWEEN_CHARACTERS_MAX)
        .find(|(_, letter)| letter.is_ascii_digit())?
        .0;
    let (between, clock) = rest.split_at(clock_at);
    // The date and the time have something between them.
    if between.is_empty() || between.contains([']', ':']) {
        return None;
    }
    let (hour, rest) = number(clock, 2)?;
    let rest = rest.strip_prefix([':', '.'])?;
    let (minute, rest) = number(rest, 2)?;
    let (seconds, rest) = match rest.strip_prefix([':', '.']).and_then(|rest| number(rest, 2)) {
        Some((seconds, rest)) => (seconds, rest),
        None => (0, rest),
    };
    let (after, rest) = match is_bracketed {
        true => rest.split_once(']')?,
        false => rest.split_once(" - ").or_else(|| rest.split_once(" – "))?,
    };
    let half = half_of_day(between, after)?;
    let hour = match half {
        Some(true) if hour < 12 => hour + 12,
        Some(false) if hour == 12 => 0,
        _ => hour,
    };
    (hour < 24 && minute < 60 && seconds < 60).then_some(Head {
        date: [first, second, third],
        is_year_first,
        separator,
        hour,
        minute,
        second: seconds,
        is_american: after.contains("AM") || after.contains("PM"),
        rest: rest.strip_prefix(' ').unwrap_or(rest),
    })
}

/// A number of at most so many digits, and the rest.
fn number(text: &str, digits_max: usize) -> Option<(u32, &str)> {
    let digits = text
        .bytes()
        .take(digits_max + 1)
        .take_while(u8::is_ascii_digit)
        .count();
    if digits == 0 || digits > digits_max {
        return None;
    }
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// Whether a time is in the second half of the day; `Some(None)` if a clock of 24 hours shows it. `None` if other words
/// than the half stand behind the time, so that this is no beginning of a message.
fn half_of_day(between: &str, after: &str) -> Option<Option<bool>> {
    let after = after.trim().to_lowercase();
    let between = between.trim_matches([',', '.', ' ']);
    for (words, is_second) in [(MORNING, false), (AFTERNOON, true)] {
        if words.contains(&after.as_str()) || words.contains(&between) {
            return Some(Some(is_second));
        }
    }
    (after.is_empty() || after == "uhr").then_some(None)
}

impl Head<'_> {
    fn local(&self, order: DateOrder) -> Option<NaiveDateTime> {
        let [first, second, third] = self.date;
        let (year, month, day) = match order {
            DateOrder::YearMonth => (first, second, third),
            DateOrder::DayMonth => (third, second, first),
            DateOrder::MonthDay => (third, first, second),
        };
        let year = if year < 100 { 2_000 + year } else { year };
        NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?.and_hms_opt(
            self.hour,
            self.minute,
            self.second,
        )
    }
}

/// The order of day and month, which only the whole chat tells: no month is greater than 12, and time does not run back.
fn date_order<'h>(heads: impl Iterator<Item = &'h Head<'h>> + Clone) -> DateOrder {
    let Some(first) = heads.clone().next() else {
        return DateOrder::DayMonth;
    };
    let orders = match (first.is_year_first, first.is_american, first.separator) {
        (true, ..) => return DateOrder::YearMonth,
        (false, true, '/') => [DateOrder::MonthDay, DateOrder::DayMonth, DateOrder::YearMonth],
        _ => [DateOrder::DayMonth, DateOrder::MonthDay, DateOrder::YearMonth],
    };
    let wrong = |order: &DateOrder| {
        let mut last = None;
        let mut wrong = 0;
        for head in heads.clone() {
            match head.local(*order) {
                None => wrong += 1_000_u64,
                Some(local) => {
                    wrong += u64::from(last.is_some_and(|last| local < last));
                    last = Some(local);
                }
            }
        }
        wrong
    };
    let mut best = (u64::MAX, DateOrder::DayMonth);
    for order in orders {
        let wrong = wrong(&order);
        if wrong < best.0 {
            best = (wrong, order);
        }
        if wrong == 0 {
            break;
        }
    }
    best.1
}

/// Splits the words into the sender and the message. WhatsApp's own lines have no sender.
fn speaker(words: &str) -> (Option<String>, String) {
    let first_line = words.lines().next().unwrap_or_default();
    // The name is not in a line such as: Ana changed the subject to “Bees: all of them”.
    let is_name = |name: &str| {
        !name.is_empty()
            && name.chars().count() <= NAME_CHARACTERS_MAX
            && !name.contains(['"', '“', '„', '«', '\u{200e}'])
    };
    match first_line
        .split_once(": ")
        .or_else(|| first_line.strip_suffix(':').map(|name| (name, "")))
    {
        Some((name, _)) if is_name(name.trim_start_matches(['\u{200e}', '~', ' '])) => {
            let text = words[name.len() + 1..].trim_start_matches(' ');
            let name = name.trim_start_matches(['\u{200e}', '~', ' ']).trim();
            (Some(name.to_owned()), text.replace('\u{200e}', ""))
        }
        _ => (None, words.replace('\u{200e}', "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(line: &str) -> (Option<String>, Option<String>, String) {
        assert!(is_export(line), "{line:?}");
        let message = read(line, &ReadOptions::default()).remove(0);
        let at = message.moment.map(|moment| moment.at.to_string());
        (at, message.speaker.clone(), message.text())
    }

    #[test]
    fn reads_the_shapes_of_phones_and_languages() {
        for line in [
            "12/03/2024, 14:05 - Ana: Hola",
            "13/03/2024, 14:05 - Bob: Later\n12/03/2024, 14:05 - Ana: Hola",
            "3/13/24, 2:05\u{202f}PM - Ana: Hola",
            "[13.03.24, 14:05:33] Ana: Hola",
            "\u{200e}[13/03/24, 2:05:33\u{202f}PM] Ana: Hola",
            "13-03-2024 14:05 - Ana: Hola",
            "13/03/2024 à 14:05 - Ana: Hola",
            "13/3/24 2:05 p. m. - Ana: Hola",
            "13/03/24, 2:05 pm - Ana: Hola",
            "13.3.2024 klo 14.05 - Ana: Hola",
            "13/03/24 14.05 - Ana: Hola",
            "2024/3/13 下午2:05 - Ana: Hola",
            "2024. 3. 13. 오후 2:05 - Ana: Hola",
            "2024/03/13 14:05 - Ana: Hola",
            "2024-03-13 14:05 - Ana: Hola",
            "[2024-03-13, 2:05:33 PM] Ana: Hola",
            "١٣\u{200f}/٣\u{200f}/٢٠٢٤، ٢:٠٥ م - Ana: Hola",
            "[13.03.2024, 14:05:00] ~ Ana: Hola",
        ] {
            let (at, speaker, text) = first(line);
            let day = if line.starts_with("12/") { "12" } else { "13" };
            let at = at.unwrap_or_else(|| panic!("a time: {line:?}"));
            assert!(at.starts_with(&format!("2024-03-{day}T14:05")), "{line:?}: {at}");
            let is_first = !line.contains("Bob");
            assert!(
                !is_first || (speaker.as_deref(), text.as_str()) == (Some("Ana"), "Hola"),
                "{line:?}"
            );
        }
        for other in [
            "12/03/2024 was a day",
            "ADA: 12/03/2024",
            "[14:05] <ada> hi",
            "2024-03-12 14:05:00 INFO x - y",
        ] {
            assert!(!is_export(other), "{other:?}");
        }
    }

    #[test]
    fn reads_lines_and_reports() {
        let text = "12/03/2024, 14:04 - Messages and calls are end-to-end encrypted.\r\n\
            12/03/2024, 14:05 - Ana: Bees:\r\n* hum\r\n\r\n* drum\r\n\
            12/03/2024, 14:06 - Ana changed the subject to \"Bees: all\"\r\n\
            12/03/2024, 14:07 - Bob: \u{200e}image omitted\r\n";
        let found: Vec<(Option<String>, String)> = read(text, &ReadOptions::default())
            .into_iter()
            .map(|message| (message.speaker.clone(), message.text()))
            .collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(
            found[1],
            (Some("Ana".to_owned()), "Bees:\n* hum\n\n* drum".to_owned())
        );
        assert_eq!(found[2].0, None);
        assert_eq!(found[3], (Some("Bob".to_owned()), "image omitted".to_owned()));
    }

    #[test]
    fn the_whole_chat_tells_the_order_of_day_and_month() {
        let month_first = "1/9/24, 14:05 - Ana: a\n1/10/24, 14:05 - Ana: b\n1/30/24, 14:05 - Ana: c\n";
        let days: Vec<String> = read(month_first, &ReadOptions::default())
            .iter()
            .filter_map(|message| Some(message.moment?.at.to_string()[..10].to_owned()))
            .collect();
        assert_eq!(days, ["2024-01-09", "2024-01-10", "2024-01-30"]);
        // No number is greater than 12, but time would run back.
        let days: Vec<String> = read(
            "12/1/24, 14:05 - Ana: a\n1/2/24, 14:05 - Ana: b\n",
            &ReadOptions::default(),
        )
        .iter()
        .filter_map(|message| Some(message.moment?.at.to_string()[..10].to_owned()))
        .collect();
        assert_eq!(days, ["2024-01-12", "2024-02-01"]);
    }
}
