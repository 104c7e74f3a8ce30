//! Times in questions: `2023-05-01`, `in May 2023`, `last week`, `two months ago`, `the week after 5 May 2023`.
//!
//! Times without a year, and relative times such as `last week`, count from a day that the caller gives: the day of the
//! newest message. So a question about old conversations means their time, and has the same answer every day.

mod foreign;

use std::ops::Range;

use chrono::{Datelike, Days, Months, NaiveDate};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// Seasons with their first months on the northern hemisphere.
const SEASONS: [(&str, u32); 5] = [
    ("spring", 3),
    ("summer", 6),
    ("autumn", 9),
    ("fall", 9),
    ("winter", 12),
];

const NUMBERS: [&str; 12] = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
];

/// Words that announce a time. A month, season or year without a date counts as a time only after one of them.
const BEFORE_TIMES: [&str; 16] = [
    "after", "around", "before", "between", "by", "during", "early", "from", "in", "late", "of", "since",
    "through", "to", "until", "year",
];

/// A range of days that excludes its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first day; `None` if the range has no beginning.
    pub start: Option<NaiveDate>,
    /// The first day after the range; `None` if it has no end.
    pub end: Option<NaiveDate>,
}

/// Finds the first time in words in lower case, and the range of its words. `newest` is the day from which relative
/// times count. Without it, relative times are not recognised.
pub fn find(words: &[String], newest: Option<NaiveDate>) -> Option<(Range<usize>, Span)> {
    let english: Vec<&str> = words.iter().map(|word| foreign::english(word)).collect();
    let reader = Reader {
        words: &english,
        written: words,
        newest,
    };
    (0..words.len()).find_map(|at| {
        let (end, days) = reader.at(at)?;
        assert!(at < end && end <= words.len(), "a time has words of the question");
        assert!(days.0 < days.1, "a time has at least one day");
        Some(reader.with_its_surroundings(at, end, days))
    })
}

/// The first day, and the first day after the last.
type DaySpan = (NaiveDate, NaiveDate);

struct Reader<'a> {
    /// The words, with those of times in English.
    words: &'a [&'a str],
    written: &'a [String],
    newest: Option<NaiveDate>,
}

impl Reader<'_> {
    fn word(&self, at: usize) -> &str {
        self.words.get(at).copied().unwrap_or_default()
    }

    fn written(&self, at: usize) -> &str {
        self.written.get(at).map_or("", String::as_str)
    }

    fn before(&self, at: usize) -> &str {
        at.checked_sub(1).map_or("", |before| self.word(before))
    }

    /// Parses the time that begins at a word. Returns the end of its words too.
    fn at(&self, at: usize) -> Option<(usize, DaySpan)> {
        let absolute = self
            .date(at)
            .or_else(|| self.month(at))
            .or_else(|| self.season(at));
        absolute
            .or_else(|| self.year_alone(at))
            .or_else(|| self.relative(at))
    }

    /// Parses `2023-05-01`, `2023-05`, `5 May 2023`, `5th of May`, `May 5 2023`, `May 5`.
    fn date(&self, at: usize) -> Option<(usize, DaySpan)> {
        let word = self.word(at);
        if word.len() == 10
            && let Ok(date) = word.parse::<NaiveDate>()
        {
            return Some((at + 1, one_day(date)?));
        }
        if word.len() == 7
            && let Ok(first) = format!("{word}-01").parse::<NaiveDate>()
        {
            return Some((at + 1, months(first, 1)?));
        }
        let (number, name, mut end) = match (day(word), month(word)) {
            (Some(number), _) => {
                let name = at + 1 + usize::from(self.word(at + 1) == "of");
                (number, month(self.word(name))?, name + 1)
            }
            (None, Some(name)) => (day(self.word(at + 1))?, name, at + 2),
            (None, None) => return None,
        };
        let of_year = end + usize::from(self.word(end) == "of");
        let date = match year(self.word(of_year)) {
            Some(year) => {
                end = of_year + 1;
                NaiveDate::from_ymd_opt(year, name, number)?
            }
            None => self.latest(|year| NaiveDate::from_ymd_opt(year, name, number))?,
        };
        Some((end, one_day(date)?))
    }

    /// Parses `May 2023`, `in May`, `last May`.
    fn month(&self, at: usize) -> Option<(usize, DaySpan)> {
        let name = month(self.word(at))?;
        let first = |year| NaiveDate::from_ymd_opt(year, name, 1);
        let of_year = at + 1 + usize::from(self.word(at + 1) == "of");
        if let Some(year) = year(self.word(of_year)) {
            return Some((of_year + 1, months(first(year)?, 1)?));
        }
        self.is_told_as_time(at)
            .then(|| Some((at + 1, months(self.latest(first)?, 1)?)))?
    }

    /// Parses `the summer of 2023`, `in summer`, `last summer`.
    fn season(&self, at: usize) -> Option<(usize, DaySpan)> {
        let (_, month) = SEASONS.into_iter().find(|(name, _)| *name == self.word(at))?;
        let first = |year| NaiveDate::from_ymd_opt(year, month, 1);
        let of_year = at + 1 + usize::from(self.word(at + 1) == "of");
        if let Some(year) = year(self.word(of_year)) {
            return Some((of_year + 1, months(first(year)?, 3)?));
        }
        self.is_told_as_time(at)
            .then(|| Some((at + 1, months(self.latest(first)?, 3)?)))?
    }

    fn year_alone(&self, at: usize) -> Option<(usize, DaySpan)> {
        let year = year(self.word(at)).filter(|_| BEFORE_TIMES.contains(&self.before(at)))?;
        Some((at + 1, months(NaiveDate::from_ymd_opt(year, 1, 1)?, 12)?))
    }

    fn is_told_as_time(&self, at: usize) -> bool {
        let before = match self.before(at) {
            "the" | "this" | "last" | "past" => {
                return self.before(at) != "the" || self.is_told_as_time(at - 1);
            }
            before => before,
        };
        BEFORE_TIMES.contains(&before)
    }

    /// Parses `yesterday`, `last week`, `three days ago`, `last Friday`.
    fn relative(&self, at: usize) -> Option<(usize, DaySpan)> {
        let today = self.newest?;
        match (self.word(at), self.word(at + 1), self.word(at + 2)) {
            ("today", ..) => Some((at + 1, one_day(today)?)),
            ("yesterday", ..) => Some((at + 1, one_day(today.pred_opt()?)?)),
            ("last" | "past" | "this", "weekend", _) => {
                let monday = monday(today)?;
                let saturday = match self.word(at) {
                    "this" => monday.checked_add_days(Days::new(5))?,
                    _ => monday.checked_sub_days(Days::new(2))?,
                };
                Some((at + 2, (saturday, saturday.checked_add_days(Days::new(2))?)))
            }
            (which @ ("last" | "past" | "this"), unit, _) => {
                if let Some(weekday) = WEEKDAYS.iter().position(|name| *name == unit) {
                    let back = (today.weekday().num_days_from_monday() + 7 - weekday as u32 - 1) % 7 + 1;
                    let back = if which == "this" { back % 7 } else { back };
                    return Some((at + 2, one_day(today.checked_sub_days(Days::new(back.into()))?)?));
                }
                Some((at + 2, unit_around(today, unit, u32::from(which != "this"))?))
            }
            (count, unit, "ago") => Some((at + 3, unit_around(today, unit, number(count)?)?)),
            // `la semaine dernière`, `el mes pasado`
            (unit, "last", _) if self.written(at + 1) != "last" => {
                Some((at + 2, unit_around(today, unit, 1)?))
            }
            _ => {
                let count = at + foreign::ago_before(self.written(at), self.written(at + 1))?;
                let days = unit_around(today, self.word(count + 1), number(self.word(count))?)?;
                Some((count + 2, days))
            }
        }
    }

    /// Extends a time by the words around it: `since …`, `before …`, `between … and …`, `the week after …`.
    fn with_its_surroundings(&self, at: usize, end: usize, (first, after): DaySpan) -> (Range<usize>, Span) {
        let span = |start, end| Span { start, end };
        let (begin, relation) = match self.before(at) {
            "the" => (at.saturating_sub(2), self.before(at - 1)),
            relation => (at.saturating_sub(1), relation),
        };
        let unit = begin.checked_sub(1).map_or("", |before| self.word(before));
        let around = match relation {
            "after" | "following" => around(after, unit, true),
            "before" => around(first, unit, false),
            "of" => unit_around(first, unit, 0),
            _ => None,
        };
        if let Some((first, after)) = around {
            return (begin.saturating_sub(1)..end, span(Some(first), Some(after)));
        }
        match relation {
            "since" => (begin..end, span(Some(first), None)),
            "after" => (begin..end, span(Some(after), None)),
            "before" | "until" => (begin..end, span(None, Some(first))),
            "between" | "from" if ["and", "to", "until", "through"].contains(&self.word(end)) => {
                match self.at(end + 1).filter(|(_, (_, last))| *last > first) {
                    Some((end, (_, last))) => (begin..end, span(Some(first), Some(last))),
                    None => (at..end, span(Some(first), Some(after))),
                }
            }
            _ => (at..end, span(Some(first), Some(after))),
        }
    }

    /// Finds the latest day of a yearly date that is not after the newest message.
    fn latest(&self, of_year: impl Fn(i32) -> Option<NaiveDate>) -> Option<NaiveDate> {
        let newest = self.newest?;
        // A leap day is at most eight years away.
        (newest.year() - 8..=newest.year())
            .rev()
            .filter_map(of_year)
            .find(|date| *date <= newest)
    }
}

/// The day, week, month or year that is `back` units before the one of a day.
fn unit_around(day: NaiveDate, unit: &str, back: u32) -> Option<DaySpan> {
    match unit.trim_end_matches('s') {
        "day" => one_day(day.checked_sub_days(Days::new(back.into()))?),
        "week" => {
            let first = monday(day)?.checked_sub_days(Days::new(u64::from(back) * 7))?;
            Some((first, first.checked_add_days(Days::new(7))?))
        }
        "month" => months(day.with_day(1)?.checked_sub_months(Months::new(back))?, 1),
        "year" => months(
            NaiveDate::from_ymd_opt(day.year() - i32::try_from(back).ok()?, 1, 1)?,
            12,
        ),
        _ => None,
    }
}

/// The unit of time directly after a day, or directly before it.
fn around(day: NaiveDate, unit: &str, is_after: bool) -> Option<DaySpan> {
    let length = |day: NaiveDate| match (unit, is_after) {
        ("day", true) => day.succ_opt(),
        ("day", false) => day.pred_opt(),
        ("week", true) => day.checked_add_days(Days::new(7)),
        ("week", false) => day.checked_sub_days(Days::new(7)),
        ("month", true) => day.checked_add_months(Months::new(1)),
        ("month", false) => day.checked_sub_months(Months::new(1)),
        ("year", true) => day.checked_add_months(Months::new(12)),
        ("year", false) => day.checked_sub_months(Months::new(12)),
        _ => None,
    };
    let other = length(day)?;
    Some((day.min(other), day.max(other)))
}

fn monday(day: NaiveDate) -> Option<NaiveDate> {
    day.checked_sub_days(Days::new(day.weekday().num_days_from_monday().into()))
}

fn one_day(date: NaiveDate) -> Option<DaySpan> {
    Some((date, date.succ_opt()?))
}

fn months(first: NaiveDate, count: u32) -> Option<DaySpan> {
    Some((first, first.checked_add_months(Months::new(count))?))
}

/// Parses the name of a month, or its first three letters.
fn month(word: &str) -> Option<u32> {
    let found = MONTHS
        .iter()
        .position(|name| *name == word || (word.len() == 3 && name.starts_with(word)));
    found.map(|at| at as u32 + 1)
}

fn year(word: &str) -> Option<i32> {
    word.parse().ok().filter(|year| (1900..2100).contains(year))
}

/// Parses a day of the month: `5`, `5th`.
fn day(word: &str) -> Option<u32> {
    let digits = word.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let suffix = &word[digits.len()..];
    let is_day = ["", "st", "nd", "rd", "th"].contains(&suffix);
    digits.parse().ok().filter(|day| is_day && (1..=31).contains(day))
}

fn number(word: &str) -> Option<u32> {
    if word == "a" {
        return Some(1);
    }
    let named = NUMBERS
        .iter()
        .position(|name| *name == word)
        .map(|at| at as u32 + 1);
    named.or_else(|| word.parse().ok().filter(|number| *number <= 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a question whose newest message is of Wednesday, 2023-08-16. Returns the time and the other words.
    fn time(question: &str) -> Option<(String, String)> {
        let words: Vec<String> = question.to_lowercase().split(' ').map(str::to_owned).collect();
        let (range, span) = find(&words, NaiveDate::from_ymd_opt(2023, 8, 16))?;
        let show = |date: Option<NaiveDate>| date.map(|date| date.to_string()).unwrap_or_default();
        let mut left = words;
        left.drain(range);
        Some((
            format!("{}..{}", show(span.start), show(span.end)),
            left.join(" "),
        ))
    }

    #[test]
    fn finds_times() {
        for (question, days, left) in [
            (
                "what happened in May 2023",
                "2023-05-01..2023-06-01",
                "what happened in",
            ),
            ("bees in May", "2023-05-01..2023-06-01", "bees in"),
            ("bees last December", "2022-12-01..2023-01-01", "bees last"),
            ("on 2023-05-01", "2023-05-01..2023-05-02", "on"),
            ("in 2023-05", "2023-05-01..2023-06-01", "in"),
            ("on the 5th of May", "2023-05-05..2023-05-06", "on the"),
            ("on 9 Nov", "2022-11-09..2022-11-10", "on"),
            ("on May 5 2021", "2021-05-05..2021-05-06", "on"),
            ("on 5 May 2021", "2021-05-05..2021-05-06", "on"),
            ("in the summer of 2022", "2022-06-01..2022-09-01", "in the"),
            ("last summer", "2023-06-01..2023-09-01", "last"),
            ("bees in 2021", "2021-01-01..2022-01-01", "bees in"),
            ("bees since 2021", "2021-01-01..", "bees"),
            ("bees before May 2021", "..2021-05-01", "bees"),
            ("bees after May 2021", "2021-06-01..", "bees"),
            (
                "bees between May 2021 and June 2022",
                "2021-05-01..2022-07-01",
                "bees",
            ),
            ("said yesterday", "2023-08-15..2023-08-16", "said"),
            ("said last week", "2023-08-07..2023-08-14", "said"),
            ("said this month", "2023-08-01..2023-09-01", "said"),
            ("said last friday", "2023-08-11..2023-08-12", "said"),
            ("said last wednesday", "2023-08-09..2023-08-10", "said"),
            ("said two weeks ago", "2023-07-31..2023-08-07", "said"),
            (
                "said the week after 5 May 2023",
                "2023-05-06..2023-05-13",
                "said the",
            ),
            (
                "said the week before May 5 2023",
                "2023-04-28..2023-05-05",
                "said the",
            ),
            (
                "said the week of 5 May 2023",
                "2023-05-01..2023-05-08",
                "said the",
            ),
        ] {
            assert_eq!(
                time(question),
                Some((days.to_owned(), left.to_owned())),
                "{question}"
            );
        }
    }

    #[test]
    fn finds_times_in_other_languages() {
        for (question, days, left) in [
            (
                "was geschah letzte Woche",
                "2023-08-07..2023-08-14",
                "was geschah",
            ),
            (
                "was geschah vor zwei Wochen",
                "2023-07-31..2023-08-07",
                "was geschah",
            ),
            (
                "was geschah am 5 Mai 2021",
                "2021-05-05..2021-05-06",
                "was geschah am",
            ),
            ("was geschah im Mai", "2023-05-01..2023-06-01", "was geschah im"),
            (
                "qui a parlé la semaine dernière",
                "2023-08-07..2023-08-14",
                "qui a parlé la",
            ),
            (
                "qui a parlé il y a deux mois",
                "2023-06-01..2023-07-01",
                "qui a parlé il",
            ),
            ("qué pasó el mes pasado", "2023-07-01..2023-08-01", "qué pasó el"),
            (
                "qué pasó el 5 de mayo de 2021",
                "2021-05-05..2021-05-06",
                "qué pasó el",
            ),
            ("vad hände förra veckan", "2023-08-07..2023-08-14", "vad hände"),
            (
                "wat gebeurde twee weken geleden",
                "2023-07-31..2023-08-07",
                "wat gebeurde",
            ),
            ("что было вчера", "2023-08-15..2023-08-16", "что было"),
        ] {
            assert_eq!(
                time(question),
                Some((days.to_owned(), left.to_owned())),
                "{question}"
            );
        }
    }

    #[test]
    fn other_words_are_not_times() {
        for question in [
            "may she march on",
            "who owns 2023 bees",
            "the fall of rome",
            "the last drum",
            "what may i do",
            "vor dem haus",
            "5 bees",
        ] {
            assert_eq!(time(question), None, "{question}");
        }
        let words = ["last", "week"].map(str::to_owned);
        assert_eq!(find(&words, None), None, "without a newest message");
    }
}
