use std::str::FromStr;

use chrono::{DateTime, TimeZone, Utc};

fn tell(library: &str, moments: Option<Vec<DateTime<Utc>>>) {
    let text = |moment: &DateTime<Utc>| moment.format("%Y-%m-%dT%H:%MZ").to_string();
    let told = moments.map(|moments| moments.iter().map(text).collect::<Vec<_>>().join(" "));
    println!("{library}: {}", told.unwrap_or_else(|| "refused".to_owned()));
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let (expression, count) = (&given[0], given[3].parse().unwrap());
    let zone: chrono_tz::Tz = given[1].parse().unwrap();
    let start: DateTime<Utc> = given[2].parse().unwrap();
    let local = zone.from_utc_datetime(&start.naive_utc());
    // It wants seconds.
    let cron = cron::Schedule::from_str(&format!("0 {expression}")).ok();
    let utc = |moment: DateTime<chrono_tz::Tz>| moment.with_timezone(&Utc);
    tell("Rust cron", cron.map(|cron| cron.after(&local).take(count).map(utc).collect()));
    let croner = croner::Cron::from_str(expression).ok();
    tell("Rust croner", croner.map(|cron| cron.iter_after(local).take(count).map(utc).collect()));
    // It knows UTC alone.
    let saffron = expression.parse::<saffron::Cron>().ok().filter(|_| zone == chrono_tz::UTC);
    tell("Rust saffron", saffron.map(|cron| cron.iter_after(start).take(count).collect()));
}
