//! Estimates the tokens of an answer from earlier answers.

/// Tokens of an answer for each token of text, before the first answer. Knowledge in JSON is longer than its text.
const SHARE_FIRST: f64 = 3.0;

/// The number of answers that the first estimate counts as.
const FIRST_WEIGHT: f64 = 4.0;

/// The tokens of the text of the first estimate, so that it has a slope.
const FIRST_TEXT_TOKENS: f64 = 100.0;

/// The factor by which an answer's weight fades with each later answer: about the last hundred count.
const FADING: f64 = 0.99;

/// A regression line through the answers: an answer has a constant part, and a part that grows with its text. The mean
/// of the answers' shares was tried before. It estimated twice the tokens for a mixture of short and long texts,
/// because answers to short texts are many times their length.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerLength {
    weight: f64,
    text: f64,
    answer: f64,
    text_squared: f64,
    text_answer: f64,
}

impl AnswerLength {
    /// Makes the first estimate.
    pub(super) fn new() -> AnswerLength {
        let mut length = AnswerLength {
            weight: 0.0,
            text: 0.0,
            answer: 0.0,
            text_squared: 0.0,
            text_answer: 0.0,
        };
        length.add(FIRST_WEIGHT, 0.0, 0.0);
        length.add(FIRST_WEIGHT, FIRST_TEXT_TOKENS, FIRST_TEXT_TOKENS * SHARE_FIRST);
        length
    }

    /// Learns from an answer.
    pub(super) fn learn(&mut self, text_tokens: f64, answer_tokens: f64) {
        for sum in [
            &mut self.weight,
            &mut self.text,
            &mut self.answer,
            &mut self.text_squared,
            &mut self.text_answer,
        ] {
            *sum *= FADING;
        }
        self.add(1.0, text_tokens, answer_tokens);
    }

    /// Estimates the tokens of the answer to a text.
    pub(super) fn expected(&self, text_tokens: f64) -> f64 {
        let spread = self.weight * self.text_squared - self.text * self.text;
        let slope = (self.weight * self.text_answer - self.text * self.answer) / spread.max(1e-9);
        let slope = slope.max(0.0);
        let always = (self.answer - slope * self.text) / self.weight;
        slope.mul_add(text_tokens, always).max(0.0)
    }

    fn add(&mut self, weight: f64, text: f64, answer: f64) {
        self.weight += weight;
        self.text += weight * text;
        self.answer += weight * answer;
        self.text_squared += weight * text * text;
        self.text_answer += weight * text * answer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_estimate_depends_on_the_text() {
        let length = AnswerLength::new();
        assert!((length.expected(50.0) - 150.0).abs() < 1e-6);
    }

    #[test]
    fn the_constant_part_and_the_growing_part_are_learned() {
        let mut length = AnswerLength::new();
        for round in 0..400 {
            let text = f64::from(round % 40) * 10.0;
            length.learn(text, 200.0 + 1.5 * text);
        }
        for (text, answer) in [(0.0, 200.0), (100.0, 350.0), (1_000.0, 1_700.0)] {
            let expected = length.expected(text);
            assert!((expected / answer - 1.0).abs() < 0.05, "{text}: {expected}");
        }
    }

    #[test]
    fn equal_texts_are_enough() {
        let mut length = AnswerLength::new();
        (0..2_000).for_each(|_| length.learn(80.0, 10.0));
        let expected = length.expected(80.0);
        assert!((9.0..11.0).contains(&expected), "{expected}");
        assert!(length.expected(0.0) >= 0.0);
    }
}
