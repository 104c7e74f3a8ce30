//! Commands of knowledge bases, with a stand-in for the model service.

use std::process::Command;

use serde_json::{Value, json};

use gristmill_test_tools::stand_in::{Answer, StandIn, knowledge};

use crate::workspace::{Ended, Workspace, json_lines};

pub const SHOW: &str = "The Bee Show\n\nADA KING: I saw Drums in Paris.\n\nBOB RAY: Bees like London.\n";

/// The program, without the environment's settings of models.
pub fn command(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = workspace.command("");
    command.args(arguments);
    for name in [
        "OPENAI_API_KEY",
        "OPENAI_API_KEY_FILE",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "OPENAI_EMBEDDING_BASE_URL",
        "GRISTMILL_MEMORY",
        "GRISTMILL_EMBEDDER",
    ] {
        command.env_remove(name);
    }
    // The stand-in answers for each text, and the tests count its calls.
    command.env("GRISTMILL_TEXTS_PER_CALL", "1");
    command
}

pub fn run(workspace: &Workspace, arguments: &[&str]) -> Ended {
    command(workspace, arguments)
        .output()
        .expect("the program starts")
        .into()
}

pub fn run_json(workspace: &Workspace, arguments: &[&str]) -> Value {
    json_lines(&run(workspace, arguments).expect(0)).remove(0)
}

/// A service that extracts capitalised words, makes no search query, and answers with the first text that it gets.
pub fn answer(text: &str) -> Answer {
    if text.contains("The messages:") || text.starts_with("[1]") {
        return Answer::content(
            json!({"answered": true, "answer": "In Paris [1].", "citations": [1, 77]}).to_string(),
        );
    }
    if text.contains("The question: ") {
        return Answer::content("I do not know how to search.");
    }
    Answer::content(knowledge(text))
}

/// A service for a test that waits only for the program. It lives as long as the runtime.
pub fn serve(
    answer: impl Fn(&str, u32) -> Answer + Send + Sync + 'static,
) -> (tokio::runtime::Runtime, StandIn) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let service = runtime.block_on(StandIn::start(answer));
    (runtime, service)
}
