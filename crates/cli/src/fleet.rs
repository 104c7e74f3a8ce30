//! The commands of a fleet: workers, servers, agents and their tokens.

#[cfg(feature = "full")]
pub mod agent;
#[cfg(feature = "full")]
mod built_in;
#[cfg(feature = "full")]
mod dashboard;
#[cfg(feature = "full")]
pub mod llm;
#[cfg(feature = "full")]
mod serve;
#[cfg(feature = "full")]
mod token;
pub mod worker;
pub mod working;

#[cfg(feature = "full")]
use crate::{arguments::fleet::FleetCommand, exit::Exit, telemetry::Telemetry};

/// Runs a command of servers and agents.
#[cfg(feature = "full")]
pub async fn execute(command: FleetCommand, telemetry: Option<&Telemetry>) -> anyhow::Result<Exit> {
    match command {
        FleetCommand::Serve(arguments) => serve::serve(arguments, telemetry).await,
        FleetCommand::Dashboard(arguments) => dashboard::dashboard(arguments).await,
        FleetCommand::Agent(arguments) => agent::agent(arguments).await,
        FleetCommand::Token(arguments) => token::token(arguments),
    }
}
