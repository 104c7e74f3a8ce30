//! The questions of running jobs about themselves, and their answers: two pipes beside the ones of `protocol.rs`, so that a job
//! can wait for its answer whatever its process reads and writes meanwhile.
//!
//! A question has 24 bytes: the nonce of the process (8), the number of the job (4), what it asks (4; 1: its place in a flow,
//! 2: the outcomes of its prerequisites), and a mark (8). A process asks one question at a time. The answer is the length of its
//! body (4), 0 or 1 for a failure (4), the mark (8), and a body: JSON, or the message of the failure.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::descriptors::{read_ready, small_pipe};
use crate::protocol::ProtocolError;

/// The bytes of a question.
const QUESTION_BYTES: usize = 24;

/// Questions that are read at a time. A process has one open question.
const QUESTIONS_READ_MAX: usize = 16;

/// What a job asks about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// The flow that began it.
    Flow,
    /// The outcomes of its prerequisites.
    Prerequisites,
}

/// A question of a job about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobQuestion {
    /// The nonce of its process.
    pub nonce: u64,
    /// The number of the job in its process.
    pub number: u32,
    pub about: About,
    /// The mark by which the process knows the answer.
    pub mark: u64,
}

impl JobQuestion {
    /// Answers it.
    pub fn answered(self, answer: Result<String, String>) -> JobAnswer {
        JobAnswer {
            nonce: self.nonce,
            mark: self.mark,
            answer,
        }
    }
}

/// The answer to a question.
#[derive(Debug)]
pub(crate) struct JobAnswer {
    /// The nonce of the process that asked.
    pub nonce: u64,
    mark: u64,
    /// JSON, or the message of a failure.
    answer: Result<String, String>,
}

impl JobAnswer {
    /// Whether it is the message of a failure.
    #[cfg(test)]
    pub fn is_failure(&self) -> bool {
        self.answer.is_err()
    }
}

/// Our ends of the two pipes.
#[derive(Debug)]
pub(crate) struct QuestionPipes {
    questions: OwnedFd,
    answers: OwnedFd,
    /// Answers that are not written yet, beginning with the byte `written`.
    unwritten: Vec<u8>,
    written: usize,
    /// A process that has closed its end asks nothing more.
    is_closed: bool,
}

impl QuestionPipes {
    /// Two pipes: our ends, the end for the process's questions, and the end for the answers to it.
    pub fn new() -> io::Result<(QuestionPipes, OwnedFd, OwnedFd)> {
        let (questions, their_questions) = small_pipe(true)?;
        let (their_answers, answers) = small_pipe(false)?;
        let question_pipes = QuestionPipes {
            questions,
            answers,
            unwritten: Vec::new(),
            written: 0,
            is_closed: false,
        };
        Ok((question_pipes, their_questions, their_answers))
    }

    /// The pipe to wait for: with room for an answer, or with a question. `None` for a process that asks nothing more.
    pub fn poll_fd(&self) -> Option<PollFd<'_>> {
        match (self.unwritten.is_empty(), self.is_closed) {
            (false, _) => Some(PollFd::new(&self.answers, PollFlags::OUT)),
            (true, false) => Some(PollFd::new(&self.questions, PollFlags::IN)),
            (true, true) => None,
        }
    }

    /// Reads the questions that have arrived, and writes as much of an answer as there is room for.
    pub fn read(&mut self, nonce: u64) -> Result<Vec<JobQuestion>, ProtocolError> {
        self.write();
        if self.is_closed {
            return Ok(Vec::new());
        }
        let mut bytes = [0; QUESTION_BYTES * QUESTIONS_READ_MAX];
        let count = match read_ready(self.questions.as_fd(), &mut bytes) {
            Ok(Some(count)) => count,
            Ok(None) | Err(_) => {
                self.is_closed = true;
                return Ok(Vec::new());
            }
        };
        // A write of so few bytes is never torn.
        if count % QUESTION_BYTES != 0 {
            return Err(ProtocolError::Parts);
        }
        let questions = bytes[..count].chunks_exact(QUESTION_BYTES);
        questions.map(|question| read_question(question, nonce)).collect()
    }

    /// Answers a question.
    pub fn answer(&mut self, answer: &JobAnswer) {
        let (is_failure, body) = match &answer.answer {
            Ok(body) => (0u32, body),
            Err(message) => (1, message),
        };
        let length = u32::try_from(body.len());
        let length = length.expect("outcomes have at most PREREQUISITES_BYTES_MAX bytes");
        self.unwritten.extend_from_slice(&length.to_le_bytes());
        self.unwritten.extend_from_slice(&is_failure.to_le_bytes());
        self.unwritten.extend_from_slice(&answer.mark.to_le_bytes());
        self.unwritten.extend_from_slice(body.as_bytes());
        self.write();
    }

    fn write(&mut self) {
        while self.written < self.unwritten.len() {
            match rustix::io::write(&self.answers, &self.unwritten[self.written..]) {
                Ok(bytes) => self.written += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The process is gone, which is noticed elsewhere.
                Err(_) => self.written = self.unwritten.len(),
            }
        }
        assert!(
            self.written <= self.unwritten.len(),
            "a pipe takes no more than it is given"
        );
        if self.written == self.unwritten.len() {
            // An answer may be large, and the next one comes seldom.
            (self.unwritten, self.written) = (Vec::new(), 0);
        }
    }
}

fn read_question(bytes: &[u8], nonce: u64) -> Result<JobQuestion, ProtocolError> {
    assert_eq!(bytes.len(), QUESTION_BYTES);
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    if long(0) != nonce {
        return Err(ProtocolError::Nonce);
    }
    let about = match word(12) {
        1 => About::Flow,
        2 => About::Prerequisites,
        other => return Err(ProtocolError::Kind(other)),
    };
    Ok(JobQuestion {
        nonce,
        number: word(8),
        about,
        mark: long(16),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(nonce: u64, number: u32, about: u32, mark: u64) -> Vec<u8> {
        let mut bytes = nonce.to_le_bytes().to_vec();
        bytes.extend(number.to_le_bytes());
        bytes.extend(about.to_le_bytes());
        bytes.extend(mark.to_le_bytes());
        bytes
    }

    #[test]
    fn questions_arrive_and_answers_of_any_length_leave() {
        let (mut question_pipes, their_questions, their_answers) = QuestionPipes::new().unwrap();
        assert_eq!(question_pipes.read(7), Ok(Vec::new()));
        rustix::io::write(&their_questions, &question(7, 3, 2, 9)).unwrap();
        let [asked] = question_pipes.read(7).unwrap()[..] else {
            panic!("one question")
        };
        let expected = JobQuestion {
            nonce: 7,
            number: 3,
            about: About::Prerequisites,
            mark: 9,
        };
        assert_eq!(asked, expected);
        let body = "x".repeat(3 << 20);
        question_pipes.answer(&asked.answered(Ok(body.clone())));
        let mut read = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        while read.len() < 16 + body.len() {
            let count = rustix::io::read(&their_answers, &mut buffer).unwrap();
            read.extend_from_slice(&buffer[..count]);
            question_pipes.read(7).unwrap();
        }
        assert_eq!(read[..4], (body.len() as u32).to_le_bytes());
        assert_eq!(
            (&read[4..8], &read[8..16]),
            (&[0; 4][..], &9u64.to_le_bytes()[..])
        );
        assert_eq!(read[16..], *body.as_bytes());
        drop(their_questions);
        assert_eq!(question_pipes.read(7), Ok(Vec::new()));
        assert!(question_pipes.is_closed);
    }

    #[test]
    fn questions_of_others_are_refused() {
        for (bytes, error) in [
            (question(8, 3, 2, 9), ProtocolError::Nonce),
            (question(7, 3, 5, 9), ProtocolError::Kind(5)),
            (question(7, 3, 2, 9)[..20].to_vec(), ProtocolError::Parts),
        ] {
            let (mut question_pipes, their_questions, _) = QuestionPipes::new().unwrap();
            rustix::io::write(&their_questions, &bytes).unwrap();
            assert_eq!(question_pipes.read(7), Err(error));
        }
    }
}
