//! Questions: the search query that a model (or the [local parser](question)) makes of a question, and the term groups
//! that it is compiled to (see [`mod@compile`]).

pub mod compile;
pub mod expression;
pub mod question;
pub mod search_query;
pub mod time;

pub use compile::{CompileOptions, compile};
pub use expression::{
    BooleanOp, Expression, Group, Node, PropertyName, PropertyTerm, SearchTerm, Select, Term, When,
};
pub use question::{Understood, parse_question, understand};
pub use search_query::SearchQuery;
