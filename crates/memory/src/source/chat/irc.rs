//! Logs of IRC: irssi, WeeChat, ZNC, HexChat, and others of the shape `[14:02] <ada> Bees hum.`

use std::collections::HashMap;

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

use super::said;
use crate::message::Message;
use crate::source::{ReadOptions, moment};

/// Lines at the beginning of a text from which a log is recognised.
const LINES_LOOKED_AT: usize = 40;

/// The forms of days in the lines that a client writes when the day changes, or the log begins.
const DAY_FORMS: [&str; 4] = ["%a %b %d %Y", "%a %b %d %H:%M:%S %Y", "%Y-%m-%d", "%a, %d %b %Y"];

/// Modes of a channel before a nick.
const MODES: [char; 7] = ['@', '+', '%', '&', '~', '!', ' '];

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line<'t> {
    Said {
        nick: &'t str,
        words: &'t str,
    },
    Did {
        nick: &'t str,
        words: &'t str,
    },
    Renamed {
        from: &'t str,
        to: &'t str,
    },
    Joined(&'t str),
    Day(NaiveDate),
    /// Anything else that a client or server reports.
    Report,
}

/// The time of a line: a date, if the line has one, and the time of the day.
type Stamp = (Option<NaiveDate>, NaiveTime);

/// Whether a text is a log: most of its lines have the shape of one, and some words are said.
pub fn is_log(beginning: &str) -> bool {
    let lines: Vec<&str> = beginning
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(LINES_LOOKED_AT)
        .collect();
    // The last line may be cut off.
    let parsed: Vec<Line<'_>> = lines.iter().filter_map(|line| Some(parse(line)?.1)).collect();
    let said = parsed
        .iter()
        .filter(|line| matches!(line, Line::Said { .. } | Line::Did { .. }))
        .count();
    let days = parsed.iter().filter(|line| matches!(line, Line::Day(_))).count();
    (said > 0 || days > 0) && parsed.len() * 4 >= lines.len() * 3
}

/// Reads the messages of a log. Who joined and left is left out. A nick that someone changes to counts as the first one.
/// The days of a log that has none are those in its `name`, as ZNC writes it: `2024-03-12.log`.
pub fn read(name: &str, text: &str, options: &ReadOptions) -> Vec<Message> {
    let mut day = day_in_name(name);
    let mut people: HashMap<String, String> = HashMap::new();
    let mut last: Option<NaiveDateTime> = None;
    let mut messages = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some((stamp, line)) = parse(line) else {
            continue;
        };
        let (nick, words) = match line {
            Line::Day(changed) => {
                day = Some(changed);
                last = None;
                continue;
            }
            Line::Renamed { from, to } => {
                let first = people.remove(from).unwrap_or_else(|| from.to_owned());
                if first != to {
                    people.insert(to.to_owned(), first);
                }
                continue;
            }
            Line::Joined(nick) => {
                people.remove(nick);
                continue;
            }
            Line::Report => continue,
            Line::Said { nick, words } => (nick, words.to_owned()),
            Line::Did { nick, words } => (nick, format!("{nick} {words}")),
        };
        let local = stamp.and_then(|(date, time)| {
            day = date.or(day);
            let local = day?.and_time(time);
            // Without a line for it, a new day begins where the clock runs back by hours.
            match last {
                Some(last) if date.is_none() && (last - local).num_hours() >= 12 => {
                    day = local.date().succ_opt();
                    Some(day?.and_time(time))
                }
                _ => Some(local),
            }
        });
        last = local.or(last);
        let moment = local.map(|local| moment::of_local(local, options.zone_minutes));
        let speaker = people.get(nick).map_or(nick, String::as_str).to_owned();
        messages.push(Message {
            place: Some(format!("line {number}")),
            ..said(Some(speaker), words.trim(), moment, None, options)
        });
    }
    messages
}

/// Parses a line.
fn parse(line: &str) -> Option<(Option<Stamp>, Line<'_>)> {
    if let Some(report) = line.strip_prefix("--- ").or_else(|| line.strip_prefix("**** ")) {
        return Some((None, report_of_log(report)));
    }
    let (stamp, rest) = stamp(line)?;
    if let Some((nick, words)) = rest.strip_prefix('\t').and_then(|rest| rest.split_once('\t')) {
        return Some((Some(stamp), weechat(nick, words)));
    }
    let line = body(rest.trim_start_matches([' ', '\t']))?;
    Some((Some(stamp), line))
}

/// `Day changed Wed Mar 13 2024`, `Log opened Tue Mar 12 14:02:01 2024`, `BEGIN LOGGING AT Tue Mar 12 14:02:01 2024`.
fn report_of_log(report: &str) -> Line<'_> {
    let rest = ["Day changed ", "Log opened ", "BEGIN LOGGING AT "]
        .iter()
        .find_map(|begin| report.strip_prefix(begin));
    let day = rest.and_then(|rest| {
        let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
        DAY_FORMS.iter().find_map(|form| {
            let date = NaiveDate::parse_from_str(&rest, form);
            date.ok()
                .or_else(|| Some(NaiveDateTime::parse_from_str(&rest, form).ok()?.date()))
        })
    });
    day.map_or(Line::Report, Line::Day)
}

/// The time at the beginning of a line, and the rest.
fn stamp(line: &str) -> Option<(Stamp, &str)> {
    let (inner, rest) = match line.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => {
            // WeeChat's tab, or the blank behind the time, ends it.
            let end = end_of_stamp(line)?;
            line.split_at(end)
        }
    };
    let (date, clock) = match inner.trim().split_once([' ', 'T']) {
        Some((date, clock)) => {
            let date = NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?;
            (Some(date), clock.trim())
        }
        None => (None, inner.trim()),
    };
    let time = ["%H:%M:%S", "%H:%M"]
        .iter()
        .find_map(|form| NaiveTime::parse_from_str(clock, form).ok())?;
    Some(((date, time), rest))
}

/// The end of `14:02`, `14:02:01`, or of a date with one of them.
fn end_of_stamp(line: &str) -> Option<usize> {
    let word = |from: usize| {
        let rest = line.get(from..)?;
        Some(from + rest.find([' ', '\t']).unwrap_or(rest.len()))
    };
    let first = word(0)?;
    match line[..first].contains('-') && !line[..first].contains(':') {
        true => word(first + 1),
        false => Some(first),
    }
}

/// The columns of WeeChat.
fn weechat<'t>(nick: &'t str, words: &'t str) -> Line<'t> {
    match nick.trim() {
        "*" => action(words),
        "-->" => Line::Joined(words.split_whitespace().next().unwrap_or_default()),
        "<--" | "=!=" | "" => Line::Report,
        "--" => renamed(words).unwrap_or(Line::Report),
        nick => Line::Said {
            nick: nick.trim_start_matches(MODES),
            words,
        },
    }
}

fn body(rest: &str) -> Option<Line<'_>> {
    if let Some((nick, words)) = rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        let nick = nick.trim_start_matches(MODES).trim();
        let is_nick = !nick.is_empty() && !nick.contains(' ');
        return is_nick.then_some(Line::Said {
            nick,
            words: words.trim_start_matches([' ', '\t']),
        });
    }
    if let Some(report) = ["-!- ", "*** "].iter().find_map(|mark| rest.strip_prefix(mark)) {
        let joined = report
            .strip_prefix("Joins: ")
            .or_else(|| report.contains(" has joined ").then_some(report));
        return Some(match (renamed(report), joined) {
            (Some(renamed), _) => renamed,
            (None, Some(joined)) => Line::Joined(joined.split_whitespace().next().unwrap_or_default()),
            (None, None) => Line::Report,
        });
    }
    if let Some(did) = rest.strip_prefix("* ").or_else(|| rest.strip_prefix("*\t")) {
        return Some(renamed(did).unwrap_or_else(|| action(did)));
    }
    // A notice: -ChanServ- text.
    (rest.starts_with('-') && rest[1..].contains('-')).then_some(Line::Report)
}

fn action(did: &str) -> Line<'_> {
    let (nick, words) = did.trim().split_once(' ').unwrap_or((did.trim(), ""));
    Line::Did {
        nick: nick.trim_start_matches(MODES),
        words,
    }
}

fn renamed(report: &str) -> Option<Line<'_>> {
    let (from, to) = report.trim().split_once(" is now known as ")?;
    let is_nick = |nick: &str| !nick.is_empty() && !nick.contains(' ');
    (is_nick(from) && is_nick(to)).then_some(Line::Renamed { from, to })
}

/// The last date in a path: `2024-03-12`, `2024/03/12`, `20240312`.
fn day_in_name(name: &str) -> Option<NaiveDate> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let at = |start: usize| {
        let part = |from: usize, to: usize| {
            name.get(start + from..start + to)
                .filter(|text| digits(text))?
                .parse::<u32>()
                .ok()
        };
        let separators = [name.as_bytes().get(start + 4), name.as_bytes().get(start + 7)];
        let (month, day) = match separators {
            [Some(b'-' | b'/' | b'.' | b'_'), Some(b'-' | b'/' | b'.' | b'_')] => (part(5, 7)?, part(8, 10)?),
            _ => (part(4, 6)?, part(6, 8)?),
        };
        let year = part(0, 4).filter(|year| (1_988..2_200).contains(year))?;
        NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)
    };
    (0..name.len()).rev().find_map(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, text: &str) -> Vec<String> {
        assert!(is_log(text), "{text}");
        let messages = read(name, text, &ReadOptions::default()).into_iter();
        let shown = messages.map(|message| {
            let at = message
                .moment
                .map_or_else(|| "-".to_owned(), |moment| moment.at.to_string()[..16].to_owned());
            format!(
                "{at} {}: {}",
                message.speaker.as_deref().unwrap_or("-"),
                message.text()
            )
        });
        shown.collect()
    }

    #[test]
    fn reads_irssi() {
        let text = "--- Log opened Tue Mar 12 14:01:00 2024\n14:02 -!- ada [~a@bees.example] has joined #hives\n14:02 <@ada> Do they hum?\n\
            14:03 -!- ada is now known as ada_away\n14:04 < bob> All day.\n14:05  * ada_away leaves\n--- Day changed Wed Mar 13 2024\n\
                00:01 <ada_away> Back: <b>\n--- Log closed Wed Mar 13 00:02:00 2024\n";
        assert_eq!(
            shown("hives.log", text),
            [
                "2024-03-12T14:02 ada: Do they hum?",
                "2024-03-12T14:04 bob: All day.",
                "2024-03-12T14:05 ada: ada_away leaves",
                "2024-03-13T00:01 ada: Back: <b>",
            ]
        );
    }

    #[test]
    fn reads_weechat() {
        let text = "2024-03-12 14:02:01\t-->\tada (~a@bees.example) has joined #hives\n2024-03-12 14:02:05\t@ada\tDo they\thum?\n\
            2024-03-12 14:03:00\t--\tada is now known as queen\n2024-03-13 00:01:00\t *\tqueen hums\n2024-03-13 00:02:00\t<--\tqueen \
                (x) has quit\n";
        assert_eq!(
            shown("irc.hives.weechatlog", text),
            [
                "2024-03-12T14:02 ada: Do they\thum?",
                "2024-03-13T00:01 ada: queen hums"
            ]
        );
    }

    #[test]
    fn reads_znc_with_the_day_of_its_name() {
        let text = "[14:02:01] *** Joins: ada (~a@bees.example)\n[14:02:05] <ada> Do they hum?\n[14:03:00] * bob hums\n[14:04:00] \
            -ChanServ- Hello\n[00:01:00] <bob> Late.\n";
        let expected = [
            "2024-03-12T14:02 ada: Do they hum?",
            "2024-03-12T14:03 bob: bob hums",
            "2024-03-13T00:01 bob: Late.",
        ];
        assert_eq!(shown("ada/libera/#hives/2024-03-12.log", text), expected);
        assert_eq!(shown("logs/2024/03/12/hives.txt", text), expected);
        assert!(
            shown("hives.log", text)[0].starts_with("- ada"),
            "a time without a day is none"
        );
    }

    #[test]
    fn other_logs_are_none() {
        for other in [
            "[00:00:03] Ines: Hello\n[00:00:09] Bob: Hi\n",
            "14:02 lunch\n15:00 tea\n",
            "2024-03-12 14:02:01 INFO started\n",
            "Bees hum.\n",
        ] {
            assert!(!is_log(other), "{other:?}");
        }
    }
}
