//! Output of running jobs, followed through a store and through a server while real scripts run at an agent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use crate::processes::{PATIENCE, Process, Server};
use crate::workspace::{self, Workspace, send_signal};

on_each_store! {
    jobs_of_an_agent_are_followed_while_they_run,
    one_job_of_an_agent_is_followed_to_its_end,
}

/// Prints, and continues when its file exists.
const TALK: &str = "\
import os, time
def main(payload):
    print(f'begun {payload}', flush=True)
    until = time.monotonic() + 60
    while not os.path.exists(f'go-{payload}'):
        if time.monotonic() > until:
            raise TimeoutError('nobody says go')
        time.sleep(0.005)
    print(f'over {payload}')
    return payload
";

/// A follower whose lines are read when they come.
struct Follower {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Follower {
    fn start(workspace: &Workspace, arguments: &str) -> Follower {
        let mut child = workspace.spawn(&format!("logs --follow {arguments}"), Stdio::null());
        let stdout: BufReader<ChildStdout> = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = said.send(line);
            }
        });
        Follower { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }

    /// This many lines, sorted, because lines of different jobs come in any order.
    fn sorted_lines(&mut self, count: usize) -> Vec<String> {
        let mut lines: Vec<String> = (0..count).map(|_| self.line()).collect();
        lines.sort();
        lines
    }

    fn end(mut self) -> (Option<i32>, String, Vec<String>) {
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().unwrap();
        pipe.read_to_string(&mut stderr).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, stderr, self.lines.iter().collect())
    }
}

fn serve(workspace: &Workspace) -> Server {
    workspace.write("talk.py", TALK);
    Server::start(workspace.command("serve --listen 127.0.0.1:0 --lease 2s"))
}

fn agent(workspace: &Workspace, server: &Server) -> Command {
    let mut agent = workspace.command("agent talk.py --kind talk --batch 10 -j 3 --quiet");
    agent.env("BASE_URL", &server.url);
    agent
}

fn start(workspace: &Workspace) -> (Server, Process) {
    let server = serve(workspace);
    let agent = Process::start(agent(workspace, &server));
    (server, agent)
}

fn jobs_of_an_agent_are_followed_while_they_run(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    let (server, agent) = start(&workspace);
    workspace.run("submit talk 1 --tag customer=7").expect(0);
    workspace.run("submit talk 2").expect(0);
    let over_http = format!("--base-url {}", server.url);
    let mut followers = [
        Follower::start(&workspace, &format!("--kind talk {over_http}")),
        Follower::start(&workspace, "--kind talk"),
    ];
    let mut of_customer = Follower::start(&workspace, &format!("--tag customer=7 {over_http}"));
    assert_eq!(of_customer.line(), "1:0 | begun 1");
    for follower in &mut followers {
        assert_eq!(follower.sorted_lines(2), ["1:0 | begun 1", "2:0 | begun 2"]);
    }
    // Jobs that begin later join the stream.
    workspace.run("submit talk 3 --tag customer=7").expect(0);
    assert_eq!(of_customer.line(), "3:0 | begun 3");
    for follower in &mut followers {
        assert_eq!(follower.line(), "3:0 | begun 3");
    }
    for (payload, line) in [(3, "3:0 | over 3"), (2, "2:0 | over 2"), (1, "1:0 | over 1")] {
        workspace.write(&format!("go-{payload}"), "");
        for follower in &mut followers {
            assert_eq!(follower.line(), line);
        }
        if payload != 2 {
            assert_eq!(of_customer.line(), line);
        }
    }
    for follower in followers.into_iter().chain([of_customer]) {
        send_signal(&follower.child, "-INT");
        let (code, stderr, rest) = follower.end();
        assert_eq!(
            (code, stderr.as_str(), rest.len()),
            (Some(130), "", 0),
            "{rest:?}"
        );
    }
    agent.stop();
    server.stop();
}

fn one_job_of_an_agent_is_followed_to_its_end(new_workspace: fn() -> Workspace) {
    let workspace = new_workspace();
    let (server, agent) = start(&workspace);
    workspace.run("submit talk 1").expect(0);
    let mut follower = Follower::start(&workspace, &format!("1:0 --base-url {}", server.url));
    assert_eq!(follower.line(), "begun 1", "while it runs");
    workspace.write("go-1", "");
    let (code, stderr, rest) = follower.end();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(rest, ["over 1"]);
    let stored = format!("logs 1:0 --base-url {}", server.url);
    assert_eq!(workspace.run(&stored).expect(0), "begun 1\nover 1\n");
    for arguments in ["logs 1:7", "logs 1:7 --follow", "logs 9:0 --follow"] {
        let ended = workspace.run(&format!("{arguments} --base-url {}", server.url));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("there is no job "), "{ended:?}");
    }
    agent.stop();
    server.stop();
}

/// Nobody asks for output, so no agent sends any, and none is stored.
#[test]
fn while_nobody_follows_agents_send_no_output() {
    let workspace = Workspace::new();
    let server = serve(&workspace);
    for payload in 1..=5 {
        workspace.write(&format!("go-{payload}"), "");
    }
    workspace.run("submit talk 1 2 3 4 5").expect(0);
    let drained = agent(&workspace, &server).arg("--drain").status();
    assert!(drained.unwrap().success());
    let sent = |server: &Server| {
        let metrics = get(server, "/metrics");
        let lines = metrics.lines().filter(|line| !line.starts_with('#'));
        let of_output: Vec<String> = lines
            .filter(|line| line.contains("/output"))
            .map(str::to_owned)
            .collect();
        assert!(metrics.contains("/exchange"), "{metrics}");
        of_output
    };
    assert_eq!(sent(&server), [""; 0]);
    // With a follower the same count is not 0.
    let agent = Process::start(agent(&workspace, &server));
    let mut follower = Follower::start(&workspace, &format!("--kind talk --base-url {}", server.url));
    workspace.run("submit talk 6").expect(0);
    assert_eq!(follower.line(), "2:0 | begun 6");
    assert!(!sent(&server).is_empty());
    workspace.write("go-6", "");
    assert_eq!(follower.line(), "2:0 | over 6");
    send_signal(&follower.child, "-INT");
    assert_eq!(follower.end().0, Some(130));
    agent.stop();
    server.stop();
}

#[test]
fn the_jobs_of_a_run_are_followed() {
    let workspace = Workspace::new();
    workspace.write("talk.py", TALK).write("items.jsonl", "1\n2\n");
    let run = workspace.spawn(
        "run talk.py items.jsonl --name mine -o out.jsonl --quiet -j 2",
        Stdio::null(),
    );
    let begun = std::time::Instant::now();
    while workspace.run("jobs --run mine --state running --count").stdout != "2\n" {
        assert!(begun.elapsed() < PATIENCE, "the run does not begin");
    }
    workspace.run("submit talk 3").expect(0);
    let worker = Process::start(workspace.command("worker talk.py --quiet"));
    let mut follower = Follower::start(&workspace, "--run mine");
    assert_eq!(follower.sorted_lines(2), ["1:0 | begun 1", "1:1 | begun 2"]);
    for (payload, line) in [(2, "1:1 | over 2"), (3, ""), (1, "1:0 | over 1")] {
        workspace.write(&format!("go-{payload}"), "");
        if !line.is_empty() {
            assert_eq!(follower.line(), line);
        }
    }
    assert!(run.wait_with_output().unwrap().status.success());
    workspace.run("wait 2").expect(0);
    send_signal(&follower.child, "-INT");
    let (code, stderr, rest) = follower.end();
    assert_eq!(
        (code, stderr.as_str(), rest.len()),
        (Some(130), "", 0),
        "{rest:?}"
    );
    worker.stop();
}

#[test]
fn a_follower_ends_with_the_reader_of_its_output() {
    let workspace = Workspace::new();
    workspace.write("talk.py", TALK);
    workspace.run("submit talk 1").expect(0);
    let worker = Process::start(workspace.command("worker talk.py --quiet"));
    let mut follower = workspace.spawn("logs --follow --kind talk", Stdio::null());
    let mut output = BufReader::new(follower.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "1:0 | begun 1\n");
    drop(output);
    workspace.write("go-1", "");
    assert_eq!(follower.wait().unwrap().code(), Some(141));
    worker.stop();
}

#[test]
fn impossible_requests_to_follow_are_refused_with_a_remedy() {
    let workspace = Workspace::new();
    let nothing = workspace.run("logs --follow").error();
    assert!(nothing.contains("--kind, --queue, --tag or --run"), "{nothing}");
    let not_followed = workspace.run("logs --kind talk").error();
    assert!(not_followed.contains("--follow"), "{not_followed}");
    let both = workspace.run("logs 1:0 --follow --kind talk").error();
    assert!(both.contains("cannot be used with"), "{both}");
    let mut command = workspace.command("logs 1:0 --follow --base-url http://127.0.0.1:1");
    let nobody: workspace::Ended = command.output().unwrap().into();
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert!(nobody.stderr.contains("does not answer"), "{nobody:?}");
    let store = workspace.run("logs 1:0 --follow").error();
    assert!(store.contains("does not exist"), "{store}");
}

/// The body of an answer of the server's API.
fn get(server: &Server, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let request = format!("GET /api/v1{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
