//! Cron expressions: their check, and the search for the next time.
//!
//! `croner` does the search. It replaces names anywhere in the text, accepts a year and a step longer than its field,
//! and knows neither `@midnight` nor `LW`, so the check comes first. A store may hold expressions that are older than
//! the check: [`Pattern::read`] accepts them.

use chrono::{Datelike as _, Days, NaiveDate, NaiveDateTime, NaiveTime, Weekday};
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds};

/// A field of an expression.
struct Field {
    name: &'static str,
    min: u16,
    max: u16,
    /// The names of its values, in three letters, beginning with `min`.
    names: &'static [&'static str],
    /// The unit of an interval: as a noun, and as in `--every 90m`.
    unit: Option<(&'static str, &'static str)>,
}

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const DAY_OF_MONTH: usize = 3;
const DAY_OF_WEEK: usize = 5;

#[rustfmt::skip]
const FIELDS: [Field; 6] = [
    Field { name: "second", min: 0, max: 59, names: &[], unit: Some(("seconds", "s")) },
    Field { name: "minute", min: 0, max: 59, names: &[], unit: Some(("minutes", "m")) },
    Field { name: "hour", min: 0, max: 23, names: &[], unit: Some(("hours", "h")) },
    Field { name: "day of month", min: 1, max: 31, names: &[], unit: Some(("days", "d")) },
    Field { name: "month", min: 1, max: 12, names: &MONTHS, unit: None },
    Field { name: "day of week", min: 0, max: 7, names: &WEEKDAYS, unit: None },
];

const FIVE_FIELDS: &str = "write minute, hour, day of month, month and day of week, as in `30 4 * * mon-fri`; seconds may stand first";
/// A number of at least four digits in the last field is meant as a year.
const YEAR_MIN: u16 = 1_000;

/// Checks a new expression.
pub(super) fn check(text: &str) -> Result<(), String> {
    let text = text.to_uppercase();
    let fields: Vec<&str> = text.split_whitespace().collect();
    let is_year = |field: &str| {
        let numbers = field.split([',', '-', '/']);
        numbers
            .filter_map(|number| number.parse::<u16>().ok())
            .any(|number| number >= YEAR_MIN)
    };
    match fields.as_slice() {
        [nickname] if nickname.starts_with('@') => return check_nickname(nickname),
        [.., year] if fields.len() == 7 || (fields.len() == 6 && is_year(year)) => {
            return Err(format!(
                "`{year}` stands where some programs take a year, and a schedule has no year: leave it out, and delete the \
                 schedule when it has done its work"
            ));
        }
        _ if !(5..=6).contains(&fields.len()) => {
            return Err(format!("it has {} fields; {FIVE_FIELDS}", fields.len()));
        }
        _ => {}
    }
    let skipped = FIELDS.len() - fields.len();
    for (index, field) in fields.iter().enumerate() {
        check_field(index + skipped, field)?;
    }
    Ok(())
}

fn check_nickname(nickname: &str) -> Result<(), String> {
    match nickname {
        "@YEARLY" | "@ANNUALLY" | "@MONTHLY" | "@WEEKLY" | "@DAILY" | "@MIDNIGHT" | "@HOURLY" => Ok(()),
        "@EVERY" => Err("an interval is no expression: give it as `--every 90m`, or `every`".to_owned()),
        "@REBOOT" => Err("a schedule knows no boots: submit the job where the machine starts".to_owned()),
        _ => Err(format!(
            "there is no `{}`; give @hourly, @daily, @midnight, @weekly, @monthly or @yearly",
            nickname.to_lowercase()
        )),
    }
}

fn check_field(index: usize, text: &str) -> Result<(), String> {
    let field = &FIELDS[index];
    let has_days = index == DAY_OF_MONTH || index == DAY_OF_WEEK;
    // After `+`, both the day of the week and the day of the month have to match.
    let text = match text.strip_prefix('+') {
        Some(rest) if index == DAY_OF_WEEK => rest,
        _ => text,
    };
    if text == "*" || (has_days && text == "?") {
        return Ok(());
    }
    for item in text.split(',') {
        check_item(index, field, item)
            .map_err(|problem| format!("{} `{}`: {problem}", field.name, item.to_lowercase()))?;
    }
    Ok(())
}

fn check_item(index: usize, field: &Field, item: &str) -> Result<(), String> {
    if item.is_empty() {
        return Err("there is nothing between two commas".to_owned());
    }
    if let Some((base, step)) = item.split_once('/') {
        return check_step(field, base, step);
    }
    match index {
        DAY_OF_MONTH if matches!(item, "L" | "LW") => return Ok(()),
        DAY_OF_MONTH if item.starts_with("L-") => {
            return Err("days before the last are not known; give `L`, `LW` or a number".to_owned());
        }
        DAY_OF_MONTH if item.ends_with('W') => {
            return value(field, &item[..item.len() - 1]).map(drop);
        }
        DAY_OF_WEEK if item == "L" => return Err("write the day before the L, as in `friL`".to_owned()),
        DAY_OF_WEEK if item.ends_with('L') => {
            let day = &item[..item.len() - 1];
            return range(field, day.strip_suffix('#').unwrap_or(day)).map(drop);
        }
        DAY_OF_WEEK if item.contains('#') => {
            let (day, nth) = item.split_once('#').unwrap_or((item, ""));
            range(field, day)?;
            return match nth {
                "1" | "2" | "3" | "4" | "5" => Ok(()),
                _ => Err("after # stands 1 to 5, or L for the last".to_owned()),
            };
        }
        _ => {}
    }
    range(field, item).map(drop)
}

fn check_step(field: &Field, base: &str, step_text: &str) -> Result<(), String> {
    let step = match number(step_text) {
        Some(step) if step > 0 => step,
        _ => return Err("after the / stands a number from 1".to_owned()),
    };
    let (first, last) = match base {
        "*" => (field.min, field.max),
        _ if base.contains('-') => range(field, base)?,
        _ => (value(field, base)?, field.max),
    };
    let values = if base.contains('-') {
        last - first + 1
    } else {
        field.max - field.min + 1
    };
    if step <= values {
        return Ok(());
    }
    let remedy = match field.unit {
        Some((noun, letter)) => format!(
            "for every {step} {noun}, give an interval in place of the expression: `--every {step}{letter}`, or `every`"
        ),
        None => "list the values, as in `1,4`".to_owned(),
    };
    Err(format!(
        "the step is longer than the field, so only {first} would match; {remedy}"
    ))
}

/// Reads the first and the last value of `a` or `a-b`.
fn range(field: &Field, text: &str) -> Result<(u16, u16), String> {
    let Some((first, last)) = text.split_once('-') else {
        let only = value(field, text)?;
        return Ok((only, only));
    };
    let (first, mut last) = (value(field, first)?, (value(field, last)?, last));
    if last == (0, "SUN") {
        // Sunday may end a week.
        last.0 = 7;
    }
    if first <= last.0 {
        Ok((first, last.0))
    } else {
        Err("the range runs backwards: write two, with a comma".to_owned())
    }
}

/// Reads digits only, while `parse` accepts a sign too.
fn number(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn value(field: &Field, text: &str) -> Result<u16, String> {
    if let Some(position) = field.names.iter().position(|name| *name == text) {
        return Ok(field.min + u16::try_from(position).unwrap_or_default());
    }
    match number(text) {
        Some(number) if (field.min..=field.max).contains(&number) => return Ok(number),
        _ => {}
    }
    let short = field.names.iter().find(|name| text.starts_with(**name));
    Err(match (short, field.names) {
        (Some(name), _) => format!("write `{}`", name.to_lowercase()),
        (None, [first, .., last]) => format!(
            "give {} to {}, or {} to {}",
            field.min,
            field.max,
            first.to_lowercase(),
            last.to_lowercase()
        ),
        (None, _) => format!("give {} to {}", field.min, field.max),
    })
}

/// The times of an expression on a wall clock.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    /// The expression without `LW`; `None` if `LW` alone chooses the days.
    days: Option<Cron>,
    /// The last days of months, if `LW` is one of the days of the month: the last day from Monday to Friday.
    last_weekday: Option<Cron>,
}

impl Pattern {
    /// Reads an expression, even a stored one that [`check`] refuses.
    pub(super) fn read(text: &str) -> Result<Pattern, CronError> {
        let parse = |text: &str| {
            CronParser::builder()
                .seconds(Seconds::Optional)
                .build()
                .parse(text)
        };
        let text = text.trim().to_uppercase();
        if text == "@MIDNIGHT" {
            return Pattern::read("@daily");
        }
        let mut fields: Vec<&str> = text.split_whitespace().collect();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        let has_last_weekday = |days: &&str| days.split(',').any(|day| day == "LW");
        let Some(days) = fields.get(DAY_OF_MONTH).copied().filter(has_last_weekday) else {
            return Ok(Pattern {
                days: Some(parse(&text)?),
                last_weekday: None,
            });
        };
        let others: Vec<&str> = days.split(',').filter(|day| *day != "LW").collect();
        let others = others.join(",");
        let day_of_week = fields.get(DAY_OF_WEEK).copied().unwrap_or("*");
        let (is_any, is_both) = (matches!(day_of_week, "*" | "?"), day_of_week.starts_with('+'));
        let with = |days: &str, day_of_week: &str| {
            let mut fields = fields.clone();
            fields[DAY_OF_MONTH] = days;
            if let Some(field) = fields.get_mut(DAY_OF_WEEK) {
                *field = day_of_week;
            }
            parse(&fields.join(" "))
        };
        // The last weekday of February 2026 is the 27th, because the 28th is a Saturday. No month has one before the 26th.
        let last_weekday = with("26-31", if is_both { day_of_week } else { "*" })?;
        let days = match others.as_str() {
            "" if is_any || is_both => None,
            "" => Some(with("*", day_of_week)?),
            others => Some(with(others, day_of_week)?),
        };
        Ok(Pattern {
            days,
            last_weekday: Some(last_weekday),
        })
    }

    /// The first time after `wall`, or at it if `inclusive`.
    pub(super) fn next(&self, wall: NaiveDateTime, inclusive: bool) -> Option<NaiveDateTime> {
        let days = self.days.as_ref().and_then(|cron| find(cron, wall, inclusive));
        let last_weekday = self.last_weekday.as_ref();
        let last_weekday = last_weekday.and_then(|cron| find_last_weekday(cron, wall, inclusive));
        days.into_iter().chain(last_weekday).min()
    }
}

/// Finds the next time on a wall clock. The expression knows no zones.
fn find(cron: &Cron, wall: NaiveDateTime, inclusive: bool) -> Option<NaiveDateTime> {
    let found = cron.find_next_occurrence(&wall.and_utc(), inclusive);
    found.ok().map(|found| found.naive_utc())
}

/// Finds the next time on a last weekday. The library searches up to the year 5000, so the loop ends.
fn find_last_weekday(cron: &Cron, mut wall: NaiveDateTime, mut inclusive: bool) -> Option<NaiveDateTime> {
    loop {
        let found = find(cron, wall, inclusive)?;
        if is_last_weekday(found.date()) {
            return Some(found);
        }
        wall = found.date().succ_opt()?.and_time(NaiveTime::MIN);
        inclusive = true;
    }
}

fn is_last_weekday(date: NaiveDate) -> bool {
    let days_to_next = match date.weekday() {
        Weekday::Sat | Weekday::Sun => return false,
        Weekday::Fri => 3,
        _ => 1,
    };
    let next = date.checked_add_days(Days::new(days_to_next));
    next.is_none_or(|next| next.month() != date.month())
}
