//! Servers, agents and workers as separate processes, for tests that stop and kill them.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest wait of a test for an event.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A process of the program. It is killed when the test ends.
pub struct Process {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    /// The lines of its standard error.
    lines: mpsc::Receiver<String>,
}

impl Process {
    pub fn start(mut command: Command) -> Process {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (mut stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (said, lines) = mpsc::channel();
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("it writes text");
            text
        });
        let stderr = std::thread::spawn(move || {
            let mut all = String::new();
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                all += &line;
                all.push('\n');
                // The receiver may be gone.
                let _ = said.send(line);
            }
            all
        });
        Process {
            child,
            stdout: Some(stdout),
            stderr: Some(stderr),
            lines,
        }
    }

    /// Waits for a line on its standard error that contains `text`. Returns `None` if the process ends without one.
    pub fn says(&self, text: &str) -> Option<String> {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return Some(line),
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("it did not say `{text}`"),
            }
        }
    }

    /// The lines of its standard error that the test has not read.
    pub fn said(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Its process id, which is in the name of its worker.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success());
    }

    /// Kills it. Returns its messages if it had already ended by itself.
    pub fn kill(mut self) -> Option<String> {
        let ended = self.child.try_wait().expect("it can be looked at");
        let _ = self.child.kill();
        let _ = self.child.wait();
        ended.map(|status| format!("{status}: {}", self.stderr()))
    }

    /// Waits for its end, and returns its exit status and its output.
    pub fn end(mut self) -> (Option<i32>, String, String) {
        let status = self.child.wait().expect("it ends");
        let stdout = self.stdout.take().unwrap().join().unwrap();
        (status.code(), stdout, self.stderr())
    }

    /// Asks it to end, which must succeed. Returns its standard output.
    #[track_caller]
    pub fn stop(self) -> String {
        self.signal("TERM");
        let (code, stdout, stderr) = self.end();
        assert_eq!(code, Some(143), "{stderr}");
        stdout
    }

    fn stderr(&mut self) -> String {
        self.stderr
            .take()
            .map_or_else(String::new, |stderr| stderr.join().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that reports its address.
pub struct Server {
    pub process: Process,
    pub url: String,
}

impl Server {
    /// Starts one with the command `serve …`, which names its address.
    pub fn start(command: Command) -> Server {
        Server::try_start(command).unwrap_or_else(|stderr| panic!("the server ended: {stderr}"))
    }

    /// Like [`start`](Server::start), but returns the messages of a server that ended.
    pub fn try_start(command: Command) -> Result<Server, String> {
        let mut process = Process::start(command);
        match process.says("listening on ") {
            Some(line) => {
                let (_, url) = line.split_once("listening on ").expect("it says so");
                let url = url.to_owned();
                Ok(Server { process, url })
            }
            None => Err(process.stderr()),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.url
            .strip_prefix("http://")
            .expect("plain HTTP")
            .parse()
            .expect("an address")
    }

    pub fn stop(self) {
        self.process.stop();
    }
}
