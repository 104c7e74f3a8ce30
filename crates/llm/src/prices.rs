//! The prices of models, from a table that the user gives.
//!
//! ```toml
//! [small]               # the model's name; a name with points needs quotes: ["small-1.5"]
//! input = 0.15          # of a million tokens
//! output = 0.60
//! cached = 0.075        # of a million tokens that the service knew from an earlier call; as input if left out
//!
//! ["small-*"]           # names that begin so; the longest beginning counts
//! input = 0.20
//! output = 0.80
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use toml_edit::{DocumentMut, Item};

use crate::limits::PRICES_BYTES_MAX;
use crate::service::TokenUsage;

/// Tokens that a price is for.
const PRICED_TOKENS: f64 = 1e6;

/// The prices of models.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Prices {
    by_name: BTreeMap<String, Price>,
    by_beginning: BTreeMap<String, Price>,
}

/// The prices of a million tokens of one model.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Price {
    input: f64,
    output: f64,
    cached: f64,
}

/// The reason why a table of prices cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PricesError(String);

impl Prices {
    /// Reads the table in a file.
    ///
    /// # Errors
    ///
    /// [`PricesError`] with the place and the problem.
    pub fn read(path: &Path) -> Result<Prices, PricesError> {
        let failed = |reason: String| PricesError(format!("the prices in {}: {reason}", path.display()));
        let bytes = std::fs::metadata(path)
            .map_err(|error| failed(error.to_string()))?
            .len();
        if bytes > PRICES_BYTES_MAX {
            return Err(failed(format!(
                "{bytes} bytes; a table has at most {PRICES_BYTES_MAX}"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Prices::parse(&text).map_err(|error| failed(error.to_string()))
    }

    /// Parses a table.
    ///
    /// # Errors
    ///
    /// [`PricesError`] with the problem.
    pub fn parse(text: &str) -> Result<Prices, PricesError> {
        let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
            PricesError(error.to_string().trim().replace('\n', " "))
        })?;
        let mut prices = Prices::default();
        for (model, item) in document.iter() {
            let price = Price::of(model, item)?;
            match model.strip_suffix('*') {
                Some(beginning) => prices.by_beginning.insert(beginning.to_owned(), price),
                None => prices.by_name.insert(model.to_owned(), price),
            };
        }
        Ok(prices)
    }

    /// The cost of a call, or `None` if the table has no price of the model. A service may call the model by a longer name
    /// than the one that was asked.
    pub fn cost(&self, asked: &str, replied: Option<&str>, tokens: &TokenUsage) -> Option<f64> {
        let price = self.price(asked).or_else(|| self.price(replied?))?;
        let fresh = tokens.prompt_tokens.saturating_sub(tokens.cached_tokens) as f64;
        let sum = fresh * price.input
            + tokens.cached_tokens as f64 * price.cached
            + tokens.completion_tokens as f64 * price.output;
        Some(sum / PRICED_TOKENS)
    }

    fn price(&self, model: &str) -> Option<&Price> {
        let beginnings = || {
            let begun = self
                .by_beginning
                .iter()
                .filter(|(beginning, _)| model.starts_with(beginning.as_str()));
            begun
                .max_by_key(|(beginning, _)| beginning.len())
                .map(|(_, price)| price)
        };
        self.by_name.get(model).or_else(beginnings)
    }
}

impl Price {
    fn of(model: &str, item: &Item) -> Result<Price, PricesError> {
        let refused = |reason: String| PricesError(format!("[{model}]: {reason}"));
        let table = item
            .as_table_like()
            .ok_or_else(|| refused("write a table with `input` and `output`".to_owned()))?;
        let mut known = BTreeMap::new();
        for (name, value) in table.iter() {
            if value.is_table_like() {
                return Err(refused(format!(
                    "`{name}` is a table: a model's name with a point needs quotes, as in [\"{model}.{name}\"]"
                )));
            }
            if !["input", "output", "cached"].contains(&name) {
                return Err(refused(format!(
                    "`{name}` is unknown: the prices are input, output and cached"
                )));
            }
            let number = value
                .as_float()
                .or_else(|| value.as_integer().map(|whole| whole as f64));
            match number.filter(|price| price.is_finite() && *price >= 0.0) {
                Some(price) => known.insert(name.to_owned(), price),
                None => {
                    return Err(refused(format!(
                        "`{name}` is no price: write a number such as 0.15"
                    )));
                }
            };
        }
        let get = |name: &str| known.get(name).copied();
        let (Some(input), Some(output)) = (get("input"), get("output")) else {
            return Err(refused(
                "`input` and `output` are needed, for a million tokens each".to_owned(),
            ));
        };
        Ok(Price {
            input,
            output,
            cached: get("cached").unwrap_or(input),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_a_call() {
        let prices = Prices::parse(
            "[small]\ninput = 1\noutput = 2.5\ncached = 0.5\n[\"small-*\"]\ninput = 4.0\noutput = 4\n[\"small-1*\"]\ninput = 8\noutput = 8",
        )
        .expect("prices");
        let tokens = TokenUsage {
            prompt_tokens: 3_000,
            completion_tokens: 1_000,
            cached_tokens: 2_000,
        };
        let cost = |asked: &str, replied| {
            prices
                .cost(asked, replied, &tokens)
                .map(|cost| (cost * 1e6).round())
        };
        assert_eq!(cost("small", None), Some(1_000.0 + 1_000.0 + 2_500.0));
        assert_eq!(cost("small-2", None), Some(16_000.0));
        assert_eq!(cost("small-1.5", None), Some(32_000.0));
        assert_eq!(cost("other", None), None);
        assert_eq!(cost("latest", Some("small-2")), Some(16_000.0));
    }

    #[test]
    fn a_table_with_a_mistake_says_where() {
        for (text, reason) in [
            ("[m]\ninput = 1", "[m]: `input` and `output`"),
            ("[m]\ninput = 1\noutput = -1", "`output` is no price"),
            ("[m]\ninput = 1\noutput = nan", "`output` is no price"),
            ("[m]\ninput = 1\noutput = 1\ninptu = 1", "`inptu` is unknown"),
            ("[gpt-4.1]\ninput = 1\noutput = 1", "[\"gpt-4.1\"]"),
            ("m = 3", "[m]: write a table"),
            ("[m", "TOML"),
        ] {
            let error = Prices::parse(text).expect_err(text);
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
    }
}
