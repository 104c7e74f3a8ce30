//! `gristmill recall`: knowledge and messages about a question.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use gristmill_memory::extract::{LimiterSettings, Usage};
use gristmill_memory::knowledge::{Facet, FacetValue};
use gristmill_memory::recall::{RecallOptions, Recalled, RecalledMessage, recall_query};
use gristmill_memory::{Action, Entity, Knowledge, Memory, TimeRange, ask, recorded};
use gristmill_model::{Clock, SystemClock, Timestamp};

use crate::arguments::memory::{
    KnowledgeArguments, ParserChoice, RecallArguments, RerankChoice, ScopeArguments,
};
use crate::arguments::model::{EmbedderArguments, ServiceArguments};
use crate::exit::Exit;
use crate::output::table::cut;
use crate::output::target::refuse_database;
use crate::output::{OutputError, print_line};
use crate::span::show_count;
use crate::store::open::refuse_shown_password;

/// The number of characters of a message to show.
const MESSAGE_CHARACTERS_SHOWN: usize = 400;

impl KnowledgeArguments {
    /// Opens the knowledge base, which must exist.
    pub async fn open(&self) -> anyhow::Result<Memory> {
        refuse_shown_password(&self.knowledge)?;
        Ok(Memory::open_place(&self.knowledge.place(), false).await?)
    }

    /// Opens the knowledge base, which must exist, for questions with the embedder of the arguments. Refuses an
    /// embedder other than the one of its vectors. Prints a message if recall uses words only although there are
    /// vectors or an embedder.
    pub async fn open_with(
        &self,
        embedder: &EmbedderArguments,
        service: &ServiceArguments,
    ) -> anyhow::Result<Memory> {
        let embedder = embedder.open(service)?;
        let memory = self.open().await?;
        match (&embedder, memory.knowledge().embedder().await?) {
            (Some(embedder), Some(stored)) => stored.check(&embedder.identity())?,
            (Some(_), None) => say!(
                "gristmill: {} has no vectors, so that it finds by words alone; make them with \
                 `gristmill ingest --into {} --embedder …`",
                self.knowledge,
                self.knowledge
            ),
            (None, Some(stored)) => say!(
                "gristmill: {} has vectors of {}, and finds by words alone without `--embedder`",
                self.knowledge,
                stored.model
            ),
            (None, None) => {}
        }
        Ok(memory.with_embedder(embedder))
    }
}

impl ScopeArguments {
    /// The options of recall.
    pub fn options(&self) -> RecallOptions {
        let is_timed = self.since.is_some() || self.until.is_some();
        RecallOptions {
            messages_max: Some(self.limit as usize),
            zone_minutes: self.zone,
            tags: self.tags.clone(),
            time_range: is_timed.then(|| TimeRange {
                start: self.since.map_or(Timestamp(i64::MIN), |since| since.at),
                end: self.until.map(|until| until.at),
            }),
            ..RecallOptions::default()
        }
    }
}

/// Runs the command.
pub async fn recall(arguments: RecallArguments) -> anyhow::Result<Exit> {
    let memory = arguments
        .knowledge
        .open_with(&arguments.embedder, &arguments.service)
        .await?;
    if let Some(questions) = &arguments.recorded {
        return run_recorded(&memory, questions, &arguments.output).await;
    }
    let question = arguments.question.as_deref().unwrap_or_default();
    let options = RecallOptions {
        refs_max: Some(arguments.knowledge_limit as usize),
        ..arguments.scope.options()
    };
    let recalled = recall_for(&arguments, &memory, question, &options).await?;
    let is_empty = recalled.messages.is_empty() && recalled.knowledge.is_empty();
    if arguments.json {
        print_line(&serde_json::to_string(&recalled)?)?;
    } else if is_empty {
        say!("gristmill: nothing found");
    } else {
        print_line(&text(&recalled, arguments.full))?;
    }
    Ok(if is_empty { Exit::SomeFailed } else { Exit::Done })
}

/// Recalls by rules, or with a model that parses the question, ranks the first messages again, or both.
async fn recall_for(
    arguments: &RecallArguments,
    memory: &Memory,
    question: &str,
    options: &RecallOptions,
) -> anyhow::Result<Recalled> {
    let is_parsed = arguments.parser == ParserChoice::Model;
    let is_reranked = arguments.rerank == RerankChoice::Model;
    if !is_parsed && !is_reranked {
        return Ok(memory.recall(question, options).await?);
    }
    let what = if is_parsed {
        "--parser model"
    } else {
        "--rerank model"
    };
    let service = arguments
        .service
        .reachable_service(what, LimiterSettings::default())
        .await?;
    let (store, mut usage) = (&**memory.knowledge(), Usage::default());
    let query = if is_parsed {
        ask::search_query(store, &service, question, Some(SystemClock.now()), &mut usage).await?
    } else {
        None
    };
    let relations = memory.relations();
    Ok(if is_reranked {
        ask::recall_reranked(store, &service, question, query, &relations, options, &mut usage).await?
    } else {
        recall_query(store, question, query, &relations, options).await?
    })
}

/// Runs the search queries of recorded questions, and writes the results.
async fn run_recorded(memory: &Memory, questions: &Path, output: &Path) -> anyhow::Result<Exit> {
    let questions = recorded::read(questions)?;
    let candidates = recorded::run(&**memory.knowledge(), &questions, &RecallOptions::default()).await?;
    let text = serde_json::to_string(&candidates)?;
    if output == Path::new("-") {
        print_line(&text)?;
        return Ok(Exit::Done);
    }
    write_file(output, |file| writeln!(file, "{text}"))?;
    say!(
        "gristmill: {} questions run, the results are in {}",
        show_count(candidates.len() as u64),
        output.display()
    );
    Ok(Exit::Done)
}

/// Writes a whole file, and syncs it to disk.
fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> std::io::Result<()>,
) -> Result<(), OutputError> {
    let name = path.display().to_string();
    refuse_database(path)?;
    let file = File::create(path).map_err(|reason| OutputError::Create {
        name: name.clone(),
        reason,
    })?;
    let mut sink = BufWriter::new(&file);
    let written = write(&mut sink).and_then(|()| sink.flush());
    let synced = written.and_then(|()| {
        if file.metadata()?.is_file() {
            file.sync_all()
        } else {
            Ok(())
        }
    });
    synced.map_err(|reason| OutputError::of(name, reason))
}

/// Messages for a terminal, each with its number and an empty line after it.
pub fn messages_text(messages: &[RecalledMessage], full: bool) -> String {
    let mut lines = Vec::new();
    for (number, message) in (1..).zip(messages) {
        lines.push(format!("{number}. {}", heading(message)));
        lines.push(indented(&message.message.message.text(), full));
        lines.push(String::new());
    }
    lines.join("\n")
}

fn text(recalled: &Recalled, full: bool) -> String {
    let mut lines = Vec::new();
    if !recalled.messages.is_empty() {
        lines.push(messages_text(&recalled.messages, full));
    }
    if !recalled.knowledge.is_empty() {
        lines.push("Knowledge:".to_owned());
        let known = recalled.distinct_knowledge();
        lines.extend(known.iter().map(|known| format!("  {}", knowledge_line(known))));
    }
    lines.join("\n").trim_end().to_owned()
}

/// The speaker, time and position of a message.
pub fn heading(recalled: &RecalledMessage) -> String {
    let stored = &recalled.message;
    let mut parts = vec![format!("{} #{}", stored.source, stored.position)];
    parts.extend(stored.message.speaker.clone());
    parts.extend(stored.message.moment.map(|moment| moment.at.to_string()));
    parts.extend(stored.message.subject.clone());
    plain(&parts.join(" · "))
}

/// Text for a terminal, without the control characters of a message.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if letter.is_control() && letter != '\n' && letter != '\t' {
                ' '
            } else {
                letter
            }
        })
        .collect()
}

fn indented(text: &str, full: bool) -> String {
    let text = plain(text.trim());
    let text = if full {
        text
    } else {
        cut(&text, MESSAGE_CHARACTERS_SHOWN)
    };
    let lines: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| format!("   {line}"))
        .collect();
    lines.join("\n")
}

/// One piece of knowledge on one line.
pub fn knowledge_line(knowledge: &Knowledge) -> String {
    let line = match knowledge {
        Knowledge::Entity(entity) => format!("entity  {}", entity_text(entity)),
        Knowledge::Action(action) => format!("action  {}", action_text(action)),
        Knowledge::Topic(topic) => format!("topic   {}", topic.text),
        Knowledge::Tag(tag) => format!("tag     {}", tag.text),
    };
    plain(&line).replace('\n', " ")
}

fn entity_text(entity: &Entity) -> String {
    let mut text = entity.name.clone();
    if !entity.types.is_empty() {
        text.push_str(&format!(" ({})", entity.types.join(", ")));
    }
    let facets: Vec<String> = entity.facets.iter().map(facet_text).collect();
    if !facets.is_empty() {
        text.push_str(&format!(": {}", facets.join(", ")));
    }
    text
}

fn facet_text(facet: &Facet) -> String {
    match &facet.value {
        Some(value) => format!("{} {}", facet.name, FacetValue::text(value)),
        None => facet.name.clone(),
    }
}

fn action_text(action: &Action) -> String {
    let parts = [
        action.subject_entity_name.clone(),
        Some(action.verb()),
        action.object_entity_name.clone(),
        action
            .indirect_object_entity_name
            .as_ref()
            .map(|name| format!("to {name}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_reaches_a_terminal() {
        assert_eq!(
            indented("Bees\u{1b}[2Jhum\n\n\u{7}loud", false),
            "   Bees [2Jhum\n    loud"
        );
        let long = indented(&"x".repeat(1_000), false);
        assert_eq!(long.chars().count(), MESSAGE_CHARACTERS_SHOWN + 3);
        assert_eq!(indented(&"x".repeat(1_000), true).len(), 1_003);
    }

    #[test]
    fn knowledge_is_one_line() {
        let entity = Knowledge::Entity(Entity {
            name: "Tin\nDrum".to_owned(),
            types: vec!["book".to_owned()],
            facets: vec![Facet {
                name: "author".to_owned(),
                value: Some(FacetValue::Text("Ada".to_owned())),
            }],
        });
        assert_eq!(knowledge_line(&entity), "entity  Tin Drum (book): author Ada");
    }
}
