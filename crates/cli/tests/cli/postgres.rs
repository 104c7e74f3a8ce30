//! Differences with a PostgreSQL database: its address, its password, several servers.

use crate::processes::{Process, Server};
use crate::workspace::{self, Workspace};

const DOUBLE: &str = "def main(payload):\n    return payload * 2\n";

fn url() -> String {
    let server = gristmill_private_postgres::shared();
    server.create_database().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_password_is_taken_from_the_environment_and_shown_nowhere() {
    let workspace = Workspace::new();
    let secret = format!("{}&password=open-sesame", url());
    let error = workspace.run(&format!("stats --store {secret}")).error();
    assert!(
        error.contains("PGPASSWORD") && error.contains("~/.pgpass"),
        "{error}"
    );
    assert!(!error.contains("open-sesame"), "{error}");
    let mut stats = workspace.command("stats");
    let ended: workspace::Ended = stats.env("GRISTMILL_STORE", &secret).output().unwrap().into();
    ended.expect(0);
    for broken in [
        "postgres://me:open-sesame@127.0.0.1:1/none",
        "postgres:///none?host=/nowhere&password=open-sesame",
    ] {
        let mut stats = workspace.command("stats");
        let output = stats
            .env("GRISTMILL_STORE", broken)
            .env("GRISTMILL_LOG", "trace")
            .output()
            .unwrap();
        let ended = workspace::Ended::from(output);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("none") && !ended.stderr.contains("open-sesame"),
            "{}",
            ended.stderr
        );
        let mut help = workspace.command("stats --help");
        let help: workspace::Ended = help.env("GRISTMILL_STORE", broken).output().unwrap().into();
        assert!(!help.expect(0).contains("open-sesame"));
    }
}

#[test]
fn an_invalid_store_is_refused_with_a_remedy() {
    let workspace = Workspace::new();
    for (store, says) in [
        ("mysql://me@host/db", "postgresql://user@host/database"),
        ("postgresql:///nowhere?host=/nowhere", "/nowhere"),
        ("postgresql://me@host/db?x=1", "x"),
    ] {
        let ended = workspace.run(&format!("stats --store {store}"));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
}

#[test]
fn one_server_takes_jobs_another_gives_them_away_and_a_third_answers() {
    let (workspace, url) = (Workspace::new(), url());
    workspace.write("double.py", DOUBLE);
    let command = |arguments: &str| {
        let mut command = workspace.command(arguments);
        command.env("GRISTMILL_STORE", &url);
        command
    };
    let [first, second, third] = [(); 3].map(|()| Server::start(command("serve --listen 127.0.0.1:0")));
    let agent = Process::start(command(&format!(
        "agent double.py --kind double --batch 100 --quiet --base-url {}",
        second.url
    )));
    let worker = Process::start(command("worker double.py --kind double --quiet"));
    let script = "import sys, json, urllib.request as u\n\
        body = json.dumps({'kind': 'double', 'payloads': list(range(5000))}).encode()\n\
        batches = json.load(u.urlopen(u.Request(sys.argv[1] + '/api/v1/jobs', body, {'content-type': 'application/json'})))['batches']\n\
        ids = ','.join(str(batch['batch']) for batch in batches)\n\
        lines = u.urlopen(sys.argv[2] + '/api/v1/results?wait_ms=30000&batches=' + ids).read().decode().splitlines()\n\
        assert [json.loads(line)['value'] for line in lines] == [2 * n for n in range(5000)], lines[:3]\n";
    let asked = std::process::Command::new("python3")
        .args(["-c", script, &first.url, &third.url])
        .output()
        .unwrap();
    assert!(
        asked.status.success(),
        "{}",
        String::from_utf8_lossy(&asked.stderr)
    );
    agent.stop();
    worker.stop();
    for server in [first, second, third] {
        server.stop();
    }
    let counts =
        workspace::json_lines(&workspace::Ended::from(command("stats --json").output().unwrap()).expect(0))
            .remove(0);
    assert_eq!(
        (&counts["workers"], &counts["leases"]),
        (&0.into(), &0.into()),
        "{counts}"
    );
}

#[test]
fn processes_that_stay_wait_for_a_database_that_is_away() {
    let server =
        gristmill_private_postgres::PrivatePostgres::start(&[]).unwrap_or_else(|error| panic!("{error}"));
    let (workspace, url) = (Workspace::new(), server.create_database().unwrap());
    workspace.write("double.py", DOUBLE);
    workspace.write("items.jsonl", "1\n2\n");
    let command = |arguments: &str| {
        let mut command = workspace.command(arguments);
        command.env("GRISTMILL_STORE", &url);
        command
    };
    server.stop().unwrap();
    let commands = [
        "worker double.py --kind double",
        "serve --listen 127.0.0.1:0",
        "run double.py --input items.jsonl --output out.jsonl",
    ];
    let [worker, serve, run] = commands.map(|arguments| Process::start(command(arguments)));
    for process in [&worker, &serve, &run] {
        process
            .says("cannot be reached yet")
            .expect("it says that it waits");
    }
    // A process that is asked to end meanwhile does so.
    worker.stop();
    // A command that should answer at once does not wait.
    let stats = workspace::Ended::from(command("stats").output().unwrap());
    assert_eq!(stats.code, Some(2), "{}", stats.stderr);
    assert!(stats.stderr.contains("could not be reached"), "{}", stats.stderr);
    server.start_again().unwrap();
    serve.says("listening on ").expect("it has found the database");
    serve.stop();
    let (code, _, stderr) = run.end();
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn a_run_is_held_against_other_machines() {
    let (workspace, url) = (Workspace::new(), url());
    workspace.write("double.py", DOUBLE);
    workspace.write("items.jsonl", "1\n2\n");
    let elsewhere = lock_of(&url, "numbers");
    let mut run = workspace.command("run double.py --name numbers --input items.jsonl --output out.jsonl");
    let run: workspace::Ended = run.env("GRISTMILL_STORE", &url).output().unwrap().into();
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(
        run.stderr.contains("run `numbers` is running in another process"),
        "{}",
        run.stderr
    );
    drop(elsewhere);
}

/// The lock of a run, held as by a process on another machine.
fn lock_of(url: &str, run: &str) -> (tokio::runtime::Runtime, gristmill_postgres_link::NameLock) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lock = runtime
        .block_on(gristmill_postgres_link::NameLock::try_take(
            url,
            &format!("run {run}"),
        ))
        .unwrap()
        .expect("nobody holds it");
    (runtime, lock)
}

/// A client's transaction makes a submit wait. The server is ready nevertheless, and reports that an operation waits.
#[test]
fn readiness_tells_of_operations_that_wait_for_locks() {
    use std::io::{Read, Write};
    let (workspace, url) = (Workspace::new(), url());
    let database = url.split(['/', '?']).nth(3).unwrap().to_owned();
    let postgres = gristmill_private_postgres::shared();
    let server = Server::start(workspace.command(&format!("serve --listen 127.0.0.1:0 --store {url}")));
    let readiness = || {
        let mut connection = std::net::TcpStream::connect(server.address()).unwrap();
        let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !is_so() {
            assert!(began.elapsed().as_secs() < 60, "{what}");
        }
    };
    assert!(!readiness().contains("writers_waiting"));
    let holder = std::thread::spawn({
        let database = database.clone();
        move || {
            // One transaction, which the end of the test aborts.
            let hold =
                r#"SELECT gristmill.submit('work', '1', options => '{"key": "a"}'); SELECT pg_sleep(600)"#;
            postgres.psql(&database, hold)
        }
    });
    let sleeping = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let is_held = || {
        postgres
            .psql(&database, &format!("SELECT count(*) {sleeping}"))
            .unwrap()
    };
    until("nobody holds a lock", &|| is_held().trim() == "1");
    let mut submit = workspace.command(&format!("submit work 2 --key b --store {url}"));
    let mut submit = submit.stdout(std::process::Stdio::null()).spawn().unwrap();
    // The database is asked, too, so that the server does not get thousands of requests.
    until("the server says of nobody that waits", &|| {
        is_held().trim() == "1" && readiness().contains("\"writers_waiting\":1")
    });
    let end = format!("SELECT pg_terminate_backend(pid) {sleeping}");
    postgres.psql(&database, &end).unwrap();
    assert!(holder.join().unwrap().is_err(), "it was broken off");
    submit.wait().unwrap();
    until("somebody waits still", &|| {
        is_held().trim() == "0" && !readiness().contains("writers_waiting")
    });
    server.stop();
}
