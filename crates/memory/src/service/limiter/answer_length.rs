//! How many tokens an answer will have, by those of the answers before it.

/// Tokens of answers for each token of text, before the first answer: knowledge in JSON is longer than its text.
const SHARE_FIRST: f64 = 3.0;

/// As how many answers the first guess counts.
const FIRST_WEIGHT: f64 = 4.0;

/// The tokens of the text of the first guess, so that it has a weight.
const FIRST_TEXT_TOKENS: f64 = 100.0;

/// How much less an answer counts with each one after it: about the last hundred tell.
const FADING: f64 = 0.99;

/// A straight line through what was seen: an answer has a part that is always there and one that grows with its text.
/// The mean of the answers' shares, which it replaced, told twice the tokens for a mixture of short and long texts,
/// since the answers to short ones are many times their length.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerLength {
    weight: f64,
    text: f64,
    answer: f64,
    text_squared: f64,
    text_answer: f64,
}

impl AnswerLength {
    /// Before the first answer.
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

    /// An answer of so many tokens came to a text of so many.
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

    /// The tokens of the answer to a text of so many.
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
    fn guesses_by_the_text_at_first() {
        let length = AnswerLength::new();
        assert!((length.expected(50.0) - 150.0).abs() < 1e-6);
    }

    #[test]
    fn learns_what_is_always_there_and_what_grows() {
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
