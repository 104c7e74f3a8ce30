//! The commands of a fleet: workers, servers, agents and their tokens.

pub mod agent;
pub mod dashboard;
pub mod serve;
pub mod token;
pub mod worker;
pub mod working;
