//! The command line of knowledge bases: ingest, recall, ask, manage.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{ArgPredicate, OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use gristmill_memory::Moment;
use gristmill_memory::ask::{ANSWER_TOKENS_DEFAULT, CONTEXT_TOKENS_DEFAULT};
use gristmill_memory::limits::{CHUNK_CHARACTERS_DEFAULT, MESSAGES_DEFAULT};
use gristmill_memory::source::{Format, moment};

use crate::arguments::model::{
    CALLS_DEFAULT, CallArguments, EmbedderArguments, ExtractorChoice, RerankChoice, ServiceArguments,
};
use crate::arguments::shared::LeaseArguments;
use crate::memory::sources;
use crate::output::table::cut;
use crate::span::parse_span;
use crate::store::location::StoreLocation;

/// The commands of knowledge bases.
#[derive(Debug, Subcommand)]
pub enum KnowledgeCommand {
    /// Read transcripts, subtitles, mail, notes and chats into a knowledge base
    Ingest(IngestArguments),
    /// Find messages and knowledge in a knowledge base, without a model
    Recall(RecallArguments),
    /// Answer a question from a knowledge base, with its sources
    Ask(AskArguments),
    /// Ask a knowledge base in a conversation: questions may leave out what was named before
    Chat(ChatArguments),
    /// Inspect a knowledge base, delete from it, export and import
    Memory(MemoryArguments),
    /// Serve a knowledge base to programs that speak the Model Context Protocol, over standard input and output
    Mcp(McpArguments),
}

/// The exit statuses of these commands in `--help`.
const MEMORY_EXIT_STATUS_HELP: &str = "\
Exit status:
  0    done
  1    some chunks failed, nothing was found, or a named object does not exist
  2    the command, its input or its knowledge base is wrong
  130  stopped by Ctrl-C (143 by SIGTERM); commits are not lost
  141  the reader of the output closed the pipe";

/// Characters of a client's parameter in an error. A URL may hold some 64 KB.
const GIVEN_CHARACTERS_MAX: usize = 100;

const MODEL_HELP: &str = "\
The key comes from the environment (OPENAI_API_KEY) or from the file that OPENAI_API_KEY_FILE names, never from
an argument. Any service that speaks OpenAI's API works, such as the servers of llama.cpp and Ollama.";

/// A knowledge base: a file or an address.
pub fn parse_knowledge(text: &str) -> Result<StoreLocation, String> {
    match text {
        "" => Err("name a file such as kb.db".to_owned()),
        text => StoreLocation::parse(OsStr::new(text)).map_err(|error| error.to_string()),
    }
}

/// The name that a source has, however the path of its file is spelled. A URL is no path.
fn parse_source(text: &str) -> Result<String, Infallible> {
    Ok(source_name(text))
}

/// The name of a source, which may be spelled as a path.
pub fn source_name(text: &str) -> String {
    if text.contains("://") {
        text.to_owned()
    } else {
        sources::plain(Path::new(text)).display().to_string()
    }
}

fn parse_format(text: &str) -> Result<Format, String> {
    Format::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        format!("it is none of {}", names.join(", "))
    })
}

/// An offset from UTC, in minutes.
pub fn parse_zone(text: &str) -> Result<i16, String> {
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

/// A time, in UTC if it names no zone.
pub fn parse_moment(text: &str) -> Result<Moment, String> {
    moment::parse(text, None)
        .ok_or_else(|| "write a time such as 2023-05-01 or 2023-05-01T09:30:00+02:00".to_owned())
}

/// An existing knowledge base.
#[derive(Debug, Args)]
pub struct KnowledgeArguments {
    /// The knowledge base: a file, or postgresql://user@host/database
    #[arg(value_name = "KB", value_parser = parse_knowledge)]
    pub knowledge: StoreLocation,
}

const INGEST_HELP: &str = "\
Sources are transcripts (SPEAKER: …), subtitles (WebVTT, SRT, SBV, TTML, ASS), recognised speech (Whisper and others),
exported chats (WhatsApp, Telegram, Slack, Discord, Matrix, Mattermost, Zulip, logs of IRC), .eml mails and mbox,
calendars, Markdown, Org, HTML, notebooks, Word, plain text, and JSON lines such as
{\"text\":\"…\",\"speaker\":\"…\",\"timestamp\":\"2023-05-01T07:00:00Z\"}. A folder stands for all files in it with a matching
extension.

Examples:
  gristmill ingest talk.vtt mails/*.eml notes.md --into kb.db
  gristmill ingest mails/ --into kb.db --model gpt-4o-mini --concurrency 64 --tokens-per-minute 400000
  gristmill ingest talk.txt --into kb.db --base-url http://127.0.0.1:8080/v1 --embedder openai
  curl -s https://notes.example/all.md | gristmill ingest - --name all.md --into kb.db
  tail -n +1 -f chat.jsonl | gristmill ingest - --name chat --into kb.db
  gristmill ingest --dry-run mails/
  gristmill ingest --retry-failed --into kb.db
  gristmill ingest --embedder ./models/minilm --into kb.db
  gristmill ingest talk.vtt --into kb.db --on-batch-committed - | jq .messages

A model reads each chunk once. Its answer is on disk before it is used, and is never paid for twice. Unchanged
sources are skipped, of a source that grew only the rest is read, and a changed source replaces its old version
atomically. A source that cannot be read is recorded, and the others go on. Run the same command again to resume
after Ctrl-C, a crash or a reboot. Without --model (with a key) and --base-url, the rules of --extractor local
read the texts: no network, and weaker answers. An embedder adds vectors to the whole knowledge base;
it has those of one embedder, and --replace-vectors changes that one.";

/// `gristmill ingest`.
#[derive(Debug, Args)]
#[command(
    override_usage = "gristmill ingest [OPTIONS] --into <KB> [SOURCE]...\n       gristmill ingest --dry-run [OPTIONS] <SOURCE>...",
    after_help = format!("{INGEST_HELP}\n\n{MODEL_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}"),
)]
pub struct IngestArguments {
    /// Files and folders; - is standard input, which needs --name unless it is a pipe of JSON lines that stays open
    #[arg(value_name = "SOURCE", required_unless_present_any = ["retry_failed", "embedder"])]
    pub sources: Vec<PathBuf>,
    /// The knowledge base: a file, or postgresql://user@host/database; created if needed
    #[arg(
        long,
        value_name = "KB",
        value_parser = parse_knowledge,
        env = "GRISTMILL_MEMORY",
        hide_env_values = true,
        required = false,
        required_unless_present = "dry_run",
        default_value_if("dry_run", ArgPredicate::IsPresent, "nowhere"),
    )]
    pub into: StoreLocation,
    /// Tell what would be read as what (format, messages, speakers, times), and what not; store nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The format of the sources: transcript, vtt, srt, ttml, ass, lrc, speech, eml, mbox, ics, markdown, org, html, ipynb,
    /// docx, pdf, text, jsonl, json, whatsapp, telegram, slack, discord, matrix, mattermost, zulip or irc [default: by their
    /// names and first lines]
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    pub format: Option<Format>,
    /// The name of the source on standard input, in the knowledge base
    #[arg(long, value_parser = parse_source)]
    pub name: Option<String>,
    /// The extractor [default: openai with --base-url, or with --model and a key, else local]
    #[arg(long, value_enum)]
    pub extractor: Option<ExtractorChoice>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub service: ServiceArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub embedder: EmbedderArguments,
    /// Concurrent model calls
    #[arg(long, value_name = "N", default_value_t = CALLS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub concurrency: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub calls: CallArguments,
    /// Leave the calls to workers and agents with the same --extractor, and wait for them
    #[arg(long, requires = "extractor")]
    pub calls_elsewhere: bool,
    /// Action if the extraction of a chunk fails
    #[arg(long, value_enum, default_value_t = OnFailureChoice::Skip)]
    pub on_failure: OnFailureChoice,
    /// Retry failed extractions of earlier runs
    #[arg(long)]
    pub retry_failed: bool,
    /// Delete sources of the named folders whose files are gone
    #[arg(long)]
    pub prune_missing: bool,
    /// Replace existing sources even if they are unchanged; extractions are not paid for again
    #[arg(long)]
    pub replace: bool,
    /// Delete the vectors of another embedder, and make new ones with --embedder
    #[arg(long, requires = "embedder")]
    pub replace_vectors: bool,
    /// The maximum number of characters in a chunk, which one model call reads
    #[arg(
        long,
        value_name = "N",
        default_value_t = CHUNK_CHARACTERS_DEFAULT as u32,
        value_parser = clap::value_parser!(u32).range(100..=1_000_000)
    )]
    pub chunk_characters: u32,
    /// The offset from UTC of times without one, as in +02:00 [default: UTC]
    #[arg(long, value_name = "OFFSET", value_parser = parse_zone, allow_hyphen_values = true)]
    pub zone: Option<i16>,
    /// The start of a recording: the origin of times in subtitles and transcripts; or how the names of their files write it,
    /// as in "%d.%m.%Y %H-%M"
    #[arg(long, value_name = "TIME")]
    pub recorded_at: Option<String>,
    /// The length of a transcript's recording; its turns are spread over this time
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub duration: Option<Duration>,
    /// The store of the extraction jobs: a file, or a database that remote workers can reach
    /// [default: KB.jobs.db beside the knowledge base, or the knowledge base's database]
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
    /// Write a JSON line after each commit, with what it added; - is standard output
    #[arg(long, value_name = "FILE")]
    pub on_batch_committed: Option<PathBuf>,
    /// The price of a million input tokens, to report the cost
    #[arg(long, value_name = "PRICE", requires = "output_price")]
    pub input_price: Option<f64>,
    /// The price of a million output tokens
    #[arg(long, value_name = "PRICE", requires = "input_price")]
    pub output_price: Option<f64>,
    /// Print the summary as JSON: to standard output, or to standard error if standard output has the events
    #[arg(long)]
    pub json: bool,
    /// Print no progress and no summary
    #[arg(short, long)]
    pub quiet: bool,
}

/// The action if the extraction of a chunk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFailureChoice {
    /// Keep the message, record the failure, and continue.
    Skip,
    /// Commit everything before it, and stop.
    Stop,
}

/// The scope of a question.
#[derive(Debug, Args)]
pub struct ScopeArguments {
    /// The maximum number of messages
    #[arg(long, value_name = "N", default_value_t = MESSAGES_DEFAULT as u32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Only messages with this tag; repeatable
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Only messages of this source, or of the sources in this folder; repeatable
    #[arg(long = "source", value_name = "SOURCE", value_parser = parse_source)]
    pub sources: Vec<String>,
    /// Only messages of this speaker or sender, by one or more of the names; repeatable
    #[arg(long = "speaker", value_name = "NAME")]
    pub speakers: Vec<String>,
    /// Only messages of this thread, as `recall --json` names it; repeatable
    #[arg(long = "thread", value_name = "THREAD")]
    pub threads: Vec<String>,
    /// Only messages from this time on
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub since: Option<Moment>,
    /// Only messages before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub until: Option<Moment>,
    /// The offset from UTC of times in the question, as in +02:00 [default: the sources' offset]
    #[arg(long, value_name = "OFFSET", value_parser = parse_zone, allow_hyphen_values = true)]
    pub zone: Option<i16>,
}

const RECALL_HELP: &str = "\
Examples:
  gristmill recall kb.db \"books about spiders\"
  gristmill recall kb.db \"What did Ada say about bees in May 2023?\" --limit 5
  gristmill recall kb.db \"What happened last week?\"
  gristmill recall kb.db --since 2023-05-01 --until 2023-06-01
  gristmill recall mails.db chats.db \"Who ordered the hives?\" --speaker Ada --explain
  gristmill recall kb.db \"bees\" --json | jq -r '.messages[].textChunks[]'
  gristmill recall kb.db --recorded questions.json --output candidate.json

Rules parse the question, or a model with --parser model. With --rerank model, it puts those of the first 20 messages
first that answer; a cross-encoder (a BERT model such as ms-marco-MiniLM-L-6-v2) does so without a service.
\"Last week\" and the like count from the newest message. --recorded runs the search queries of a file of recorded questions, and writes the
results for a scorer.";

/// `gristmill recall`.
#[derive(Debug, Args)]
#[command(
    override_usage = "gristmill recall [OPTIONS] <KB>... [QUESTION]",
    after_help = format!("{RECALL_HELP}\n\n{MODEL_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}")
)]
pub struct RecallArguments {
    /// One or more knowledge bases (files, or postgresql://user@host/database), and behind them the question; without one,
    /// --since, --until, --source, --speaker, --thread and --tag list messages
    #[arg(value_name = "KB", required = true, num_args = 1..)]
    pub bases_and_question: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: ScopeArguments,
    /// The parser of the question
    #[arg(long, value_enum, default_value_t = ParserChoice::Rules)]
    pub parser: ParserChoice,
    /// The second ranking of the first 20 messages: none, model (in one call), or a cross-encoder on this machine, by its folder
    /// (./reranker) or its name, as with --embedder
    #[arg(
        long,
        value_name = "RERANKER",
        default_value = "none",
        conflicts_with = "recorded"
    )]
    pub rerank: RerankChoice,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub service: ServiceArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub embedder: EmbedderArguments,
    /// Run the search queries of a file of recorded questions
    #[arg(long, value_name = "FILE")]
    pub recorded: Option<PathBuf>,
    /// The file of the results of --recorded; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", requires = "recorded")]
    pub output: PathBuf,
    /// Tell the parts of each score
    #[arg(long, conflicts_with = "recorded")]
    pub explain: bool,
    /// Print whole messages
    #[arg(long)]
    pub full: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl RecallArguments {
    /// The knowledge bases and the question. The last argument is the question, unless there is none: it names an existing
    /// knowledge base, and other options say which messages to list.
    ///
    /// # Errors
    ///
    /// A question is missing, or a name cannot be one of a knowledge base.
    pub fn bases_and_question(&self) -> anyhow::Result<(Vec<StoreLocation>, Option<String>)> {
        let is_listed = self.recorded.is_some() || self.scope.is_limited();
        let mut names = self.bases_and_question.clone();
        let is_base = |name: &String| match parse_knowledge(name) {
            Ok(StoreLocation::File(path)) => path.exists(),
            Ok(StoreLocation::Postgres(_)) => true,
            Err(_) => false,
        };
        let has_question = names.len() > 1 && !(is_listed && names.last().is_some_and(is_base));
        let question = if has_question { names.pop() } else { None };
        if question.is_none() && !is_listed {
            anyhow::bail!(
                "a question is missing: `gristmill recall {} \"Who keeps bees?\"`, or list messages with --since, --until, --source, \
                 --speaker, --thread or --tag",
                names.join(" ")
            );
        }
        if self.recorded.is_some() && (question.is_some() || names.len() > 1) {
            anyhow::bail!("--recorded has the questions: name one knowledge base, and no question");
        }
        let bases = names.iter().map(|name| {
            parse_knowledge(name).map_err(|error| anyhow::anyhow!("`{name}` is no knowledge base: {error}"))
        });
        Ok((bases.collect::<anyhow::Result<_>>()?, question))
    }
}

impl ScopeArguments {
    /// A time or an offset that a client gave as a parameter of this name, as the option takes it.
    ///
    /// # Errors
    ///
    /// It cannot be read. The text names the parameter and the remedy.
    pub fn read<T>(
        name: &str,
        given: Option<&str>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        given
            .map(|text| {
                let told = |remedy| format!("`{name}` is `{}`: {remedy}", cut(text, GIVEN_CHARACTERS_MAX));
                parse(text).map_err(told)
            })
            .transpose()
    }

    /// Whether the options limit the messages, so that they can be listed without a question.
    pub fn is_limited(&self) -> bool {
        let named = [&self.tags, &self.sources, &self.speakers, &self.threads];
        self.since.is_some() || self.until.is_some() || named.iter().any(|names| !names.is_empty())
    }
}

/// The parser of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ParserChoice {
    /// Rules, on this machine.
    Rules,
    /// The model, or the rules if its answer is unusable.
    Model,
}

const ASK_HELP: &str = "\
Examples:
  gristmill ask kb.db \"What did they say about spiders?\"
  gristmill ask kb.db \"Who keeps bees?\" --base-url http://127.0.0.1:8080/v1 --model local --parser rules
  gristmill ask kb.db \"Who keeps bees?\" --json | jq '.citations[].source'

The model answers from the recalled messages alone, up to --context-tokens, and cites them by number. If it cites
none, those that have the words of its answer are cited; an answer that no message supports is no answer, and
the command ends with 1.";

/// `gristmill ask`.
#[derive(Debug, Args)]
#[command(after_help = format!("{ASK_HELP}\n\n{MODEL_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}"))]
pub struct AskArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// The question
    pub question: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub asking: AskingArguments,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The knowledge base of a question, and the way of answering it.
#[derive(Debug, Args)]
pub struct AskingArguments {
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
}

const CHAT_HELP: &str = "\
A question may leave out what an earlier one named: \"she\", \"there\", \"then\", \"And in June?\". The complete
question is shown before its reply. With a key or --base-url, a model completes and answers questions; otherwise,
rules complete them, and the messages that answer are shown. /forget starts a new conversation, and Ctrl-D or
Ctrl-C ends the command. From a pipe, each line is a question.

Examples:
  gristmill chat kb.db
  gristmill chat kb.db --base-url http://127.0.0.1:8080/v1 --limit 10
  printf 'Who keeps bees?\\nWhere does she live?\\n' | gristmill chat kb.db
  gristmill chat kb.db --json < questions.txt | jq -r .understood";

/// `gristmill chat`.
#[derive(Debug, Args)]
#[command(after_help = format!("{CHAT_HELP}\n\n{MODEL_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}"))]
pub struct ChatArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub asking: AskingArguments,
    /// Print one JSON object for each question
    #[arg(long)]
    pub json: bool,
}

/// The way in which a model answers.
#[derive(Debug, Args)]
pub struct AnsweringArguments {
    /// The parser of the question
    #[arg(long, value_enum, default_value_t = ParserChoice::Model)]
    pub parser: ParserChoice,
    /// The second ranking of the first 20 messages, before they are answered from: none, model (in one call), or a cross-encoder
    /// on this machine, by its folder (./reranker) or its name, as with --embedder
    #[arg(long, value_name = "RERANKER", default_value = "none")]
    pub rerank: RerankChoice,
    /// The maximum number of message tokens that the model reads, by estimate
    #[arg(
        long,
        value_name = "N",
        default_value_t = CONTEXT_TOKENS_DEFAULT as u32,
        value_parser = clap::value_parser!(u32).range(50..=2_000_000)
    )]
    pub context_tokens: u32,
    /// The maximum number of answer tokens
    #[arg(long, value_name = "N", default_value_t = ANSWER_TOKENS_DEFAULT, value_parser = clap::value_parser!(u32).range(16..=100_000))]
    pub answer_tokens: u32,
}

const MEMORY_HELP: &str = "\
Examples:
  gristmill memory stats kb.db
  gristmill memory sources kb.db --json | jq -r .name
  gristmill memory sources kb.db --failed
  gristmill memory failures kb.db
  gristmill memory delete kb.db old-notes.md
  gristmill memory move kb.db notes.md archive/notes.md
  gristmill memory export kb.db --output kb.json
  gristmill memory import kb.json --into other.db";

/// `gristmill memory`.
#[derive(Debug, Args)]
#[command(after_help = format!("{MEMORY_HELP}\n\n{MEMORY_EXIT_STATUS_HELP}"))]
pub struct MemoryArguments {
    /// The command.
    #[command(subcommand)]
    pub command: MemoryCommand,
}

/// The commands over a knowledge base.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Show counts and sizes
    Stats(MemoryListArguments),
    /// List the sources, or with --failed what of them could not be read
    Sources(MemorySourcesArguments),
    /// List what could not be read and failed extractions, with their errors
    Failures(MemoryListArguments),
    /// Delete sources and their knowledge
    Delete(MemoryDeleteArguments),
    /// Give a source another name, because its file has moved
    Move(MemoryMoveArguments),
    /// Write a knowledge base as JSON, in the recorded index format
    Export(MemoryExportArguments),
    /// Import a recorded index or an export; replaces sources of the same names
    Import(MemoryImportArguments),
}

/// `gristmill memory sources`.
#[derive(Debug, Args)]
pub struct MemorySourcesArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub list: MemoryListArguments,
    /// List the sources, and the messages of sources, that could not be read, with their errors
    #[arg(long)]
    pub failed: bool,
}

/// `gristmill memory stats` and `failures`.
#[derive(Debug, Args)]
pub struct MemoryListArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

/// `gristmill memory delete`.
#[derive(Debug, Args)]
pub struct MemoryDeleteArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// The sources' names: see `gristmill memory sources`
    #[arg(required = true, value_name = "SOURCE", value_parser = parse_source)]
    pub sources: Vec<String>,
    /// The store of the extraction jobs, if `ingest` named one; the texts of deleted sources are erased there [default:
    /// KB.jobs.db beside the knowledge base, or the knowledge base's database]
    #[arg(
        long,
        value_name = "FILE|URL",
        env = "GRISTMILL_STORE",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().try_map(|text| StoreLocation::parse(&text))
    )]
    pub store: Option<StoreLocation>,
    /// Print the counts as JSON
    #[arg(long)]
    pub json: bool,
}

/// `gristmill memory move`.
#[derive(Debug, Args)]
pub struct MemoryMoveArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// The source's name: see `gristmill memory sources`
    #[arg(value_parser = parse_source)]
    pub source: String,
    /// Its new name: the path of its file now
    #[arg(value_parser = parse_source)]
    pub name: String,
}

/// `gristmill memory export`.
#[derive(Debug, Args)]
pub struct MemoryExportArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub knowledge: KnowledgeArguments,
    /// The file of the export; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// `gristmill memory import`.
#[derive(Debug, Args)]
pub struct MemoryImportArguments {
    /// The file of the index
    #[arg(value_name = "INDEX")]
    pub index: PathBuf,
    /// The knowledge base: a file, or postgresql://user@host/database; created if needed
    #[arg(long, value_name = "KB", value_parser = parse_knowledge, env = "GRISTMILL_MEMORY", hide_env_values = true)]
    pub into: StoreLocation,
    /// The offset from UTC of the recording, as in -07:00 [default: guessed from the first message's time]
    #[arg(long, value_name = "OFFSET", value_parser = parse_zone, allow_hyphen_values = true)]
    pub zone: Option<i16>,
    /// Print the counts of the import as JSON
    #[arg(long)]
    pub json: bool,
}

const MCP_HELP: &str = "\
Examples:
  gristmill mcp kb.db
  gristmill mcp kb.db --base-url http://127.0.0.1:8080/v1 --embedder minilm

A program that speaks the Model Context Protocol starts this command and talks to it over standard input and
output. Its configuration: {\"command\": \"gristmill\", \"args\": [\"mcp\", \"/path/to/kb.db\"]}. The tools are
`recall` and, with a model, `ask`.";

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
    fn an_error_repeats_the_beginning_of_a_parameter() {
        let error =
            ScopeArguments::read("since", Some(&"x".repeat(9_000)), parse_moment).expect_err("no time");
        assert!(
            error.starts_with("`since` is `xxx") && error.len() < 400,
            "{error}"
        );
    }

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
