//! The HTTP API over an engine, under `/api/v1`. Clients submit, query, change and watch jobs; agents claim and report
//! them. [`serve()`] runs it.
//!
//! * Every operation is a file in [`endpoints`] and a line in [`rules`], which lists the roles that may use it. An
//!   operation without a rule is denied.
//! * [`trust`] checks tokens: signed, listed, not expired, not revoked. A server without a trust folder listens only on
//!   loopback.
//! * Agents report and claim in one request, the exchange of `gristmill-protocol`, whose packed texts pass through as they are.
//! * The [`dashboard`] is a page at `/` over the same operations.
//! * [`limits`] has every limit, and [`error`] every refusal.

pub mod app;
pub mod body;
pub mod caller;
pub mod connections;
pub mod dashboard;
pub mod endpoints;
pub mod error;
pub mod knowledge;
pub mod limits;
pub mod metrics;
pub mod openapi;
pub mod rate;
pub mod room;
pub mod rules;
pub mod serve;
pub mod sessions;
pub mod trust;
pub mod wake;

pub use caller::{EventScope, Role};
pub use connections::ConnectionLimits;
pub use error::{ApiError, Refusal};
pub use knowledge::Knowledge;
pub use serve::{BoundServer, ServeError, ServeOptions, TlsFiles, bind, serve};
pub use trust::{NewToken, TokenRecord, TrustError, TrustFolder};
