//! What running jobs ask about themselves.

use super::Slot;
use crate::pool::Asked;
use crate::pool::question_pipes::JobQuestion;

impl Slot {
    /// Passes questions of jobs on to the worker's task, which answers them through the pool.
    pub(super) fn ask(&self, questions: Vec<JobQuestion>) {
        for question in questions {
            // Dropping it answers the question.
            let asked = Asked::new(question, self.number, &self.pool);
            let place = self.stream.piece_of(question.number).and_then(|piece| {
                let piece = &self.stream.pieces[piece];
                assert!(piece.first <= question.number, "a piece has its own jobs");
                let place = piece.places[(question.number - piece.first) as usize];
                let owner = self.in_flight.iter().find(|one| one.id == piece.owner)?;
                Some((owner, place))
            });
            if let Some((owner, place)) = place {
                owner.work.ask(place, asked);
            }
        }
    }

    /// Passes answers on to the process that asked.
    pub(super) fn answer_questions(&mut self) {
        for answer in self.pool.take_answers(self.number) {
            if let Some(process) = &mut self.process {
                process.answer_question(&answer);
            }
        }
    }
}
