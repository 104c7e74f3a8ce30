//! The commands of knowledge bases.

pub mod ask;
pub mod chat;
mod dry_run;
mod events;
mod extraction_jobs;
pub mod ingest;
mod ingest_progress;
pub mod manage;
pub mod mcp;
pub mod models;
mod overwrite;
mod pipe;
mod place;
pub mod recall;
pub mod served;
mod shown;
pub mod sources;

use crate::arguments::memory::KnowledgeCommand;
use crate::exit::Exit;

/// Runs a command.
pub async fn execute(command: KnowledgeCommand) -> anyhow::Result<Exit> {
    match command {
        KnowledgeCommand::Ingest(arguments) => ingest::ingest(arguments).await,
        KnowledgeCommand::Recall(arguments) => recall::recall(arguments).await,
        KnowledgeCommand::Ask(arguments) => ask::ask(arguments).await,
        KnowledgeCommand::Chat(arguments) => chat::chat(arguments).await,
        KnowledgeCommand::Memory(arguments) => manage::manage(arguments).await,
        KnowledgeCommand::Mcp(arguments) => mcp::mcp(arguments).await,
    }
}
