//! Runs the code of the README and of `docs/`.
//!
//! A document's fenced blocks run in their order, in one shell, in an empty folder, with the program on the PATH:
//!
//! | block | what happens |
//! | --- | --- |
//! | begins with a comment that is a file's name | it is written to that file |
//! | `sh` | runs; the first command that fails fails the test |
//! | `sql` | runs by `psql` on a database of its own |
//! | `python`, `js` | runs where `make clients` has installed the drivers, else its syntax is checked |
//! | `json` | is parsed |
//! | `rust` | is compiled by `cargo test --doc`, which includes the document |
//! | `text` | nothing |

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::Workspace;

/// The time limit of the commands of one document. Seconds.
const DOCUMENT_SECONDS_MAX: u32 = 120;

/// The server's address in the documents. The tests listen on a free port.
const ADDRESS: &str = "127.0.0.1:8378";

/// The database's address in the documents' programs.
const DATABASE: &str = "postgresql:///shop";

macro_rules! documents {
    ($($name:ident: $path:literal),* $(,)?) => {
        const DOCUMENTS: &[&str] = &[$($path),*];
        $(#[test] fn $name() { run($path) })*
    };
}

documents! {
    readme: "README.md",
    contributing: "CONTRIBUTING.md",
    examples: "examples/README.md",
    comparison: "docs/comparison.md",
    dashboard: "docs/dashboard.md",
    fleet: "docs/fleet.md",
    flows: "docs/flows.md",
    glossary: "docs/glossary.md",
    guarantees: "docs/guarantees.md",
    http: "docs/http.md",
    llm: "docs/llm.md",
    memory: "docs/memory.md",
    migrations: "docs/migrations.md",
    operations: "docs/operations.md",
    progress: "docs/progress.md",
    queues: "docs/queues.md",
    rust: "docs/rust.md",
    scheduling: "docs/scheduling.md",
    scripts: "docs/scripts.md",
    sql: "docs/sql.md",
    tutorial: "docs/tutorial.md",
}

/// Documents that only the tests of the packages for Python and Node run.
const PACKAGES_DOCUMENTS: &[&str] = &["docs/python.md", "docs/typescript.md"];

/// Documents without a test of their own.
#[test]
fn other_documents() {
    for entry in root().join("docs").read_dir().unwrap() {
        let name = entry.unwrap().file_name();
        let document = format!("docs/{}", name.to_str().unwrap());
        let is_run_elsewhere = [DOCUMENTS, PACKAGES_DOCUMENTS]
            .concat()
            .contains(&document.as_str());
        if document.ends_with(".md") && !is_run_elsewhere {
            run(&document);
        }
    }
}

#[test]
fn links_between_documents_lead_to_files() {
    let mut broken = Vec::new();
    for document in DOCUMENTS.iter().chain(&["ARCHITECTURE.md", "bench/README.md"]) {
        let path = root().join(document);
        let text = std::fs::read_to_string(&path).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            if !file.is_empty() && !target.contains("://") && !path.parent().unwrap().join(file).exists() {
                broken.push(format!("{document}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A fenced block.
struct Block {
    /// The line of the document at which it begins.
    line: usize,
    language: String,
    text: String,
}

impl Block {
    /// The name of its file, if its first line names one.
    fn file(&self) -> Option<&str> {
        let first = self.text.lines().next()?;
        let named = first.strip_prefix("# ").or_else(|| first.strip_prefix("// "))?;
        // `# ask.py, needs openai` names a package that only some tests install.
        let name = named.split_once(", needs ").map_or(named, |(name, _)| name);
        let (stem, extension) = name.rsplit_once('.')?;
        let is_name = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-/".contains(&byte))
        };
        (is_name(stem) && is_name(extension)).then_some(name)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(language) => {
                is_open = true;
                blocks.push(Block {
                    line: number + 1,
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            None if is_open => blocks.last_mut().unwrap().text.extend([line, "\n"]),
            None => {}
        }
    }
    assert!(!is_open, "a block is not closed");
    blocks
}

/// The program in Bash that runs the blocks of a document in their order.
fn script(document: &str, blocks: &[Block], workspace: &Workspace, database: &str, address: &str) -> String {
    let mut script = String::from("set -Eeuo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n");
    script.push_str("trap 'echo \"the block at $place fails: $BASH_COMMAND\" >&2' ERR\n");
    for (number, block) in blocks.iter().enumerate() {
        let place = format!("{document}:{}", block.line);
        let text = block.text.replace(ADDRESS, address).replace(DATABASE, database);
        writeln!(script, "place={place}").unwrap();
        match (block.language.as_str(), block.file()) {
            ("text", _) => {}
            ("rust", _) => assert!(
                is_a_doc_test(document),
                "{place}: no crate's doc tests include the document"
            ),
            ("json", _) => {
                serde_json::from_str::<serde_json::Value>(&text)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            (_, Some(file)) => {
                workspace.write(&format!(".block-{number}"), &text);
                writeln!(
                    script,
                    "mkdir -p \"$(dirname {file})\" && cp .block-{number} {file}"
                )
                .unwrap();
            }
            ("sh", None) => writeln!(script, "{text}").unwrap(),
            ("sql", None) => {
                workspace.write(&format!(".block-{number}.sql"), &text);
                writeln!(
                    script,
                    "psql -X -q -v ON_ERROR_STOP=1 -f .block-{number}.sql '{database}'"
                )
                .unwrap();
            }
            ("python", None) => {
                workspace.write(&format!(".block-{number}.py"), &text);
                let command = match clients("python") {
                    Some(folder) => format!("PYTHONPATH={} python3", folder.display()),
                    None => "python3 -m py_compile".to_owned(),
                };
                writeln!(script, "{command} .block-{number}.py").unwrap();
            }
            ("js", None) => {
                workspace.write(&format!(".block-{number}.mjs"), &text);
                if let Some(folder) = clients("node_modules") {
                    std::os::unix::fs::symlink(folder, workspace.path("node_modules")).unwrap();
                    writeln!(script, "node .block-{number}.mjs").unwrap();
                } else {
                    writeln!(script, "node --check .block-{number}.mjs").unwrap();
                }
            }
            (other, None) => panic!("{place}: a block in `{other}`; mark code that cannot run as `text`"),
        }
    }
    script
}

fn run(document: &str) {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let blocks = blocks(&text);
    let is_on_postgres = ["docs/fleet.md", "docs/sql.md"].contains(&document);
    let workspace = if is_on_postgres {
        Workspace::on_postgres()
    } else {
        Workspace::new()
    };
    let database = workspace.database_or("gristmill.db");
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();

    let script = script(document, &blocks, &workspace, &database, &address);
    let program = Path::new(env!("CARGO_BIN_EXE_gristmill")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let folders = std::iter::once(program.to_owned()).chain(std::env::split_paths(&path));
    let mut command = Command::new("timeout");
    command
        .args([
            "--kill-after=5",
            &DOCUMENT_SECONDS_MAX.to_string(),
            "bash",
            "-c",
            &script,
        ])
        .current_dir(workspace.path(""))
        .stdin(Stdio::null())
        .env("PATH", std::env::join_paths(folders).unwrap())
        .env("GRISTMILL_LISTEN", &address)
        .env("REPOSITORY", root().canonicalize().unwrap())
        .env_remove("GRISTMILL_STORE")
        .env_remove("OPENAI_API_KEY");
    if is_on_postgres {
        command.env("GRISTMILL_STORE", &database);
    }
    command.env("BASE_URL", format!("http://{address}"));
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{document}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The folder of the drivers for a language, if `make clients` has created it.
fn clients(name: &str) -> Option<PathBuf> {
    root().join("build/clients").join(name).canonicalize().ok()
}

/// Reports whether a crate's doc tests compile the document's Rust.
fn is_a_doc_test(document: &str) -> bool {
    ["engine", "memory"].iter().any(|library| {
        let source = std::fs::read_to_string(root().join(format!("crates/{library}/src/lib.rs"))).unwrap();
        source.contains(&format!("include_str!(\"../../../{document}\")"))
    })
}
