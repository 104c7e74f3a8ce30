//! Stored and live logs of jobs, read from a server.

use std::time::Duration;

use bytes::BytesMut;
use gristmill_model::limits::LOG_BYTES_MAX;
use gristmill_model::{JobId, LogEvent, Rng};
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;

use crate::connection::{Connection, Refused, read};
use crate::error::AgentError;
use crate::options::HttpSourceOptions;

/// The longest silence of a stream. The server sends a sign of life every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// The largest event: a log whose characters are all escaped, and some more. Bytes.
const EVENT_BYTES_MAX: usize = 6 * LOG_BYTES_MAX + (64 << 10);

/// The time for which a lost stream is opened again before it is given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// The first and the longest pause between two attempts to open it.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The error of reading logs from a server.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogsError {
    /// The job, run or batch does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The server refuses the request; a repetition does not help.
    #[error("{0}")]
    Refused(String),
    /// No server answers.
    #[error("{0}; see --base-url")]
    Unreachable(String),
}

impl From<Refused> for LogsError {
    fn from(refused: Refused) -> Self {
        let message = refused.error.message.clone();
        match refused.status {
            Some(StatusCode::NOT_FOUND) => LogsError::NotFound(message),
            _ if refused.is_server_lost() => LogsError::Unreachable(message),
            _ => LogsError::Refused(message),
        }
    }
}

/// The followed jobs: one, or all running jobs that match.
#[derive(Debug, Clone, Default)]
pub struct LogsWanted {
    /// This job. Then no other field is set.
    pub job: Option<JobId>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only on this queue.
    pub queue: Option<String>,
    /// Only of the run of this name.
    pub run: Option<String>,
    /// Only with all of these tags.
    pub tags: Vec<String>,
}

impl LogsWanted {
    fn path(&self) -> Result<String, LogsError> {
        let tags = (!self.tags.is_empty()).then(|| self.tags.join(","));
        let named = [
            ("job", self.job.map(|job| job.to_string())),
            ("kind", self.kind.clone()),
            ("queue", self.queue.clone()),
            ("run", self.run.clone()),
            ("tags", tags),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let url = Url::parse_with_params("http://server/logs", named)
            .map_err(|error| LogsError::Refused(error.to_string()))?;
        Ok(format!("/logs?{}", url.query().unwrap_or_default()))
    }
}

/// The output of one attempt of a job.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AttemptLog {
    /// The number of the attempt.
    pub attempt: u32,
    /// Its output, if it printed any.
    #[serde(default)]
    pub log: Option<String>,
}

#[derive(Deserialize)]
struct JobLogs {
    failures: Vec<AttemptLog>,
    #[serde(flatten)]
    last: AttemptLog,
}

/// Reads logs from one of several servers of a store.
pub struct LogClient {
    connection: Connection,
    wanted: LogsWanted,
    stream: Option<Stream>,
    was_open: bool,
}

impl std::fmt::Debug for LogClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("LogClient")
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}

impl LogClient {
    /// A reader that has not sent a request yet.
    pub fn new(
        options: &HttpSourceOptions,
        rng: Box<dyn Rng>,
        wanted: LogsWanted,
    ) -> Result<LogClient, AgentError> {
        Ok(LogClient {
            connection: Connection::new(options, rng)?,
            wanted,
            stream: None,
            was_open: false,
        })
    }

    /// The output of a job's ended attempts, oldest first. The last one belongs to the job's state.
    pub async fn attempts(&self, job: JobId) -> Result<Vec<AttemptLog>, LogsError> {
        let response = self.connection.open(&format!("/jobs/{job}")).await?;
        let answer = read(response).await?;
        let logs: JobLogs = serde_json::from_slice(&answer).map_err(not_ours)?;
        let mut attempts = logs.failures;
        attempts.extend(logs.last.log.is_some().then_some(logs.last));
        Ok(attempts)
    }

    /// The next event from any server. If a stream ends too early, it is opened again. Events may then come twice, with
    /// the same ids. Does not end by itself.
    pub async fn next(&mut self) -> Result<LogEvent, LogsError> {
        loop {
            if self.stream.is_none() {
                let response = self.open().await?;
                self.stream = Some(Stream::of(response));
                self.was_open = true;
            }
            let Some(stream) = &mut self.stream else { continue };
            match stream.next().await {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => self.stream = None,
                Err(refused) if refused.is_server_lost() => self.stream = None,
                Err(refused) => return Err(refused.into()),
            }
        }
    }

    /// Opens the stream. The first time it tries once, and later as long as it takes.
    async fn open(&self) -> Result<Response, LogsError> {
        let path = self.wanted.path()?;
        let began = tokio::time::Instant::now();
        let mut pause = PAUSE_FIRST;
        loop {
            if self.was_open {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            match self.connection.open(&path).await {
                Ok(response) => return Ok(response),
                Err(refused)
                    if self.was_open && refused.is_server_lost() && began.elapsed() < GIVE_UP_AFTER => {}
                Err(refused) => return Err(refused.into()),
            }
        }
    }
}

fn not_ours(error: impl std::fmt::Display) -> LogsError {
    LogsError::Refused(format!(
        "the server's answer cannot be read: {error}; use the same version on both sides"
    ))
}

/// A stream of server-sent events, in the form that servers of Gristmill write.
struct Stream {
    response: Response,
    lines: Lines,
}

impl Stream {
    fn of(response: Response) -> Stream {
        Stream {
            response,
            lines: Lines::default(),
        }
    }

    /// The next event. `None` at the end. The future may be dropped and called again without a loss.
    async fn next(&mut self) -> Result<Option<LogEvent>, Refused> {
        loop {
            if let Some(event) = self.lines.event()? {
                return Ok(Some(event));
            }
            match tokio::time::timeout(SILENCE_MAX, self.response.chunk()).await {
                Err(_) => return Err(Refused::silent(SILENCE_MAX)),
                Ok(Err(error)) => return Err(Refused::lost(&error)),
                Ok(Ok(None)) => return Ok(None),
                Ok(Ok(Some(chunk))) => self.lines.0.extend_from_slice(&chunk),
            }
        }
    }
}

/// The bytes of a stream that have arrived and were not read yet.
#[derive(Default)]
struct Lines(BytesMut);

impl Lines {
    /// The next complete event with data. An empty line ends each event.
    fn event(&mut self) -> Result<Option<LogEvent>, Refused> {
        while let Some(end) = self.0.windows(2).position(|two| two == b"\n\n") {
            let event = self.0.split_to(end + 2);
            let mut lines = event[..].split(|byte| *byte == b'\n');
            let data = lines.find_map(|line| line.strip_prefix(b"data:"));
            if let Some(data) = data {
                let event = serde_json::from_slice(data).map_err(|error| {
                    Refused::fatal(format!(
                        "the server's answer cannot be read: {error}; use the same version on both sides"
                    ))
                })?;
                return Ok(Some(event));
            }
        }
        if self.0.len() > EVENT_BYTES_MAX {
            Err(Refused::fatal(format!(
                "an event of the server is over {EVENT_BYTES_MAX} bytes"
            )))
        } else {
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::JobState;

    use super::*;

    #[test]
    fn events_are_cut_at_empty_lines_wherever_the_bytes_are_cut() {
        let text = ":\n\nevent: ended\ndata: {\"type\":\"ended\",\"job\":\"4:2\",\"state\":\"dead\"}\n\n\
                    event: left_out\ndata: {\"type\":\"left_out\",\"jobs\":3}\n\n";
        let expected = [
            LogEvent::Ended {
                job: "4:2".parse().unwrap(),
                state: JobState::Dead,
            },
            LogEvent::LeftOut { jobs: 3 },
        ];
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut events = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                lines.0.extend_from_slice(part.as_bytes());
                while let Ok(Some(event)) = lines.event() {
                    events.push(event);
                }
            }
            assert_eq!(events, expected, "cut at {cut}");
        }
        let mut lines = Lines::default();
        lines.0.extend_from_slice(&vec![b'x'; EVENT_BYTES_MAX + 1]);
        assert!(lines.event().is_err(), "it would grow without an end");
        lines.0 = b"data: nonsense\n\n".as_slice().into();
        assert!(lines.event().is_err());
    }

    #[test]
    fn the_wanted_jobs_are_written_as_a_query() {
        let wanted = LogsWanted {
            run: Some("a b&c".to_owned()),
            tags: vec!["customer=7".to_owned(), "x*".to_owned()],
            ..LogsWanted::default()
        };
        assert_eq!(wanted.path().unwrap(), "/logs?run=a+b%26c&tags=customer%3D7%2Cx*");
    }
}
