use std::sync::{Arc, Mutex};

use gristmill_model::{BatchId, PackedArray, Positions, Timestamp};
use gristmill_store::{StoredFailure, StoredReport};

use super::*;

/// A sink that fails on request.
struct Sink {
    written: Arc<Mutex<Vec<u8>>>,
    fails_with: Option<io::ErrorKind>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.fails_with {
            Some(kind) => Err(kind.into()),
            None => self.written.lock().unwrap().write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn report(state: JobState, positions: &str, values: Option<&str>) -> StoredReport {
    let positions: Positions = positions.parse().unwrap();
    StoredReport {
        state,
        durations_us: vec![10; positions.len() as usize],
        positions,
        values: values.map(|values| PackedArray::parse(values).unwrap()),
        attempt: 1,
        worker: None,
        finished_at: Timestamp(0),
    }
}

fn batch() -> BatchOutcomes {
    let error = JobError::new("KeyError", "'text'").with_traceback("line 3");
    BatchOutcomes {
        batch: BatchId(7),
        count: 7,
        reports: vec![
            report(JobState::Completed, "0,4", Some(r#"[{"a": 1}, "last"]"#)),
            report(JobState::Completed, "1", Some("[null]")),
            report(JobState::Dead, "2", None),
            report(JobState::Cancelled, "3", None),
            report(JobState::Expired, "5", None),
        ],
        errors: vec![StoredFailure {
            position: 2,
            attempt: 3,
            error,
            duration_us: 5,
            log: None,
            worker: None,
            failed_at: Timestamp(0),
        }],
    }
}

fn written(form: LineForm) -> (String, OutputStatistics) {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let sink = Sink {
        written: bytes.clone(),
        fails_with: None,
    };
    let mut output = Output::to("test".to_owned(), Box::new(sink), None, form);
    output.write_batch(&batch()).unwrap();
    let statistics = output.finish().unwrap();
    let text = String::from_utf8(bytes.lock().unwrap().clone()).unwrap();
    (text, statistics)
}

#[test]
fn each_ended_job_has_its_line_in_order() {
    let (text, statistics) = written(LineForm::Outcome);
    let expected = r#"{"job":"7:0","value":{"a": 1}}
{"job":"7:1","value":null}
{"job":"7:2","error":{"type":"KeyError","message":"'text'","traceback":"line 3"}}
{"job":"7:3","error":{"type":"cancelled","message":"the job was cancelled"}}
{"job":"7:4","value":"last"}
{"job":"7:5","error":{"type":"expired","message":"no worker started the job in time"}}
"#;
    assert_eq!(text, expected);
    assert_eq!(
        (statistics.completed, statistics.failed, statistics.missing),
        (3, 3, 1)
    );
    assert_eq!(statistics.durations.mean_us(), Some(10.0));
    assert_eq!(statistics.failures.commonest(5).0.len(), 3);
}

#[test]
fn bare_values_are_null_for_failed_jobs() {
    assert_eq!(
        written(LineForm::Value).0,
        "{\"a\": 1}\nnull\nnull\nnull\n\"last\"\nnull\n"
    );
}

#[test]
fn a_closed_pipe_a_full_disk_and_other_errors_differ() {
    for (kind, expected) in [
        (
            io::ErrorKind::BrokenPipe,
            "the output's reader has closed the pipe",
        ),
        (io::ErrorKind::StorageFull, "the disk of test is full"),
        (
            io::ErrorKind::PermissionDenied,
            "test cannot be written any further",
        ),
    ] {
        let sink = Sink {
            written: Arc::default(),
            fails_with: Some(kind),
        };
        let mut output = Output::to("test".to_owned(), Box::new(sink), None, LineForm::Value);
        output.write_batch(&batch()).unwrap();
        let error = output.flush().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
