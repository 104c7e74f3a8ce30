//! `gristmill mcp`: a knowledge base as tools of the Model Context Protocol, over standard input and output.
//!
//! Standard output carries only the protocol. All other messages go to standard error.

mod parameters;

use std::sync::Arc;

use gristmill_memory::Memory;
use gristmill_memory::ask::AskOptions;
use gristmill_memory::extract::LimiterSettings;
use gristmill_memory::limits::MESSAGES_DEFAULT;
use gristmill_memory::recall::{RecallOptions, RecalledMessage};
use gristmill_memory::service::Service;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::tool::ToolCallContext;
use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ResultType, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shown::knowledge_line;
use crate::arguments::memory::{McpArguments, ScopeArguments, parse_moment, source_name};
use crate::exit::Exit;
use crate::interrupt::Interrupt;

/// Runs the command until its client is done.
pub async fn mcp(arguments: McpArguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let memory = arguments
        .knowledge
        .open_with(&arguments.embedder, &arguments.service)
        .await?;
    let service = arguments.service.named_service(LimiterSettings::default())?;
    let options = arguments.answering.options(RecallOptions::default())?;
    let server = Server::new(memory, service, options);
    let running = tokio::select! {
        running = server.serve(rmcp::transport::stdio()) => running?,
        exit = interrupt.wait() => return Ok(exit),
    };
    let stop = running.cancellation_token();
    tokio::select! {
        ended = running.waiting() => {
            ended?;
            Ok(Exit::Done)
        }
        exit = interrupt.wait() => {
            stop.cancel();
            Ok(exit)
        }
    }
}

/// The tools over one knowledge base.
#[derive(Clone)]
struct Server {
    memory: Memory,
    service: Option<Service>,
    options: Arc<AskOptions>,
    tool_router: ToolRouter<Server>,
}

/// The parameters of `recall`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecallRequest {
    /// The question, in plain words.
    question: String,
    /// The maximum number of messages: 25 by default, 200 at most.
    #[serde(default, deserialize_with = "parameters::limit")]
    #[schemars(range(min = 1, max = parameters::MESSAGES_MAX))]
    limit: Option<usize>,
    /// Only messages with one of these tags.
    #[serde(default, deserialize_with = "parameters::texts")]
    tags: Vec<String>,
    /// Only messages of one of these sources, or of sources in these folders.
    #[serde(default, deserialize_with = "parameters::texts")]
    sources: Vec<String>,
    /// Only messages of one of these speakers or senders, by one or more of the names.
    #[serde(default, deserialize_with = "parameters::texts")]
    speakers: Vec<String>,
    /// Only messages of one of these threads, as found messages name them.
    #[serde(default, deserialize_with = "parameters::texts")]
    threads: Vec<String>,
    /// Only messages from this time on, as in 2023-05-01 or 2023-05-01T09:30:00Z.
    #[serde(default, deserialize_with = "parameters::text")]
    since: Option<String>,
    /// Only messages before this time.
    #[serde(default, deserialize_with = "parameters::text")]
    until: Option<String>,
}

/// The result of `recall`.
#[derive(Debug, Serialize, JsonSchema)]
struct RecallResponse {
    /// Messages, best first.
    messages: Vec<FoundMessage>,
    /// Entities, actions and topics, best first, each as one line.
    knowledge: Vec<String>,
}

/// A found message.
#[derive(Debug, Serialize, JsonSchema)]
struct FoundMessage {
    /// Its number in an answer's text; absent for `recall`.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<usize>,
    /// The source's name.
    source: String,
    /// Its position in the source, from 0.
    position: u32,
    /// Its speaker or sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    speaker: Option<String>,
    /// Its time, as in 2023-05-01T07:00:00.000Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// Its subject, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// The thread to which it belongs, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    /// Its relevance; higher is better.
    score: f64,
    /// Its text.
    text: String,
}

/// The parameters of `ask`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AskRequest {
    /// The question, in plain words.
    question: String,
}

/// The result of `ask`.
#[derive(Debug, Serialize, JsonSchema)]
struct AskResponse {
    /// True if the messages answer the question.
    answered: bool,
    /// The answer, or the reason for its absence.
    answer: String,
    /// The messages that support the answer.
    citations: Vec<FoundMessage>,
}

fn found(number: Option<usize>, recalled: &RecalledMessage) -> FoundMessage {
    let stored = &recalled.message;
    FoundMessage {
        number,
        source: stored.source.clone(),
        position: stored.position,
        speaker: stored.message.speaker.clone(),
        at: stored.message.moment.map(|moment| moment.at.to_string()),
        subject: stored.message.subject.clone(),
        thread: stored.message.thread.clone(),
        score: recalled.score,
        text: stored.message.text(),
    }
}

#[tool_router]
impl Server {
    fn new(memory: Memory, service: Option<Service>, options: AskOptions) -> Server {
        let mut tool_router = Server::tool_router();
        if service.is_none() {
            // A tool that cannot work is not offered.
            tool_router.remove_route("ask");
        }
        for route in tool_router.map.values_mut() {
            parameters::plain_schema(Arc::make_mut(&mut route.attr.input_schema));
            if let Some(schema) = &mut route.attr.output_schema {
                parameters::plain_schema(Arc::make_mut(schema));
            }
        }
        Server {
            memory,
            service,
            options: Arc::new(options),
            tool_router,
        }
    }

    /// Finds messages and knowledge about a question, without a model. Returns `messages`, best first, each with its source, position,
    /// speaker, time, score and text, and `knowledge`, a line for each entity, action and topic. No messages mean that nothing is
    /// known. The tool knows no earlier question: ask with names and times, not "she" or "then".
    ///
    /// Example: `{"question": "What did Ada say about bees in May 2023?", "limit": 3}` returns
    /// `{"messages": [{"source": "show.txt", "position": 3, "speaker": "Ada King", "at": "2023-05-08T07:00:00.000Z", "score": 7.1,
    /// "text": "My bees make forty kilos of honey."}], "knowledge": ["entity  Ada King (person)"]}`.
    #[tool(name = "recall", annotations(read_only_hint = true))]
    async fn recall(
        &self,
        Parameters(request): Parameters<RecallRequest>,
    ) -> Result<Json<RecallResponse>, String> {
        let scope = ScopeArguments {
            limit: request.limit.unwrap_or(MESSAGES_DEFAULT) as u32,
            tags: request.tags,
            sources: request.sources.iter().map(|source| source_name(source)).collect(),
            speakers: request.speakers,
            threads: request.threads,
            since: ScopeArguments::read("since", request.since.as_deref(), parse_moment)?,
            until: ScopeArguments::read("until", request.until.as_deref(), parse_moment)?,
            zone: None,
        };
        let options = RecallOptions {
            reranker: self.options.recall.reranker.clone(),
            ..scope.options()
        };
        let recalled = self.memory.recall(&request.question, &options).await;
        let recalled = recalled.map_err(|error| error.to_string())?;
        let knowledge = recalled.distinct_knowledge();
        let messages = recalled.messages.iter().map(|message| found(None, message));
        Ok(Json(RecallResponse {
            messages: messages.collect(),
            knowledge: knowledge.iter().map(knowledge_line).collect(),
        }))
    }

    /// Answers a question with a model, only from the messages of the knowledge base. Returns `answered`, `answer` and
    /// `citations`: the messages that support the answer, by the numbers in its text. If `answered` is false, the
    /// messages do not contain the answer, and `answer` says why. The tool knows no earlier question: ask with names
    /// and times, not "she" or "then".
    ///
    /// Example: `{"question": "Who keeps bees?"}` returns
    /// `{"answered": true, "answer": "Ada King keeps bees [1].", "citations": [{"number": 1, "source": "show.txt", "position": 3,
    /// "speaker": "Ada King", "score": 7.1, "text": "My bees make forty kilos of honey."}]}`.
    #[tool(name = "ask", annotations(read_only_hint = true))]
    async fn ask(&self, Parameters(request): Parameters<AskRequest>) -> Result<Json<AskResponse>, String> {
        let Some(service) = &self.service else {
            return Err(super::models::no_model("`ask`"));
        };
        let answer = self.memory.ask(service, &request.question, &self.options).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let citations = answer
            .citations
            .iter()
            .map(|citation| found(Some(citation.number), &citation.message));
        Ok(Json(AskResponse {
            answered: answer.answered,
            citations: citations.collect(),
            answer: answer.text,
        }))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Server {
    /// A call that the client cancels ends at once, together with its request to the model.
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let cancelled = context.ct.clone();
        tokio::select! {
            answer = self.tool_router.call(ToolCallContext::new(self, request, context)) => answer,
            () = cancelled.cancelled() => Err(ErrorData::internal_error("the client cancelled the call", None)),
        }
    }

    /// All tools are on one page, so there is no cursor to continue from.
    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if let Some(cursor) = request.and_then(|request| request.cursor) {
            let problem =
                format!("cursor `{cursor}` was given by no page: leave it out, the list has one page");
            return Err(ErrorData::invalid_params(problem, None));
        }
        let version = context.protocol_version();
        let has_cache_hints = version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        Ok(ListToolsResult {
            result_type: Some(ResultType::COMPLETE),
            tools: self.tool_router.list_all(),
            meta: None,
            next_cursor: None,
            ttl_ms: has_cache_hints.then_some(0),
            cache_scope: has_cache_hints.then_some(CacheScope::Public),
        })
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("gristmill", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "A knowledge base of messages: transcripts, mail, notes, chats. `recall` finds messages and what is \
                 known of them; `ask`, where it is offered, answers with its sources. Both take a complete question in \
                 plain words, such as \"What did Ada say about bees in May 2023?\".",
            )
    }
}
