//! The command line of knowledge bases: ingest, recall, ask, manage.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use gristmill_memory::Moment;
use gristmill_memory::ask::{ANSWER_TOKENS_DEFAULT, CONTEXT_TOKENS_DEFAULT};
use gristmill_memory::limits::{CHUNK_CHARACTERS_DEFAULT, MESSAGES_DEFAULT};
use gristmill_memory::source::{Format, moment};

use crate::arguments::LeaseArguments;
use crate::model_arguments::{
    CALLS_DEFAULT, CallArguments, EmbedderArguments, ExtractorChoice, ServiceArguments,
};
use crate::span::parse_span;
use crate::store_location::StoreLocation;

/// What `--help` says of the exit statuses of these commands.
const MEMORY_EXIT_STATUS_HELP: &str = "\
Exit status:
  0    done
  1    some chunks failed, nothing was found, or what was named does not exist
  2    the command, its input or its knowledge base is wrong
  130  stopped by Ctrl-C (143 by SIGTERM); nothing that was committed is lost
  141  whoever read the output has closed the pipe";

const MODEL_HELP: &str = "\
The key stands in the environment (OPENAI_API_KEY) or in a file that OPENAI_API_KEY_FILE names; never among
the arguments. Any service that speaks OpenAI's API will do, as llama.cpp's and Ollama's servers do.";

/// A knowledge base: a file or an address.
pub fn parse_knowledge(text: &str) -> Result<StoreLocation, String> {
    match text {
        "" => Err("name a file such as kb.db".to_owned()),
        text => StoreLocation::parse(OsStr::new(text)).map_err(|error| error.to_string()),
    }
}

fn parse_format(text: &str) -> Result<Format, String> {
    Format::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        format!("it is none of {}", names.join(", "))
    })
}

/// An offset from UTC, in minutes.
fn parse_zone(text: &str) -> Result<i16, String> {
    let refuse = || "write the offset from UTC, as in +02:00, -07:00 or Z".to_owned();
    if ["Z", "z", "UTC", "utc"].contains(&text) {
        return Ok(0);
    }
    let (sign, rest) = match text.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => return Err(refuse()),
    };
    let (hours, minutes) = rest.split_once(':').ok_or_else(refuse)?;
    let number = |text: &str, max: i16| text.parse::<i16>().ok().filter(|n| (0..=max).contains(n));
    let (hours, minutes) = number(hours, 14).zip(number(minutes, 59)).ok_or_else(refuse)?;
    Ok(sign * (hours * 60 + minutes))
}

/// A time, in UTC where it tells no zone.
fn parse_moment(text: &str) -> Result<Moment, String> {
    moment::parse(text, None)
        .ok_or_else(|| "write a time such as 2023-05-01 or 2023-05-01T09:30:00+02:00".to_owned())
}

/// An existing knowledge base.
#[derive(Debug, Args)]
pub struct KnowledgeArguments {
    /// The knowledge base that `gristmill ingest --into` made: a file, or postgresql://user@host/database
    #[arg(value_name = "KB", value_parser = parse_knowledge)]
    pub knowledge: StoreLocation,
}

const INGEST_HELP: &str = "\
Sources are podcast transcripts (SPEAKER: …), WebVTT and SRT subtitles, .eml mails and mbox, Markdown, plain
text, and JSON lines such as {\"text\":\"…\",\"speaker\":\"…\",\"timestamp\":\"2023-05-01T07:00:00Z\"}. A folder stands
for all files in it that end as one of these.

Examples:
  gristmill ingest talk.vtt mails/*.eml notes.md --into kb.db
  gristmill ingest mails/ --into kb.db --model gpt-4o-mini --concurrency 64 --tokens-per-minute 400000
  gristmill ingest talk.txt --into kb.db --base-url http://127.0.0.1:8080/v1 --embedder model2vec:models/potion
  curl -s https://notes.example/all.md | gristmill ingest - --name all.md --into kb.db
  gristmill ingest --retry-failed --into kb.db
  gristmill ingest --embedder model2vec:models/potion --into kb.db
  gristmill ingest talk.vtt --into kb.db --on-batch-committed - | jq .messages

A model reads each chunk once; its answer is on disk before it is used, and is never paid for again. A source
that is in the knowledge base and unchanged is skipped, a changed one is replaced at once. Run the same command
again to go on after Ctrl-C, a crash or a reboot. Without a key and without --base-url the rules of --extractor
local read the texts: no network, and weaker answers. An embedder gives vectors to all that is there.";

/// `gristmill ingest`.
#[derive(Debug, Args)]
#[command(after_help = format!("{INGEST_HELP}\n\n{MODEL_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}"))]
pub struct IngestArguments {
    /// Files and folders; - is standard input, which needs --name
    #[arg(value_name = "SOURCE", required_unless_present_any = ["retry_failed", "embedder"])]
    pub sources: Vec<PathBuf>,
    /// The knowledge base: a file, or postgresql://user@host/database; made where there is none
    #[arg(long, value_name = "KB", value_parser = parse_knowledge, env = "GRISTMILL_MEMORY", hide_env_values = true)]
    pub into: StoreLocation,
    /// How the sources are written: transcript, vtt, srt, eml, mbox, markdown, text or jsonl [default: as their names
    /// and beginnings say]
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    pub format: Option<Format>,
    /// The name of the source on standard input, by which it is known in the knowledge base
    #[arg(long)]
    pub name: Option<String>,
    /// Who reads the texts [default: openai where there is a key or --base-url, else local]
    #[arg(long, value_enum)]
    pub extractor: Option<ExtractorChoice>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub service: ServiceArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub embedder: EmbedderArguments,
    /// Model calls at once
    #[arg(long, value_name = "N", default_value_t = CALLS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub concurrency: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub calls: CallArguments,
    /// Leave the calls to workers and agents that are started with the same --extractor, and wait until there are any
    #[arg(long, requires = "extractor")]
    pub calls_elsewhere: bool,
    /// What happens when a chunk cannot be extracted
    #[arg(long, value_enum, default_value_t = OnFailureChoice::Skip)]
    pub on_failure: OnFailureChoice,
    /// Extract again what failed in earlier runs
    #[arg(long)]
    pub retry_failed: bool,
    /// Replace sources that are there, also where they are unchanged; what was extracted is not paid for again
    #[arg(long)]
    pub replace: bool,
    /// Characters of one chunk at most: what one model call reads
    #[arg(long, value_name = "N", default_value_t = CHUNK_CHARACTERS_DEFAULT as u32, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub chunk_characters: u32,
    /// The offset from UTC of times that tell none, as in +02:00 [default: UTC]
    #[arg(long, value_name = "OFFSET", value_parser = parse_zone, allow_hyphen_values = true)]
    pub zone: Option<i16>,
    /// When a recording began: the times of subtitles and transcripts count from there
    #[arg(long, value_name = "TIME")]
    pub recorded_at: Option<String>,
    /// How long a transcript's recording is; its turns are spread over that time
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub duration: Option<Duration>,
    /// Where the jobs are that the extractions are: a file or a database, for workers elsewhere one that they reach
    /// [default: KB.jobs.db beside the knowledge base, or the database that it is in]
    #[arg(
        long,
        value_name = "FILE|URL",
        env = "GRISTMILL_STORE",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().try_map(|text| StoreLocation::parse(&text))
    )]
    pub store: Option<StoreLocation>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lease: LeaseArguments,
    /// Write an event as JSON, one a line, after every commit; - is standard output
    #[arg(long, value_name = "FILE")]
    pub on_batch_committed: Option<PathBuf>,
    /// The price of a million tokens sent, to tell the cost so far
    #[arg(long, value_name = "PRICE", requires = "output_price")]
    pub input_price: Option<f64>,
    /// The price of a million tokens answered
    #[arg(long, value_name = "PRICE", requires = "input_price")]
    pub output_price: Option<f64>,
    /// Print the summary as JSON: to standard output, or to standard error where the events go there
    #[arg(long)]
    pub json: bool,
    /// Show no progress and no summary
    #[arg(short, long)]
    pub quiet: bool,
}

/// What happens when a chunk cannot be extracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFailureChoice {
    /// Its message is kept, the failure is recorded, and the rest goes on.
    Skip,
    /// What stands before it is committed, and the ingestion ends.
    Stop,
}

/// What is looked for, and where.
#[derive(Debug, Args)]
pub struct ScopeArguments {
    /// Messages at most
    #[arg(long, value_name = "N", default_value_t = MESSAGES_DEFAULT as u32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Only messages with this tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Only messages from this time on
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub since: Option<Moment>,
    /// Only messages before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub until: Option<Moment>,
    /// The offset from UTC of times in the question, as in +02:00 [default: that of the sources]
    #[arg(long, value_name = "OFFSET", value_parser = parse_zone, allow_hyphen_values = true)]
    pub zone: Option<i16>,
}

const RECALL_HELP: &str = "\
Examples:
  gristmill recall kb.db \"books about spiders\"
  gristmill recall kb.db \"What did Ada say about bees in May 2023?\" --limit 5
  gristmill recall kb.db \"bees\" --json | jq -r '.messages[].textChunks[]'
  gristmill recall kb.db --recorded questions.json --output candidate.json

No model is needed: the question is understood by rules, or with --parser model by a model. With --recorded,
the search queries of a file of recorded questions are run, and what they find is written for a scorer.";

/// `gristmill recall`.
#[derive(Debug, Args)]
#[command(after_help = format!("{RECALL_HELP}\n\n{MODEL_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}"))]
pub struct RecallArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// What is asked
    #[arg(required_unless_present = "recorded", conflicts_with = "recorded")]
    pub question: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: ScopeArguments,
    /// Pieces of knowledge of each kind at most
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub knowledge_limit: u32,
    /// Who understands the question
    #[arg(long, value_enum, default_value_t = ParserChoice::Rules)]
    pub parser: ParserChoice,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub service: ServiceArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub embedder: EmbedderArguments,
    /// Run the search queries of a file of recorded questions
    #[arg(long, value_name = "FILE")]
    pub recorded: Option<PathBuf>,
    /// Where the results of --recorded go; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", requires = "recorded")]
    pub output: PathBuf,
    /// Show whole messages
    #[arg(long)]
    pub full: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Who understands a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ParserChoice {
    /// Rules, on this machine.
    Rules,
    /// The model; the rules where its answer is none.
    Model,
}

const ASK_HELP: &str = "\
Examples:
  gristmill ask kb.db \"What did they say about spiders?\"
  gristmill ask kb.db \"Who keeps bees?\" --base-url http://127.0.0.1:8080/v1 --model local --parser rules
  gristmill ask kb.db \"Who keeps bees?\" --json | jq '.citations[].source'

The model is shown the messages that are recalled, as many as --context-tokens hold, and cites them by number.";

/// `gristmill ask`.
#[derive(Debug, Args)]
#[command(after_help = format!("{ASK_HELP}\n\n{MODEL_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}"))]
pub struct AskArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// What is asked
    pub question: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: ScopeArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub answering: AnsweringArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub service: ServiceArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub embedder: EmbedderArguments,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How a model answers.
#[derive(Debug, Args)]
pub struct AnsweringArguments {
    /// Who understands the question
    #[arg(long, value_enum, default_value_t = ParserChoice::Model)]
    pub parser: ParserChoice,
    /// Tokens of messages that the model is shown at most, by estimate
    #[arg(long, value_name = "N", default_value_t = CONTEXT_TOKENS_DEFAULT as u32, value_parser = clap::value_parser!(u32).range(50..=2_000_000))]
    pub context_tokens: u32,
    /// Tokens of the answer at most
    #[arg(long, value_name = "N", default_value_t = ANSWER_TOKENS_DEFAULT, value_parser = clap::value_parser!(u32).range(16..=100_000))]
    pub answer_tokens: u32,
}

const MEMORY_HELP: &str = "\
Examples:
  gristmill memory stats kb.db
  gristmill memory sources kb.db --json | jq -r .name
  gristmill memory failures kb.db
  gristmill memory delete kb.db old-notes.md
  gristmill memory export kb.db --output kb.json
  gristmill memory import kb.json --into other.db";

/// `gristmill memory`.
#[derive(Debug, Args)]
#[command(after_help = format!("{MEMORY_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}"))]
pub struct MemoryArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: MemoryCommand,
}

/// What is done with a knowledge base.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Show how much there is of everything
    Stats(MemoryListArguments),
    /// List the sources
    Sources(MemoryListArguments),
    /// List the chunks that could not be extracted, with their errors
    Failures(MemoryListArguments),
    /// Delete sources with all that is known of them
    Delete(MemoryDeleteArguments),
    /// Write a knowledge base as JSON, in the recorded index format
    Export(MemoryExportArguments),
    /// Read a recorded index, or an export; sources of the same names are replaced
    Import(MemoryImportArguments),
}

/// `gristmill memory stats`, `sources` and `failures`.
#[derive(Debug, Args)]
pub struct MemoryListArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// `gristmill memory delete`.
#[derive(Debug, Args)]
pub struct MemoryDeleteArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// The sources' names, as `gristmill memory sources` lists them
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<String>,
}

/// `gristmill memory export`.
#[derive(Debug, Args)]
pub struct MemoryExportArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// Where it goes; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// `gristmill memory import`.
#[derive(Debug, Args)]
pub struct MemoryImportArguments {
    /// The file
    #[arg(value_name = "INDEX")]
    pub index: PathBuf,
    /// The knowledge base: a file, or postgresql://user@host/database; made where there is none
    #[arg(long, value_name = "KB", value_parser = parse_knowledge, env = "GRISTMILL_MEMORY", hide_env_values = true)]
    pub into: StoreLocation,
    /// The offset from UTC of the recording, as in -07:00 [default: as the first message's time suggests]
    #[arg(long, value_name = "OFFSET", value_parser = parse_zone, allow_hyphen_values = true)]
    pub zone: Option<i16>,
    /// Print what was imported as JSON
    #[arg(long)]
    pub json: bool,
}

const MCP_HELP: &str = "\
Examples:
  gristmill mcp kb.db
  gristmill mcp kb.db --base-url http://127.0.0.1:8080/v1 --embedder model2vec:models/potion

A program that speaks the Model Context Protocol starts this command and talks to it over standard input and
output. In its configuration: {\"command\": \"gristmill\", \"args\": [\"mcp\", \"/path/to/kb.db\"]}. The tools are
`recall` and, where there is a model, `ask`.";

/// `gristmill mcp`.
#[derive(Debug, Args)]
#[command(after_help = format!("{MCP_HELP}\n\n{MODEL_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}"))]
pub struct McpArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub answering: AnsweringArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub service: ServiceArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub embedder: EmbedderArguments,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_zones() {
        assert_eq!(parse_zone("+02:00"), Ok(120));
        assert_eq!(parse_zone("-07:30"), Ok(-450));
        assert_eq!(parse_zone("Z"), Ok(0));
        for wrong in ["", "2", "+2", "+25:00", "+02:70", "é", "+-1:00"] {
            assert!(parse_zone(wrong).is_err(), "{wrong}");
        }
    }
}
