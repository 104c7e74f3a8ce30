//! Questions of jobs on their way through the pool.

use std::sync::Arc;

use crate::pool::Pool;
use crate::pool::question_pipes::{About, JobQuestion};

/// A question of a job that waits for its answer. Dropping it answers with an error, so that no job waits for ever.
#[derive(Debug)]
pub(crate) struct Asked {
    question: JobQuestion,
    runner: usize,
    pool: Arc<Pool>,
    is_answered: bool,
}

impl Asked {
    pub fn new(question: JobQuestion, runner: usize, pool: &Arc<Pool>) -> Self {
        Asked {
            question,
            runner,
            pool: Arc::clone(pool),
            is_answered: false,
        }
    }

    pub fn about(&self) -> About {
        self.question.about
    }

    /// Gives the process the answer: JSON, or the reason why there is none.
    pub fn answer(mut self, answer: Result<String, String>) {
        self.send(answer);
    }

    fn send(&mut self, answer: Result<String, String>) {
        self.is_answered = true;
        self.pool.answer(self.runner, self.question.answered(answer));
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_answered {
            self.send(Err(
                "the worker has given the job up, or its time is over".to_owned()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{DetectOptions, Script};
    use crate::starts::ProcessListener;

    fn question(mark: u64) -> JobQuestion {
        JobQuestion {
            nonce: 7,
            number: 3,
            about: About::Flow,
            mark,
        }
    }

    #[test]
    fn each_question_has_an_answer_which_stays_until_its_runner_takes_it() {
        let script = Script::program(vec!["true".into()], &DetectOptions::default()).unwrap();
        let pool = Arc::new(Pool::new(&script, 2, ProcessListener::default(), None).unwrap());
        Asked::new(question(1), 1, &pool).answer(Ok("null".to_owned()));
        drop(Asked::new(question(2), 1, &pool));
        // A slot looks for work before it looks for answers.
        let (is_recalled, waiting) = pool.take(1);
        assert!(!is_recalled && waiting.is_empty());
        assert!(pool.take_answers(0).is_empty());
        let answers = pool.take_answers(1);
        let told = answers.iter().map(|answer| (answer.nonce, answer.is_failure()));
        assert_eq!(told.collect::<Vec<_>>(), [(7, false), (7, true)]);
        assert!(pool.take_answers(1).is_empty());
    }
}
