//! Sums over the values of jobs that asked a model: tokens and cost.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use crate::span::show_count;

/// Models without a price that a summary names.
const UNPRICED_SHOWN_MAX: usize = 5;

/// Models without a price that are counted each by itself.
const UNPRICED_MODELS_MAX: usize = 1_000;

/// The sums of the written values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    answers: u64,
    shared: u64,
    input_tokens: u64,
    output_tokens: u64,
    cached_tokens: u64,
    cost: f64,
    priced: u64,
    /// Answers that are cut off.
    cut: u64,
    /// Answers whose tokens the service does not count.
    uncounted: u64,
    /// The answers of models without a price.
    unpriced: BTreeMap<String, u64>,
}

/// The parts of a value that are summed.
#[derive(Deserialize)]
struct Told<'v> {
    #[serde(borrow)]
    model: Cow<'v, str>,
    /// Values of other jobs have none.
    #[serde(rename = "lane")]
    _lane: Cow<'v, str>,
    #[serde(default)]
    tokens: Option<Tokens>,
    #[serde(default)]
    cut: bool,
    #[serde(default)]
    cost: Option<f64>,
    #[serde(default)]
    shared: bool,
}

#[derive(Deserialize)]
struct Tokens {
    input: u64,
    output: u64,
    #[serde(default)]
    cached: u64,
}

impl Tally {
    /// Adds the value of a job. A value of another form counts for nothing.
    pub fn add(&mut self, value: &str) {
        let Ok(told) = serde_json::from_str::<Told<'_>>(value) else {
            return;
        };
        self.answers += 1;
        self.shared += u64::from(told.shared);
        self.cut += u64::from(told.cut);
        let Some(tokens) = told.tokens else {
            self.uncounted += u64::from(!told.shared);
            return;
        };
        self.input_tokens += tokens.input;
        self.output_tokens += tokens.output;
        self.cached_tokens += tokens.cached;
        match told.cost {
            Some(cost) => {
                self.cost += cost;
                self.priced += 1;
            }
            None if told.shared => {}
            None if self.unpriced.len() < UNPRICED_MODELS_MAX || self.unpriced.contains_key(&*told.model) => {
                *self.unpriced.entry(told.model.into_owned()).or_default() += 1;
            }
            None => {}
        }
    }

    /// The sums for people.
    pub fn text(&self) -> Option<String> {
        if self.answers == 0 {
            return None;
        }
        let mut text = format!("{} tokens in", show_count(self.input_tokens));
        if self.cached_tokens > 0 {
            text.push_str(&format!(" ({} of them cached)", show_count(self.cached_tokens)));
        }
        text.push_str(&format!(", {} out", show_count(self.output_tokens)));
        if self.priced > 0 {
            text.push_str(&format!("; cost {:.4}", self.cost));
        }
        if self.shared > 0 {
            text.push_str(&format!(
                "; {} equal to another request and not paid",
                show_count(self.shared)
            ));
        }
        if self.cut > 0 {
            text.push_str(&format!(
                "; {} cut off by the limit of tokens",
                show_count(self.cut)
            ));
        }
        if self.uncounted > 0 {
            text.push_str(&format!(
                "; the tokens and the cost of {} are unknown, because the service does not count them",
                show_count(self.uncounted)
            ));
        }
        if !self.unpriced.is_empty() {
            let names: Vec<&str> = self
                .unpriced
                .keys()
                .take(UNPRICED_SHOWN_MAX)
                .map(String::as_str)
                .collect();
            let more = if self.unpriced.len() > UNPRICED_SHOWN_MAX {
                " and others"
            } else {
                ""
            };
            text.push_str(&format!(
                "; the cost of {}{more} is unknown: give their prices with --prices",
                names.join(", ")
            ));
        }
        Some(text)
    }

    /// The sums for programs.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "cost": (self.unpriced.is_empty() && self.uncounted == 0).then_some(self.cost),
            "shared": self.shared,
            "cut": self.cut,
            "uncounted": self.uncounted,
            "unpriced_models": self.unpriced.keys().collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_tokens_and_cost_and_names_models_without_a_price() {
        let mut tally = Tally::default();
        assert_eq!(tally.text(), None);
        for value in [
            r#"{"text":"a","model":"m","tokens":{"input":1000,"output":20,"cached":500},"cost":0.25,"lane":"live"}"#,
            r#"{"json":{"a":1},"model":"m","tokens":{"input":0,"output":0,"cached":0},"cost":0.0,"lane":"live","shared":true}"#,
            r#"{"other":"value"}"#,
        ] {
            tally.add(value);
        }
        let text = "1,000 tokens in (500 of them cached), 20 out; cost 0.2500; 1 equal to another request and not paid";
        assert_eq!(tally.text().as_deref(), Some(text));
        assert_eq!(tally.json()["cost"], 0.25);
        tally.add(r#"{"text":"a","model":"m","lane":"live","cut":true}"#);
        let text = tally.text().unwrap_or_default();
        assert!(
            text.contains("; 1 cut off") && text.contains("cost of 1 are unknown"),
            "{text}"
        );
        assert_eq!(tally.json()["cost"], serde_json::Value::Null);
        tally.add(r#"{"text":"a","model":"new \"n\"","tokens":{"input":1,"output":1},"lane":"live"}"#);
        assert!(
            tally
                .text()
                .is_some_and(|text| text.contains("the cost of new \"n\" is unknown"))
        );
        assert_eq!(tally.json()["cost"], serde_json::Value::Null);
    }
}
