//! Replaces the logs of servers.

use crate::arguments::job::LogsArguments;
use crate::exit::Exit;
use crate::left_out::left_out;

/// Refuses.
pub async fn of_servers(_arguments: &LogsArguments) -> anyhow::Result<Exit> {
    Err(left_out("the client of servers"))
}
