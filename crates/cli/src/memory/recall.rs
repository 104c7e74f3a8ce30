//! `gristmill recall`: knowledge and messages about a question.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use gristmill_memory::extract::{LimiterSettings, Usage};
use gristmill_memory::query::search_query::SearchQuery;
use gristmill_memory::recall::{RecallOptions, Recalled, RecalledMessage, RecalledRef, recall_query};
use gristmill_memory::{Memory, MemoryError, TimeRange, ask, recorded};
use gristmill_model::{Clock, SystemClock, Timestamp};
use serde::Serialize;

use crate::arguments::memory::{KnowledgeArguments, ParserChoice, RecallArguments, ScopeArguments};
use crate::arguments::model::{EmbedderArguments, RerankChoice, ServiceArguments};
use crate::exit::Exit;
use crate::memory::shown::{Shown, knowledge_line, messages_text, plain};
use crate::output::target::refuse_database;
use crate::output::{OutputError, color, print_harmless, print_line};
use crate::span::show_count;
use crate::store::open::refuse_shown_password;

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
            sources: self.sources.clone(),
            speakers: self.speakers.clone(),
            threads: self.threads.clone(),
            time_range: is_timed.then(|| TimeRange {
                start: self.since.map_or(Timestamp(i64::MIN), |since| since.at),
                end: self.until.map(|until| until.at),
            }),
            ..RecallOptions::default()
        }
    }
}

/// A knowledge base of the command, with the name that the user gave it.
struct Base {
    name: String,
    memory: Memory,
}

/// The answer of one knowledge base.
struct FromBase {
    base: String,
    recalled: Recalled,
}

/// Runs the command.
pub async fn recall(arguments: RecallArguments) -> anyhow::Result<Exit> {
    let (locations, question) = arguments.bases_and_question()?;
    let mut bases = Vec::new();
    for knowledge in locations {
        let name = knowledge.to_string();
        let knowledge = KnowledgeArguments { knowledge };
        let memory = knowledge
            .open_with(&arguments.embedder, &arguments.service)
            .await?;
        bases.push(Base { name, memory });
    }
    if let Some(questions) = &arguments.recorded {
        return run_recorded(&bases[0].memory, questions, &arguments.output).await;
    }
    let question = question.as_deref().unwrap_or_default();
    let options = RecallOptions {
        explain: arguments.explain,
        reranker: arguments.rerank.open()?,
        ..arguments.scope.options()
    };
    let mut found = Vec::new();
    let mut unknown = options.sources.clone();
    for Base { name, memory } in &bases {
        let mut options = options.clone();
        if bases.len() > 1 && !options.sources.is_empty() {
            // Each knowledge base has some of the named sources.
            let columns = memory.knowledge().columns().await?;
            options
                .sources
                .retain(|source| !columns.sources_named(source).is_empty());
            unknown.retain(|source| !options.sources.contains(source));
            if options.sources.is_empty() {
                continue;
            }
        }
        found.push(FromBase {
            base: name.clone(),
            recalled: recall_for(&arguments, memory, question, &options).await?,
        });
    }
    if let Some(source) = unknown.into_iter().next().filter(|_| bases.len() > 1) {
        return Err(MemoryError::SourceUnknown(source).into());
    }
    let is_empty = found
        .iter()
        .all(|from| from.recalled.messages.is_empty() && from.recalled.knowledge.is_empty());
    if arguments.json {
        print_line(&json(&found, bases.len() > 1, options.messages_max)?)?;
    } else if is_empty {
        say!("gristmill: nothing found");
    } else {
        let shown = Shown {
            full: arguments.full,
            marked: color::on_stdout(),
        };
        print_harmless(&text(&found, bases.len() > 1, options.messages_max, shown))?;
    }
    Ok(if is_empty { Exit::SomeFailed } else { Exit::Done })
}

/// The messages of all knowledge bases, best first, each with its knowledge base. The scores of knowledge bases are comparable: they
/// are sums of the rarities of words.
fn best_messages(found: &[FromBase], messages_max: Option<usize>) -> Vec<(&str, &RecalledMessage)> {
    let mut all: Vec<(&str, &RecalledMessage)> = found
        .iter()
        .flat_map(|from| {
            from.recalled
                .messages
                .iter()
                .map(|message| (from.base.as_str(), message))
        })
        .collect();
    if found.len() > 1 {
        // The sort is stable, so messages with equal scores stay in the order of the knowledge bases.
        all.sort_by(|left, right| right.1.score.total_cmp(&left.1.score));
    }
    all.truncate(messages_max.unwrap_or(usize::MAX));
    all
}

/// The results as one JSON object. With several knowledge bases, each message and each piece of knowledge names its own.
fn json(found: &[FromBase], is_named: bool, messages_max: Option<usize>) -> serde_json::Result<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Named<'a, T> {
        #[serde(skip_serializing_if = "Option::is_none")]
        knowledge_base: Option<&'a str>,
        #[serde(flatten)]
        item: &'a T,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        messages: Vec<Named<'a, RecalledMessage>>,
        knowledge: Vec<Named<'a, RecalledRef>>,
        query: Option<&'a SearchQuery>,
    }
    let messages = best_messages(found, messages_max);
    let knowledge = found.iter().flat_map(|from| {
        from.recalled
            .knowledge
            .iter()
            .map(|known| (from.base.as_str(), known))
    });
    serde_json::to_string(&Results {
        messages: messages
            .into_iter()
            .map(|(base, item)| Named {
                knowledge_base: is_named.then_some(base),
                item,
            })
            .collect(),
        knowledge: knowledge
            .map(|(base, item)| Named {
                knowledge_base: is_named.then_some(base),
                item,
            })
            .collect(),
        query: found.first().map(|from| &from.recalled.query),
    })
}

fn text(found: &[FromBase], is_named: bool, messages_max: Option<usize>, shown: Shown) -> String {
    let mut lines = Vec::new();
    let messages = best_messages(found, messages_max);
    if !messages.is_empty() {
        let messages = messages
            .into_iter()
            .map(|(base, message)| (is_named.then_some(base), message));
        lines.push(messages_text(messages, shown));
    }
    for FromBase { base, recalled } in found {
        if recalled.knowledge.is_empty() {
            continue;
        }
        lines.push(if is_named {
            format!("Knowledge of {}:", plain(base))
        } else {
            "Knowledge:".to_owned()
        });
        let known = recalled.distinct_knowledge();
        lines.extend(known.iter().map(|known| format!("  {}", knowledge_line(known))));
    }
    lines.join("\n").trim_end().to_owned()
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
