//! Calls of language models.
//!
//! * [`service`]: the client of a model service: retries, pauses, refused parameters, and one [limiter](service::limiter)
//!   for all calls. Memory calls its models by it, too.
//! * [`job`]: the handler of jobs of the kind `llm`. A job is one [`Request`](request::Request), and its value one
//!   [`Answered`](answered::Answered).
//! * [`calls`]: runs the jobs of a micro-batch whose work is calls: what has called is awaited, and the rest given back.
//! * [`provider`]: the wire formats of providers. [`schema`]: checks answers. [`prices`]: prices them.

pub mod answered;
pub mod calls;
pub mod job;
pub mod limits;
pub mod prices;
pub mod provider;
pub mod request;
pub mod schema;
pub mod service;
