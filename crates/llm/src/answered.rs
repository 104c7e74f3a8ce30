//! The value of a job of the kind `llm`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::service::TokenUsage;

/// The value of a job of the kind `llm`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The model's words, unless the request has a schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The answer as JSON of the request's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
    /// The model that replied, as the service calls it.
    pub model: String,
    /// The tokens that are paid; unknown if the service does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenUsage>,
    /// The cost in the currency of the prices; unknown without a price of the model, or without the tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The way of the request to the provider.
    pub lane: Lane,
    /// Whether the limit of tokens cut the text off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Whether this is the answer to an equal request of the same batch, which has the tokens and the cost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// The fields of the request that the service does not take, so that it was asked without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
}

/// The way of a request to the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// A call that is answered at once.
    Live,
}

impl Answered {
    /// The same answer for an equal request, which costs nothing.
    pub(crate) fn for_another(&self) -> Answered {
        Answered {
            tokens: self.tokens.map(|_| TokenUsage::default()),
            cost: self.cost.map(|_| 0.0),
            shared: true,
            ..self.clone()
        }
    }
}
