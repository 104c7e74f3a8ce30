//! `gristmill mcp` with a real client over pipes.

use std::time::Duration;

use gristmill_test_tools::stand_in::{Answer, StandIn};
use rmcp::model::{CallToolRequestParams, ClientRequest, PaginatedRequestParams, Request, Tool};
use rmcp::service::{PeerRequestOptions, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::workspace::{self, Workspace};

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

const SHOW: &str = "The Bee Show\n\nADA KING: I saw Drums in Paris.\n\nBOB RAY: Bees like London.\n";

fn filled() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("show.txt", SHOW);
    workspace
        .run("ingest show.txt --into kb.db --extractor local -q")
        .expect(0);
    workspace
}

async fn client(workspace: &Workspace, arguments: &str) -> RunningService<RoleClient, ()> {
    let mut command = tokio::process::Command::from(workspace.command(arguments));
    for name in ["OPENAI_API_KEY", "OPENAI_API_KEY_FILE", "OPENAI_BASE_URL"] {
        command.env_remove(name);
    }
    let transport = TokioChildProcess::new(command).expect("starts");
    ().serve(transport).await.expect("initialises")
}

async fn call(
    client: &RunningService<RoleClient, ()>,
    tool: &'static str,
    arguments: Value,
) -> (bool, Value) {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let request = CallToolRequestParams::new(tool).with_arguments(arguments);
    let result = client.call_tool(request).await.expect("answers");
    let result = serde_json::to_value(result).expect("JSON");
    (result["isError"] == true, result)
}

#[tokio::test]
async fn a_client_recalls() {
    let workspace = filled();
    let client = client(&workspace, "mcp kb.db").await;
    let tools = client.list_all_tools().await.expect("tools");
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, ["recall"], "no model, no `ask`");
    let schema = serde_json::to_value(&tools[0]).expect("JSON");
    assert_eq!(schema["inputSchema"]["required"], json!(["question"]));
    assert_eq!(
        schema["outputSchema"]["properties"]["messages"]["type"], "array",
        "{schema}"
    );
    check_example(&tools[0]);
    let (is_error, result) = call(&client, "recall", json!({"question": "Paris", "limit": 1})).await;
    assert!(!is_error, "{result}");
    let found = &result["structuredContent"]["messages"][0];
    assert_eq!(
        (&found["text"], &found["source"], &found["speaker"]),
        (
            &json!("I saw Drums in Paris."),
            &json!("show.txt"),
            &json!("Ada King")
        )
    );
    for (arguments, told) in [
        (json!({"since": "soon"}), "write a time such as"),
        (json!({"limit": 0}), "`limit` is 0: give 1 to 200"),
        (json!({"limit": 201}), "give 1 to 200"),
        (json!({"limit": "many"}), "`limit` is \\\"many\\\": give 1 to 200"),
        (json!({"limt": 1}), "unknown field `limt`"),
    ] {
        let mut arguments = arguments;
        arguments["question"] = "Paris".into();
        let (is_error, result) = call(&client, "recall", arguments).await;
        assert!(is_error && result.to_string().contains(told), "{told}: {result}");
    }
    // The server still works after an error.
    let (is_error, _) = call(&client, "recall", json!({"question": "bees"})).await;
    assert!(!is_error);
    client.cancel().await.expect("ends");
}

/// Input fields of clients give texts, empty texts and null.
#[tokio::test]
async fn parameters_are_read_as_clients_send_them() {
    let workspace = filled();
    let client = client(&workspace, "mcp kb.db").await;
    for limit in [json!("1"), json!(1.0), json!(" 1 ")] {
        let arguments =
            json!({"question": "Paris", "limit": limit, "since": "", "until": null, "tags": null});
        let (is_error, result) = call(&client, "recall", arguments).await;
        assert!(!is_error, "{result}");
        let messages = result["structuredContent"]["messages"]
            .as_array()
            .expect("messages");
        assert_eq!(messages.len(), 1, "{limit}");
    }
    for (limit, tags) in [
        (json!(null), json!([])),
        (json!(""), json!("")),
        (json!(200), json!([""])),
    ] {
        let arguments = json!({"question": "Paris", "limit": limit, "tags": tags});
        let (is_error, result) = call(&client, "recall", arguments).await;
        assert!(!is_error, "{result}");
    }
    let (_, result) = call(&client, "recall", json!({"question": "Paris", "tags": "none"})).await;
    assert_eq!(
        result["structuredContent"]["messages"],
        json!([]),
        "one tag alone"
    );
    for (speakers, found) in [("king", "Ada King"), ("Ray", "Bob Ray")] {
        let arguments = json!({"question": "Paris", "speakers": speakers, "sources": ["show.txt"]});
        let (_, result) = call(&client, "recall", arguments).await;
        let messages = result["structuredContent"]["messages"].as_array();
        let found = |message: &Value| message["speaker"] == json!(found);
        assert!(
            messages.is_some_and(|messages| !messages.is_empty() && messages.iter().all(found)),
            "{speakers}: {result}"
        );
    }
    client.cancel().await.expect("ends");
}

/// Clients choose their input fields by the types. Clients in JavaScript warn of formats outside of JSON Schema.
#[tokio::test]
async fn schemas_have_plain_types() {
    let workspace = filled();
    let client = client(&workspace, "mcp kb.db").await;
    let tools = client.list_all_tools().await.expect("tools");
    let tool = serde_json::to_value(&tools[0]).expect("JSON");
    let text = tool.to_string();
    assert!(
        !text.contains("\"null\"") && !text.contains("\"format\""),
        "{text}"
    );
    let limit = &tool["inputSchema"]["properties"]["limit"];
    assert_eq!(
        (&limit["type"], &limit["minimum"], &limit["maximum"]),
        (&json!("integer"), &json!(1), &json!(200))
    );
    let at = &tool["outputSchema"]["$defs"]["FoundMessage"]["properties"]["at"];
    assert_eq!(at["type"], "string");
    client.cancel().await.expect("ends");
}

#[tokio::test]
async fn a_cursor_that_no_page_gave_is_refused() {
    let workspace = filled();
    let client = client(&workspace, "mcp kb.db").await;
    let bogus = PaginatedRequestParams::default().with_cursor(Some("bogus".to_owned()));
    let refused = client.list_tools(Some(bogus)).await.expect_err("a refusal");
    assert!(
        refused
            .to_string()
            .contains("cursor `bogus` was given by no page"),
        "{refused}"
    );
    client.list_tools(None).await.expect("the list");
    client.cancel().await.expect("ends");
}

/// The connection of the model call ends with the call, so that the model stops.
#[tokio::test]
async fn a_cancelled_call_ends_its_model_call() {
    let workspace = filled();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let client = client(
        &workspace,
        &format!("mcp kb.db --parser rules --base-url {base_url}"),
    )
    .await;
    let arguments = json!({"question": "Who saw Drums in Paris?"});
    let request =
        CallToolRequestParams::new("ask").with_arguments(arguments.as_object().cloned().expect("an object"));
    let request = ClientRequest::CallToolRequest(Request::new(request));
    let options = PeerRequestOptions::no_options();
    let call = client
        .send_cancellable_request(request, options)
        .await
        .expect("is sent");
    // This model gets the question and never answers.
    let (mut model, _) = listener.accept().await.expect("a model call");
    let mut asked = [0; 64];
    model.read_exact(&mut asked).await.expect("a request");
    call.cancel(Some("enough".to_owned())).await.expect("is sent");
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, model.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection of the model call stays open");
    // The server continues.
    let (is_error, _) = self::call(&client, "recall", json!({"question": "bees"})).await;
    assert!(!is_error);
    client.cancel().await.expect("ends");
}

/// Since 2026-07-28, each request names the version, and there is no handshake. Earlier clients still have theirs.
#[test]
fn the_newest_version_of_the_protocol_is_spoken() {
    let workspace = filled();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let request = |id: u32, method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = meta.clone();
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string() + "\n"
    };
    let input = request(1, "server/discover", json!({}))
        + &request(2, "tools/list", json!({}))
        + &request(
            3,
            "tools/call",
            json!({"name": "recall", "arguments": {"question": "Paris", "limit": 1}}),
        );
    let ended = workspace.run_with("mcp kb.db", input.as_bytes());
    let mut lines = workspace::json_lines(&ended.expect(0));
    lines.sort_by_key(|line| line["id"].as_u64());
    let versions = lines[0]["result"]["supportedVersions"]
        .as_array()
        .expect("versions");
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2024-11-05")));
    assert_eq!(lines[1]["result"]["tools"][0]["name"], "recall");
    assert_eq!(
        lines[2]["result"]["structuredContent"]["messages"][0]["source"], "show.txt",
        "{lines:?}"
    );
    // A handshake for this version, or for a later one, agrees on the newest version with a handshake.
    for asked in ["2026-07-28", "2031-01-01"] {
        let initialize = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
        });
        let ended = workspace.run_with("mcp kb.db", format!("{initialize}\n").as_bytes());
        let lines = workspace::json_lines(&ended.expect(0));
        assert_eq!(lines[0]["result"]["protocolVersion"], "2025-11-25", "{asked}");
    }
}

/// Checks that the example in a tool's description has the form of its parameters and of its result.
fn check_example(tool: &Tool) {
    let description = tool.description.as_deref().unwrap_or_default();
    let (_, example) = description.split_once("Example: ").expect("an example");
    let mut quoted = example.split('`').skip(1).step_by(2).map(|text| {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        value
    });
    let schema = serde_json::to_value(tool).expect("JSON");
    for form in ["inputSchema", "outputSchema"] {
        let example = quoted.next().expect("parameters, then a result");
        let schema = &schema[form];
        for name in example.as_object().expect("an object").keys() {
            assert!(schema["properties"].get(name).is_some(), "{name} in {schema}");
        }
        for name in schema["required"].as_array().expect("names") {
            let name = name.as_str().expect("a name");
            assert!(example.get(name).is_some(), "{name} in {example}");
        }
    }
}

#[tokio::test]
async fn a_client_asks() {
    let workspace = filled();
    let service = StandIn::start(|text, _| {
        assert!(text.contains("The question: "), "{text}");
        Answer::content(json!({"answered": true, "answer": "In Paris.", "citations": [1]}).to_string())
    })
    .await;
    let arguments = format!("mcp kb.db --parser rules --base-url {}", service.base_url);
    let client = client(&workspace, &arguments).await;
    let tools = client.list_all_tools().await.expect("tools");
    assert_eq!(tools.len(), 2);
    tools.iter().for_each(check_example);
    let (is_error, result) = call(&client, "ask", json!({"question": "Who saw Drums in Paris?"})).await;
    assert!(!is_error, "{result}");
    let answer = &result["structuredContent"];
    assert_eq!(
        (&answer["answer"], &answer["answered"]),
        (&json!("In Paris."), &json!(true))
    );
    assert_eq!(answer["citations"][0]["text"], "I saw Drums in Paris.");
    client.cancel().await.expect("ends");
}

#[test]
fn standard_output_carries_only_the_protocol() {
    let workspace = filled();
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    });
    let input = format!("{initialize}\n{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}}\n");
    let ended = workspace.run_with("mcp kb.db", input.as_bytes());
    let lines = workspace::json_lines(&ended.expect(0));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["result"]["serverInfo"]["name"], "gristmill");
}
