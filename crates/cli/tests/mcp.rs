//! `gristmill mcp` with a real client over pipes.

#[path = "../../memory/tests/stand_in/mod.rs"]
mod stand_in;
mod workspace;

use rmcp::model::{CallToolRequestParams, Tool};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt, service::RunningService};
use serde_json::{Value, json};
use stand_in::{Answer, StandIn};
use workspace::Workspace;

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
    let (is_error, result) = call(&client, "recall", json!({"question": "Paris", "since": "soon"})).await;
    assert!(
        is_error && result.to_string().contains("not a time such as"),
        "{result}"
    );
    // It is still there after an error.
    let (is_error, _) = call(&client, "recall", json!({"question": "bees"})).await;
    assert!(!is_error);
    client.cancel().await.expect("ends");
}

/// The example in a tool's description has the form of its parameters and of its result.
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
fn standard_output_carries_the_protocol_alone() {
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
