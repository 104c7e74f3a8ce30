//! Stores in places where this user may only read, and behind links.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::workspace::{Ended, Workspace, send_signal};

/// The status and the text of a server's answer.
fn get(server: &str, path: &str) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(server).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let answer = std::io::read_to_string(stream).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

const PAGE: &str = "def main(payload):\n    return payload\n";

/// A user without rights. The superuser, who runs the test, may do everything.
const NOBODY: u32 = 65_534;

/// The program, run by a user who may not write the read-only files of the workspace's owner.
struct Visitor<'a> {
    workspace: &'a Workspace,
    is_root: bool,
    folder: tempfile::TempDir,
}

impl<'a> Visitor<'a> {
    fn of(workspace: &'a Workspace) -> Visitor<'a> {
        let folder = tempfile::tempdir().unwrap();
        let id = Command::new("id").arg("-u").output().unwrap();
        let is_root = id.stdout == b"0\n";
        if is_root {
            let (built, program) = (env!("CARGO_BIN_EXE_gristmill"), folder.path().join("gristmill"));
            if fs::hard_link(built, &program).is_err() {
                fs::copy(built, &program).unwrap();
            }
        }
        for folder in [folder.path(), &workspace.path("")] {
            fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        }
        Visitor {
            workspace,
            is_root,
            folder,
        }
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = self.workspace.command(arguments);
        if self.is_root {
            let mut other = Command::new(self.folder.path().join("gristmill"));
            other
                .args(arguments.split_whitespace())
                .current_dir(self.workspace.path(""))
                .uid(NOBODY)
                .gid(NOBODY);
            command = other;
        }
        command
    }

    fn run(&self, arguments: &str) -> Ended {
        self.command(arguments).output().unwrap().into()
    }
}

/// Commands that only read work. Each command that writes says why it cannot.
#[test]
fn a_store_that_may_only_be_read_is_read() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE).write("items.jsonl", "1\n2\n");
    let visitor = Visitor::of(&workspace);
    workspace.run("run page.py items.jsonl --quiet").expect(0);
    workspace.run("submit mail 1").expect(0);
    let owner = workspace.path("");
    fs::set_permissions(workspace.path("gristmill.db"), Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&owner, Permissions::from_mode(0o555)).unwrap();
    for (command, shows) in [
        ("jobs", "mail"),
        ("jobs --count", "3"),
        ("show 2:0", "waiting"),
        ("stats", "completed"),
        ("runs", "page.py:items.jsonl"),
        ("queues", "mail"),
        ("history", "script:page.py"),
        ("results page.py:items.jsonl", "\"value\":2"),
        ("check gristmill.db", ""),
    ] {
        let shown = visitor.run(command).expect(0);
        assert!(shown.contains(shows), "{command}: {shown}");
    }
    for command in [
        "submit mail 1",
        "cancel 2:0",
        "worker page.py --drain",
        "run page.py items.jsonl",
    ] {
        let error = visitor.run(command).error();
        assert!(error.contains("gristmill.db"), "{command}: {error}");
    }
    let mut dashboard = visitor
        .command("dashboard gristmill.db --no-open --listen 127.0.0.1:0")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(dashboard.stdout.take().unwrap()),
        &mut address,
    )
    .unwrap();
    let address = address.trim();
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
    let server = address.split('/').nth(2).unwrap();
    let (status, refusal) = get(server, "/api/v1/events");
    assert_eq!(status, 409, "{refusal}");
    assert!(
        refusal.contains("no_events") && refusal.contains("can only read its store"),
        "{refusal}"
    );
    assert_eq!(get(server, "/api/v1/queues").0, 200);
    send_signal(&dashboard, "-INT");
    let ended: Ended = dashboard.wait_with_output().unwrap().into();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), ""));
    fs::set_permissions(&owner, Permissions::from_mode(0o755)).unwrap();
}

/// A user who reaches the limit of processes or threads gets an error or all results, and no job is charged. The
/// superuser has no such limit, so the program runs as a user of its own.
#[test]
fn a_limit_of_processes_charges_no_job() {
    /// A user without other processes, so that only the processes of the test count.
    const USER: u32 = 54_321;
    const ITEMS: usize = 50;
    /// Limits that are too small for a thread, for the script, for the store and for a second process, and one that is
    /// large enough.
    const LIMITS: [u32; 6] = [1, 3, 8, 12, 16, 100];
    let workspace = Workspace::new();
    workspace
        .write("page.py", PAGE)
        .write("items.jsonl", "1\n".repeat(ITEMS));
    let visitor = Visitor::of(&workspace);
    if !visitor.is_root {
        return;
    }
    fs::set_permissions(workspace.path(""), Permissions::from_mode(0o777)).unwrap();
    let mut codes = Vec::new();
    for limit in LIMITS {
        let run = format!("run page.py items.jsonl -j 4 --output {limit}.jsonl --store {limit}.db");
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--nproc={limit}"))
            .arg(visitor.folder.path().join("gristmill"))
            .args(run.split_whitespace())
            .current_dir(workspace.path(""))
            .uid(USER)
            .gid(USER);
        let ended: Ended = command.output().unwrap().into();
        codes.push(ended.code);
        match ended.code {
            Some(0) => {
                let results = workspace.read(&format!("{limit}.jsonl"));
                assert_eq!(
                    results.matches("\"value\":1").count(),
                    ITEMS,
                    "{limit}: {results}"
                );
            }
            code => {
                let error = ended.error();
                assert!(error.contains("ulimit -u"), "{limit}, {code:?}: {error}");
            }
        }
    }
    assert_eq!((codes[0], codes[LIMITS.len() - 1]), (Some(2), Some(0)));
}

/// Checking an empty file does not make a store of it.
#[test]
fn a_check_of_an_empty_file_leaves_it_empty() {
    let workspace = Workspace::new();
    workspace.write("empty.db", "");
    let error = workspace.run("check empty.db").error();
    assert!(error.contains("it is empty, and no store"), "{error}");
    assert_eq!(workspace.read("empty.db"), "");
    let error = workspace.run("jobs --store empty.db").error();
    assert!(error.contains("it is empty, and no store"), "{error}");
}

/// When a command has ended, a copy of the file has all jobs, even if a link named the store.
#[test]
fn a_store_behind_a_link_is_whole_when_a_command_ends() {
    let workspace = Workspace::new();
    workspace.write("page.py", PAGE).write("items.jsonl", "1\n2\n");
    fs::create_dir(workspace.path("data")).unwrap();
    symlink("data/jobs.db", workspace.path("link.db")).unwrap();
    workspace
        .run("run page.py items.jsonl --quiet --store link.db")
        .expect(0);
    fs::copy(workspace.path("data/jobs.db"), workspace.path("copy.db")).unwrap();
    assert_eq!(workspace.run("jobs --count --store copy.db").expect(0), "2\n");
    let mode = fs::metadata(workspace.path("data/jobs.db"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let beside_the_link: Vec<String> = fs::read_dir(workspace.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("link.db-"))
        .collect();
    assert!(beside_the_link.is_empty(), "{beside_the_link:?}");
}
