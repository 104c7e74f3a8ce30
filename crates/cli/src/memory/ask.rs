//! `gristmill ask`: an answer with its sources.

use gristmill_memory::ask::{Answer, AskOptions, QuestionParser};
use gristmill_memory::extract::LimiterSettings;
use gristmill_memory::recall::RecallOptions;
use gristmill_model::{Clock, SystemClock};

use super::shown::{heading, plain};
use crate::arguments::memory::{AnsweringArguments, AskArguments, ParserChoice};
use crate::arguments::model::RerankChoice;
use crate::exit::Exit;
use crate::output::print_line;
use crate::output::table::cut;

/// The number of characters of a source to show.
const SOURCE_CHARACTERS_SHOWN: usize = 120;

impl AnsweringArguments {
    /// The options of answers. Opens the cross-encoder, if one is chosen.
    pub fn options(&self, recall: RecallOptions) -> anyhow::Result<AskOptions> {
        Ok(AskOptions {
            recall: RecallOptions {
                reranker: self.rerank.open()?,
                ..recall
            },
            parser: match self.parser {
                ParserChoice::Rules => QuestionParser::Rules,
                ParserChoice::Model => QuestionParser::Model,
            },
            context_tokens_max: self.context_tokens as usize,
            answer_tokens_max: self.answer_tokens,
            asked_at: Some(SystemClock.now()),
            rerank: self.rerank == RerankChoice::Model,
        })
    }
}

/// Runs the command.
pub async fn ask(arguments: AskArguments) -> anyhow::Result<Exit> {
    let asking = &arguments.asking;
    let options = asking.answering.options(asking.scope.options())?;
    let memory = arguments
        .knowledge
        .open_with(&asking.embedder, &asking.service)
        .await?;
    let service = asking
        .service
        .reachable_service("`gristmill ask`", LimiterSettings::default())
        .await?;
    let answer = memory.ask(&service, &arguments.question, &options).await?;
    if arguments.json {
        print_line(&serde_json::to_string(&answer)?)?
    } else {
        print_line(&text(&answer))?
    }
    Ok(if answer.answered {
        Exit::Done
    } else {
        Exit::SomeFailed
    })
}

/// An answer with its sources, for a terminal.
pub fn text(answer: &Answer) -> String {
    let mut lines = vec![plain(&answer.text)];
    if !answer.citations.is_empty() {
        lines.push("\nSources:".to_owned());
    }
    for citation in &answer.citations {
        let text = plain(citation.message.message.message.text().trim()).replace('\n', " ");
        lines.push(format!("  [{}] {}", citation.number, heading(&citation.message)));
        lines.push(format!("      {}", cut(&text, SOURCE_CHARACTERS_SHOWN)));
    }
    lines.join("\n")
}
