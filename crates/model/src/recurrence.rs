//! Recurrences of schedules: cron expressions in a time zone, and fixed intervals.
//!
//! A cron expression has five fields (minute, hour, day of month, month, day of week) or six, with seconds first, by
//! the Open Cron Pattern Specification (<https://github.com/open-source-cron/ocps>): ranges, steps, lists, `L`, `LW`,
//! `#`, `W`, names, and nicknames such as `@daily`. There are no years.
//!
//! At the changes of daylight saving, fixed times (`30 2 * * *`) happen once a day: in a skipped hour, at the first
//! moment after it; in a repeated hour, the first time. A rhythm (`*/5 * * * *`) goes on: it skips the skipped hour,
//! and happens in both repeated hours. Vixie cron does the same.

mod expression;

use std::fmt;
use std::str::FromStr as _;

use chrono::{DateTime, LocalResult, NaiveDateTime, Offset as _, TimeDelta, TimeZone as _, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use self::expression::Pattern;
use crate::clock::Timestamp;
use crate::limits::{INTERVAL_MS_MAX, INTERVAL_MS_MIN};

/// The reason for which a recurrence was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecurrence {
    /// The expression cannot be read.
    #[error("`{expression}` is not a cron expression: {reason}")]
    Cron {
        /// The given text.
        expression: String,
        /// The problem, with its place and the remedy.
        reason: String,
    },
    /// The time zone does not exist.
    #[error("time zone `{0}` does not exist; give an IANA name, as in `Europe/Berlin` or `UTC`")]
    TimeZone(String),
    /// The interval is too short, or too long.
    #[error("an interval of {0} ms is out of range: give {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX} ms")]
    Interval(u64),
    /// No moment ever matches.
    #[error("`{0}` never matches a time")]
    Never(String),
}

/// The recurrence of a schedule: a cron expression or an interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Rule))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RecurrenceRule {
    /// A cron expression.
    Cron {
        /// Minute, hour, day of month, month, day of week; optionally seconds first; or `@daily` and the like.
        #[cfg_attr(feature = "schema", schema(example = "30 4 * * mon-fri"))]
        expression: String,
        /// The time zone, by its IANA name; `UTC` by default.
        #[serde(default = "utc")]
        #[cfg_attr(feature = "schema", schema(example = "Europe/Berlin"))]
        time_zone: String,
    },
    /// A fixed interval.
    Every {
        /// Milliseconds.
        #[cfg_attr(feature = "schema", schema(minimum = 1_000, maximum = 316_224_000_000_i64))]
        interval_ms: u64,
    },
}

fn utc() -> String {
    "UTC".to_owned()
}

impl RecurrenceRule {
    /// Checks a new rule. A store may hold rules that are older than a check; [`RecurrenceRule::recurrence`] accepts them.
    pub fn check(&self) -> Result<(), InvalidRecurrence> {
        match self {
            RecurrenceRule::Cron { expression, .. } => {
                expression::check(expression).map_err(|reason| InvalidRecurrence::Cron {
                    expression: cut(expression),
                    reason,
                })
            }
            RecurrenceRule::Every { .. } => Ok(()),
        }
    }

    /// Reads the rule. Intervals count from `anchor`: the first moment is one interval after it.
    pub fn recurrence(&self, anchor: Timestamp) -> Result<Recurrence, InvalidRecurrence> {
        match self {
            RecurrenceRule::Cron {
                expression,
                time_zone,
            } => Recurrence::cron(expression, time_zone),
            RecurrenceRule::Every { interval_ms } => Recurrence::every(*interval_ms, anchor),
        }
    }
}

impl fmt::Display for RecurrenceRule {
    /// Writes the rule as in a listing: `30 4 * * mon-fri (Europe/Berlin)`, `every 90s`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecurrenceRule::Cron {
                expression,
                time_zone,
            } => write!(formatter, "{expression} ({time_zone})"),
            RecurrenceRule::Every { interval_ms } if interval_ms.is_multiple_of(1_000) => {
                write!(formatter, "every {}s", interval_ms / 1_000)
            }
            RecurrenceRule::Every { interval_ms } => write!(formatter, "every {interval_ms}ms"),
        }
    }
}

/// A recurrence: a series of moments.
#[derive(Debug, Clone)]
pub struct Recurrence(Rule);

#[derive(Debug, Clone)]
enum Rule {
    Cron {
        pattern: Box<Pattern>,
        zone: Tz,
        is_fixed: bool,
    },
    Every {
        interval_ms: i64,
        anchor: Timestamp,
    },
}

/// A step of the search for a change of the offset. In every zone, changes are at least weeks apart.
const SEARCH_STEP: TimeDelta = TimeDelta::days(1);

impl Recurrence {
    /// Makes a recurrence from a cron expression, by the clocks of a time zone (`Europe/Berlin`, `UTC`).
    pub fn cron(expression: &str, time_zone: &str) -> Result<Recurrence, InvalidRecurrence> {
        let zone = Tz::from_str(time_zone).map_err(|_| InvalidRecurrence::TimeZone(cut(time_zone)))?;
        let pattern = Pattern::read(expression).map_err(|error| InvalidRecurrence::Cron {
            expression: cut(expression),
            reason: error.to_string().trim_end_matches('.').to_owned(),
        })?;
        let recurrence = Recurrence(Rule::Cron {
            pattern: Box::new(pattern),
            zone,
            is_fixed: is_fixed(expression),
        });
        match recurrence.next_after(Timestamp(0)) {
            Some(_) => Ok(recurrence),
            None => Err(InvalidRecurrence::Never(cut(expression))),
        }
    }

    /// Makes a recurrence of every `interval_ms` milliseconds. `anchor` is one of the moments.
    pub fn every(interval_ms: u64, anchor: Timestamp) -> Result<Recurrence, InvalidRecurrence> {
        match i64::try_from(interval_ms) {
            Ok(interval_ms) if (INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&interval_ms) => {
                Ok(Recurrence(Rule::Every { interval_ms, anchor }))
            }
            _ => Err(InvalidRecurrence::Interval(interval_ms)),
        }
    }

    /// The first moment after `moment`; `None` if there are no more.
    pub fn next_after(&self, moment: Timestamp) -> Option<Timestamp> {
        let next = self.search_after(moment);
        assert!(
            next.is_none_or(|next| next > moment),
            "the moments of a recurrence ascend"
        );
        next
    }

    fn search_after(&self, moment: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Rule::Every { interval_ms, anchor } => {
                let since = moment.0.checked_sub(anchor.0)?;
                let rounds = since.div_euclid(*interval_ms).checked_add(1)?.max(0);
                let next = rounds.checked_mul(*interval_ms)?.checked_add(anchor.0)?;
                Some(Timestamp(next))
            }
            Rule::Cron {
                pattern,
                zone,
                is_fixed,
            } => {
                let after = DateTime::from_timestamp(moment.0.div_euclid(1_000), 0)?;
                let next = next_of_cron(pattern, *zone, *is_fixed, after)?;
                Some(Timestamp(next.timestamp_millis()))
            }
        }
    }

    /// The moments after `after` up to `until`, but at most `count_max`.
    pub fn between(&self, after: Timestamp, until: Timestamp, count_max: usize) -> Vec<Timestamp> {
        let following = std::iter::successors(self.next_after(after), |moment| self.next_after(*moment));
        following
            .take_while(|moment| *moment <= until)
            .take(count_max)
            .collect()
    }
}

/// Whether an expression names fixed times and no rhythm: neither its seconds, minutes nor hours begin with a star.
fn is_fixed(expression: &str) -> bool {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let times = match fields.as_slice() {
        [nickname] => return !nickname.eq_ignore_ascii_case("@hourly"),
        fields if fields.len() == 5 => &fields[..2],
        fields => &fields[..fields.len().min(3)],
    };
    !times.iter().any(|field| field.starts_with(['*', '?']))
}

/// Finds the next moment by walking along the wall clock.
fn next_of_cron(pattern: &Pattern, zone: Tz, is_fixed: bool, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    // The moment at which the search begins, and whether it may itself be the answer.
    let (mut from, mut inclusive) = (after, false);
    loop {
        let offset = offset_at(zone, from);
        let wall = from.naive_utc() + offset;
        let matched = pattern.next(wall, inclusive)?;
        let moment = matched.checked_sub_signed(offset)?.and_utc();
        if let Some(change) = first_change(zone, from, moment) {
            assert!(change > from && change <= moment, "the search moves forward");
            let wall_after = change.naive_utc() + offset_at(zone, change);
            if is_fixed && change.naive_utc() + offset <= matched && matched < wall_after {
                return Some(change);
            }
            (from, inclusive) = (change, true);
        } else if is_fixed && is_second_of_two(zone, matched, moment) {
            (from, inclusive) = (moment, false);
        } else {
            return Some(moment);
        }
    }
}

fn offset_at(zone: Tz, moment: DateTime<Utc>) -> TimeDelta {
    TimeDelta::seconds(
        zone.offset_from_utc_datetime(&moment.naive_utc())
            .fix()
            .local_minus_utc()
            .into(),
    )
}

/// Finds the first moment after `from` and up to `to` at which the zone's clocks are set.
fn first_change(zone: Tz, from: DateTime<Utc>, to: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let offset = offset_at(zone, from);
    let mut before = from;
    while before < to {
        let mut changed = before.checked_add_signed(SEARCH_STEP)?.min(to);
        if offset_at(zone, changed) == offset {
            before = changed;
            continue;
        }
        // The change is after `before`, and at `changed` at the latest.
        while changed - before > TimeDelta::seconds(1) {
            let middle = before + TimeDelta::seconds((changed - before).num_seconds() / 2);
            if offset_at(zone, middle) == offset {
                before = middle;
            } else {
                changed = middle;
            }
        }
        return Some(changed);
    }
    None
}

fn is_second_of_two(zone: Tz, wall: NaiveDateTime, moment: DateTime<Utc>) -> bool {
    match zone.from_local_datetime(&wall) {
        LocalResult::Ambiguous(_, second) => second == moment,
        _ => false,
    }
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis())
    }

    /// The next moments after `after`, on the clocks of Berlin, each as hour, minute and offset.
    fn berlin(expression: &str, after: &str, count: usize) -> Vec<String> {
        let recurrence = Recurrence::cron(expression, "Europe/Berlin").unwrap();
        let mut moment = at(after);
        let mut moments = Vec::new();
        for _ in 0..count {
            moment = recurrence.next_after(moment).unwrap();
            let local = chrono_tz::Europe::Berlin.timestamp_millis_opt(moment.0).unwrap();
            moments.push(local.format("%d %H:%M%z").to_string());
        }
        moments
    }

    #[test]
    fn fixed_times_happen_once_at_both_changes_of_daylight_saving() {
        assert_eq!(
            berlin("30 2 * * *", "2026-03-28T00:00:00+01:00", 3),
            ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"],
            "clocks go from 02:00 to 03:00 on the 29th"
        );
        assert_eq!(
            berlin("30 2 * * *", "2026-10-24T00:00:00+02:00", 3),
            ["24 02:30+0200", "25 02:30+0200", "26 02:30+0100"],
            "clocks go from 03:00 back to 02:00 on the 25th"
        );
        assert_eq!(
            berlin("0,30 2 * * *", "2026-03-28T12:00:00+01:00", 2),
            ["29 03:00+0200", "30 02:00+0200"],
            "what was left out happens once"
        );
        // The search begins in the middle of the repeated hour.
        assert_eq!(
            berlin("30 2 * * *", "2026-10-25T02:10:00+01:00", 1),
            ["26 02:30+0100"]
        );
        assert_eq!(
            berlin("0 3 * * *", "2026-10-25T02:50:00+02:00", 1),
            ["25 03:00+0100"]
        );
    }

    #[test]
    fn a_rhythm_goes_on_at_both_changes_of_daylight_saving() {
        assert_eq!(
            berlin("*/20 * * * *", "2026-03-29T01:30:00+01:00", 3),
            ["29 01:40+0100", "29 03:00+0200", "29 03:20+0200"]
        );
        assert_eq!(
            berlin("*/20 * * * *", "2026-10-25T02:30:00+02:00", 6),
            [
                "25 02:40+0200",
                "25 02:00+0100",
                "25 02:20+0100",
                "25 02:40+0100",
                "25 03:00+0100",
                "25 03:20+0100"
            ]
        );
        // The hour repeats on one day of the year, and its second time is not a year away.
        assert_eq!(
            berlin("*/30 2 25 10 *", "2026-10-25T02:45:00+02:00", 2),
            ["25 02:00+0100", "25 02:30+0100"]
        );
    }

    #[test]
    fn every_hour_of_four_years_happens_once_in_any_zone() {
        for zone in [
            "Europe/Berlin",
            "America/New_York",
            "Australia/Lord_Howe",
            "Africa/Casablanca",
            "UTC",
        ] {
            let recurrence = Recurrence::cron("* * * * *", zone).unwrap();
            // Each minute has one moment, because clocks are set by whole minutes.
            let mut moment = at("2026-01-01T00:00:00Z");
            for _ in 0..4 * 366 {
                // Ten minutes of each day are checked, at a time of day that moves.
                for _ in 0..10 {
                    let next = recurrence.next_after(moment).unwrap();
                    assert_eq!(next.since_ms(moment), 60_000, "{zone} after {moment}");
                    moment = next;
                }
                moment = moment.plus_ms(24 * 3_600_000 - 7 * 60_000);
            }
        }
    }

    #[test]
    fn seconds_and_nicknames_are_read() {
        let seconds = Recurrence::cron("*/10 * * * * *", "UTC").unwrap();
        assert_eq!(
            seconds.next_after(at("2026-01-01T00:00:03.5Z")),
            Some(at("2026-01-01T00:00:10Z"))
        );
        assert_eq!(
            seconds.next_after(at("2026-01-01T00:00:10Z")),
            Some(at("2026-01-01T00:00:20Z"))
        );
        let daily = Recurrence::cron("@daily", "Asia/Tokyo").unwrap();
        assert_eq!(
            daily.next_after(at("2026-01-01T00:00:00Z")),
            Some(at("2026-01-01T15:00:00Z"))
        );
        let midnight = Recurrence::cron("@midnight", "Asia/Tokyo").unwrap();
        assert_eq!(
            midnight.next_after(at("2026-01-01T00:00:00Z")),
            Some(at("2026-01-01T15:00:00Z"))
        );
    }

    fn refusal(expression: &str, zone: &str) -> String {
        let rule = RecurrenceRule::Cron {
            expression: expression.to_owned(),
            time_zone: zone.to_owned(),
        };
        let read = rule.check().and_then(|()| rule.recurrence(Timestamp(0)));
        read.map(|recurrence| panic!("`{expression}` is taken: {recurrence:?}"))
            .unwrap_or_else(|refusal| refusal.to_string())
    }

    #[test]
    fn other_texts_are_not_recurrences() {
        assert_eq!(
            refusal("* * * * *", "Berlin"),
            "time zone `Berlin` does not exist; give an IANA name, as in \
            `Europe/Berlin` or `UTC`"
        );
        assert_eq!(refusal("0 0 31 2 *", "UTC"), "`0 0 31 2 *` never matches a time");
        let short = Recurrence::every(0, Timestamp(0)).unwrap_err();
        assert_eq!(short, InvalidRecurrence::Interval(0));
        let long = Recurrence::every(316_224_000_001, Timestamp(0)).unwrap_err();
        assert_eq!(
            long.to_string(),
            "an interval of 316224000001 ms is out of range: give 1000 to 316224000000 ms"
        );
    }

    #[test]
    fn a_refusal_names_the_place_and_the_remedy() {
        for (expression, told) in [
            (
                "often",
                "it has 1 fields; write minute, hour, day of month, month and day of week, as in `30 4 * * mon-fri`",
            ),
            ("", "it has 0 fields"),
            ("61 * * * *", "minute `61`: give 0 to 59"),
            ("* * 32 * *", "day of month `32`: give 1 to 31"),
            ("* * * mon *", "month `mon`: give 1 to 12, or jan to dec"),
            ("jan * * * *", "minute `jan`: give 0 to 59"),
            ("0 9 * * monday", "day of week `monday`: write `mon`"),
            (
                "0 9 * * fri-mon",
                "day of week `fri-mon`: the range runs backwards: write two, with a comma",
            ),
            (
                "0 9 * * l",
                "day of week `l`: write the day before the L, as in `friL`",
            ),
            (
                "0 9 * * fri#6",
                "day of week `fri#6`: after # stands 1 to 5, or L for the last",
            ),
            (
                "0 9 l-3 * *",
                "day of month `l-3`: days before the last are not known; give `L`, `LW` or a number",
            ),
            ("0,,5 * * * *", "minute ``: there is nothing between two commas"),
            ("*/0 * * * *", "minute `*/0`: after the / stands a number from 1"),
            ("0 ? * * *", "hour `?`: give 0 to 23"),
            (
                "*/90 * * * *",
                "minute `*/90`: the step is longer than the field, so only 0 would match; for every 90 minutes, \
                give an interval in place of the expression: `--every 90m`, or `every`",
            ),
            ("0 */36 * * *", "`--every 36h`"),
            ("0 0 1/45 * *", "`--every 45d`"),
            ("*/75 * * * * *", "`--every 75s`"),
            ("10-20/30 * * * *", "only 10 would match"),
            (
                "0 0 1 */18 *",
                "month `*/18`: the step is longer than the field, so only 1 would match; list the values",
            ),
            (
                "0 0 12 1 1 ? 2027",
                "`2027` stands where some programs take a year, and a schedule has no year: leave it out",
            ),
            ("0 0 1 1 * * *", "`*` stands where some programs take a year"),
            (
                "0 12 * * ? 2027-2030",
                "`2027-2030` stands where some programs take a year",
            ),
            ("@reboot", "a schedule knows no boots"),
            ("@every 1h", "it has 2 fields"),
            (
                "@fortnightly",
                "there is no `@fortnightly`; give @hourly, @daily, @midnight, @weekly, @monthly or @yearly",
            ),
        ] {
            let refused = refusal(expression, "UTC");
            assert!(refused.contains(told), "{refused}");
            let begins = format!("`{expression}` is not a cron expression: ");
            assert!(refused.starts_with(&begins), "{refused}");
        }
    }

    /// Every expression that the check accepts can be read, and so can older ones.
    #[test]
    fn checked_expressions_can_be_read() {
        let items = [
            "*",
            "?",
            "*/2",
            "5",
            "05",
            "1-5",
            "1-5/2",
            "2/2",
            "L",
            "LW",
            "15W",
            "1,15",
            "3,LW",
            "LW,L",
            "mon",
            "mon-fri",
            "fri-sun",
            "sun-tue",
            "5L",
            "friL",
            "fri#2",
            "fri#L",
            "mon,fri#1",
            "+mon",
            "+1-5",
            "7",
            "0",
            "jan",
            "jan-mar",
            "feb,dec",
        ];
        let mut taken = 0;
        for first in items {
            for second in items {
                for fields in [
                    format!("{first} {second} * * *"),
                    format!("0 0 {first} * {second}"),
                    format!("0 0 1 {first} {second}"),
                    format!("{first} 0 0 {second} * *"),
                ] {
                    let rule = RecurrenceRule::Cron {
                        expression: fields.clone(),
                        time_zone: "UTC".to_owned(),
                    };
                    if rule.check().is_ok() {
                        taken += 1;
                        if let Err(refused) = rule.recurrence(Timestamp(0)) {
                            panic!("`{fields}` is checked and refused: {refused}");
                        }
                    }
                }
            }
        }
        assert!(taken > 600, "{taken}");
        for stored in ["*/90 * * * *", "0 0 12 1 1 ? 2999", "0,,5 * * * *"] {
            let next = Recurrence::cron(stored, "UTC").unwrap().next_after(Timestamp(0));
            assert!(next.is_some(), "{stored}");
        }
    }

    #[test]
    fn the_last_weekday_of_a_month_is_from_monday_to_friday() {
        let days = |expression: &str, count: usize| -> Vec<String> {
            let recurrence = Recurrence::cron(expression, "UTC").unwrap();
            let first = recurrence.next_after(at("2026-01-01T00:00:00Z"));
            let moments = std::iter::successors(first, |moment| recurrence.next_after(*moment));
            let text = |moment: Timestamp| moment.to_string()[5..10].to_owned();
            moments.take(count).map(text).collect()
        };
        // The 31st of January 2026 is a Saturday, the 28th of February too, and the 31st of May is a Sunday.
        assert_eq!(
            days("0 9 LW * *", 6),
            ["01-30", "02-27", "03-31", "04-30", "05-29", "06-30"]
        );
        assert_eq!(days("0 9 15,lw * ?", 4), ["01-15", "01-30", "02-15", "02-27"]);
        assert_eq!(days("0 9 LW 2 +mon", 2), ["02-28", "02-28"], "2033 and 2039");
        assert_eq!(
            days("0 9 LW * sun", 6),
            ["01-04", "01-11", "01-18", "01-25", "01-30", "02-01"]
        );
        let twice = Recurrence::cron("0 9,17 LW * *", "UTC").unwrap();
        assert_eq!(
            twice.next_after(at("2026-01-30T09:00:00Z")),
            Some(at("2026-01-30T17:00:00Z"))
        );
        assert!(Recurrence::cron("0 9 LW * +sat", "UTC").is_err());
    }

    #[test]
    fn intervals_count_from_their_anchor() {
        let every = Recurrence::every(1_000, Timestamp(500)).unwrap();
        for (after, next) in [
            (0, 500),
            (499, 500),
            (500, 1_500),
            (1_499, 1_500),
            (9_999, 10_500),
        ] {
            assert_eq!(
                every.next_after(Timestamp(after)),
                Some(Timestamp(next)),
                "after {after}"
            );
        }
        let between = |after, until, count_max| every.between(Timestamp(after), Timestamp(until), count_max);
        assert_eq!(between(500, 1_499, 9), []);
        assert_eq!(between(500, 3_500, 9), [1_500, 2_500, 3_500].map(Timestamp));
        assert_eq!(between(500, 3_500, 2), [1_500, 2_500].map(Timestamp));
    }
}
