//! Shows the progress of a run or a worker: a bar on a terminal, plain lines elsewhere.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use crate::span::{show_count, show_seconds};

/// The interval of updates of a terminal.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// The interval of lines elsewhere.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The time over which the rate is measured.
const RATE_OVER: Duration = Duration::from_secs(5);

/// The progress at one time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Snapshot {
    /// The number of completed jobs.
    pub completed: u64,
    /// The number of jobs that failed for good.
    pub failed: u64,
    /// The number of failed attempts that another one follows.
    pub retried: u64,
    /// The number of ended children of these jobs, which the other numbers do not include, and how many of them failed
    /// for good.
    pub children: u64,
    pub children_failed: u64,
    /// The number of all jobs, if known.
    pub total: Option<u64>,
    /// The total is an estimate from the bytes read so far.
    pub total_is_guessed: bool,
}

/// A progress that can be shown repeatedly.
pub trait Shown {
    /// The finished work.
    fn done(&self) -> u64;

    /// The total work, if known.
    fn total(&self) -> Option<u64>;

    /// One line with the progress and the throughput.
    fn describe(&self, rate: Option<f64>) -> String;
}

impl Shown for Snapshot {
    fn done(&self) -> u64 {
        self.completed + self.failed
    }

    fn total(&self) -> Option<u64> {
        self.total
    }

    fn describe(&self, rate: Option<f64>) -> String {
        describe(self, rate)
    }
}

/// The place where progress is shown.
enum Place {
    Bar(ProgressBar),
    Lines,
    Nowhere,
}

/// The progress of one command.
pub struct Progress {
    place: Place,
    samples: VecDeque<(Instant, u64)>,
}

impl Progress {
    /// Shows progress on standard error, unless `quiet`. Uses a bar if that is a terminal and nothing else writes there.
    pub fn new(quiet: bool, results_on_stdout: bool) -> Progress {
        let stderr_is_terminal = std::io::stderr().is_terminal();
        let shares_terminal = results_on_stdout && std::io::stdout().is_terminal();
        let place = match (quiet || shares_terminal, stderr_is_terminal) {
            (true, _) => Place::Nowhere,
            (false, true) => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(12));
                bar.set_style(style(false));
                Place::Bar(bar)
            }
            (false, false) => Place::Lines,
        };
        Progress {
            place,
            samples: VecDeque::new(),
        }
    }

    /// Shows the result of `look` repeatedly, until the future is dropped.
    pub async fn show<S: Shown>(mut self, look: impl Fn() -> S) {
        let every = match self.place {
            Place::Bar(_) => DRAW_EVERY,
            Place::Lines => LINE_EVERY,
            Place::Nowhere => return std::future::pending().await,
        };
        // The first line is drawn at once, because the first tick of `interval` can take a millisecond.
        let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.draw(&look());
            ticks.tick().await;
        }
    }

    fn draw(&mut self, now: &impl Shown) {
        let rate = self.rate(now.done());
        match &self.place {
            Place::Bar(bar) => {
                if bar.length() != now.total() {
                    bar.set_style(style(now.total().is_some()));
                    if let Some(total) = now.total() {
                        bar.set_length(total);
                    }
                }
                bar.set_position(now.done());
                bar.set_message(now.describe(rate));
                bar.tick();
            }
            Place::Lines if is_news(now, rate) => {
                say!("gristmill: {}", now.describe(rate));
            }
            Place::Lines | Place::Nowhere => {}
        }
    }

    /// Jobs per second over the last few seconds. `None` before the second measurement.
    fn rate(&mut self, done: u64) -> Option<f64> {
        let now = Instant::now();
        self.samples.push_back((now, done));
        while self.samples.len() > 2 && now - self.samples[1].0 >= RATE_OVER {
            self.samples.pop_front();
        }
        let (since, before) = self.samples[0];
        let seconds = (now - since).as_secs_f64();
        (seconds > 0.0).then(|| done.saturating_sub(before) as f64 / seconds)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Place::Bar(bar) = &self.place {
            bar.finish_and_clear();
        }
    }
}

/// Reports whether a line is worth showing. An idle worker, which has no total, has no news.
fn is_news(now: &impl Shown, rate: Option<f64>) -> bool {
    rate.is_some_and(|rate| rate > 0.0 || now.total().is_some())
}

fn style(total_is_known: bool) -> ProgressStyle {
    let template = match (total_is_known, crate::output::color::on_stderr()) {
        (true, true) => "{wide_bar:.green} {percent:>3}% {msg}",
        (true, false) => "{wide_bar} {percent:>3}% {msg}",
        (false, true) => "{spinner:.green} {msg}",
        (false, false) => "{spinner} {msg}",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The progress in one line.
fn describe(now: &Snapshot, rate: Option<f64>) -> String {
    let done = now.completed + now.failed;
    let mut text = show_count(done);
    if let Some(total) = now.total {
        let about = if now.total_is_guessed { "about " } else { "" };
        text.push_str(&format!(" of {about}{}", show_count(total)));
    }
    text.push_str(" done");
    if now.failed > 0 {
        text.push_str(&format!(", {} failed", show_count(now.failed)));
    }
    if now.children > 0 {
        text.push_str(&format!(", {} done", show_children(now.children)));
        if now.children_failed > 0 {
            text.push_str(&format!(" ({} failed)", show_count(now.children_failed)));
        }
    }
    if now.retried > 0 {
        text.push_str(&format!(", {} to try again", show_count(now.retried)));
    }
    if let Some(rate) = rate {
        text.push_str(&format!(", {} jobs/s", show_rate(rate)));
        if let Some(total) = now.total.filter(|_| rate > 0.0) {
            let seconds = total.saturating_sub(done) as f64 / rate;
            text.push_str(&format!(", {} left", show_seconds(seconds.ceil() as u64)));
        }
    }
    text
}

/// Shows a number of children.
pub fn show_children(count: u64) -> String {
    match count {
        1 => "1 child".to_owned(),
        _ => format!("{} children", show_count(count)),
    }
}

/// Writes a rate or a mean, as a whole number if it is large.
pub fn show_rate(rate: f64) -> String {
    if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        show_count(rate.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_what_is_known() {
        let mut now = Snapshot {
            completed: 1_200,
            ..Snapshot::default()
        };
        assert_eq!(describe(&now, None), "1,200 done");
        now = Snapshot {
            failed: 34,
            retried: 2,
            total: Some(100_000),
            total_is_guessed: true,
            ..now
        };
        assert_eq!(
            describe(&now, Some(9_876.6)),
            "1,234 of about 100,000 done, 34 failed, 2 to try again, 9,877 jobs/s, 10s left"
        );
        assert!(!describe(&now, Some(0.0)).contains("left"));
        now = Snapshot {
            completed: 10,
            children: 23_247,
            children_failed: 2,
            total: Some(20),
            ..Snapshot::default()
        };
        assert_eq!(
            describe(&now, Some(1.0)),
            "10 of 20 done, 23,247 children done (2 failed), 1.0 jobs/s, 10s left"
        );
    }

    #[test]
    fn an_idle_worker_has_no_news() {
        let worker = Snapshot {
            completed: 7,
            ..Snapshot::default()
        };
        let run = Snapshot {
            total: Some(9),
            ..worker
        };
        assert!(!is_news(&worker, None) && !is_news(&worker, Some(0.0)));
        assert!(is_news(&worker, Some(0.5)) && is_news(&run, Some(0.0)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_covers_the_last_seconds() {
        let mut progress = Progress {
            place: Place::Nowhere,
            samples: VecDeque::new(),
        };
        assert_eq!(progress.rate(0), None);
        for second in 1..=20u64 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let done = if second <= 10 {
                second * 1_000
            } else {
                10_000 + (second - 10) * 10
            };
            let rate = progress.rate(done).unwrap();
            if second == 10 {
                assert_eq!(rate.round(), 1_000.0);
            }
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(progress.rate(10_110).unwrap().round(), 10.0);
    }
}
