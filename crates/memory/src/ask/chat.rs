//! A conversation about a knowledge base, whose questions may leave out names that came before.
//!
//! A model completes each question so that it is understandable on its own. Without a model, rules complete it. The
//! complete question is then answered like any other: by the model, or by the recalled messages themselves.

mod follow_up;

use std::collections::VecDeque;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ask::{Answer, AskOptions};
use crate::error::MemoryError;
use crate::knowledge::Knowledge;
use crate::limits::{
    CHAT_QUESTION_BYTES_MAX, CHAT_QUESTION_TOKENS_MAX, CHAT_SHOWN_CHARACTERS_MAX, CHAT_TOPICS_MAX,
};
use crate::memory::Memory;
use crate::query::search_query::{Date, DateTimeRange};
use crate::query::understand;
use crate::recall::{Recalled, RecalledMessage, RecalledRef, compile_options};
use crate::service::{ChatRequest, Service, Usage};
use crate::words::{speaker_word, split};
use follow_up::{Completed, Name, Person, Topic, complete, names};

/// The model's instructions for follow-up questions.
const INSTRUCTIONS: &str = "You are shown a conversation and the last question of it. Write that question so that it is understood \
    without the conversation: put the names, places and times that it leaves out or tells by pronouns. Change nothing else, and \
    do not answer it. Answer with JSON alone: `question`.";

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "type": "object",
        "properties": { "question": { "type": "string" } },
        "required": ["question"],
    })
});

/// A conversation. It keeps the names from its last questions and answers.
#[derive(Debug, Clone, Default)]
pub struct Chat {
    /// The topics of the last questions, newest first; at most [`CHAT_TOPICS_MAX`].
    topics: VecDeque<Topic>,
}

/// The reply to a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// The question as it was asked.
    pub asked: String,
    /// The completed question.
    pub understood: String,
    /// The answer, or the recalled messages.
    #[serde(flatten)]
    pub found: Replied,
}

/// The content of a reply.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Replied {
    /// The answer of a model.
    Answer(Box<Answer>),
    /// The recalled messages and knowledge, if there is no model.
    Recalled(Box<Recalled>),
}

impl Reply {
    /// Whether the reply has an answer, or at least one message.
    pub fn is_answered(&self) -> bool {
        match &self.found {
            Replied::Answer(answer) => answer.answered,
            Replied::Recalled(recalled) => !recalled.messages.is_empty(),
        }
    }
}

/// The answer of the model to [`INSTRUCTIONS`].
#[derive(Deserialize)]
struct Written {
    question: String,
}

impl Chat {
    /// Forgets all topics.
    pub fn forget(&mut self) {
        self.topics.clear();
    }

    /// Replies to the next question, with the model of `service` if there is one. An error leaves the conversation unchanged.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Invalid`] for a question that is too long, and the errors of [`Memory::ask`] and [`Memory::recall`].
    pub async fn ask(
        &mut self,
        memory: &Memory,
        service: Option<&Service>,
        options: &AskOptions,
        asked: &str,
    ) -> Result<Reply, MemoryError> {
        if asked.len() > CHAT_QUESTION_BYTES_MAX {
            return Err(MemoryError::invalid(
                "the question",
                format!(
                    "it has {} bytes; the limit is {CHAT_QUESTION_BYTES_MAX}",
                    asked.len()
                ),
            ));
        }
        let mut usage = Usage::default();
        let persons = self.persons_in(memory, asked).await?;
        let by_rules = complete(asked, self.topics.make_contiguous(), &persons);
        let completed = match service {
            Some(service) if !self.topics.is_empty() => {
                let by_model = self.by_model(service, asked, &mut usage).await?;
                match by_model {
                    Some(question) => Completed {
                        subject: question.clone(),
                        question,
                        persons: by_rules.persons,
                    },
                    None => by_rules,
                }
            }
            _ => by_rules,
        };
        let found = match service {
            Some(service) => {
                let mut answer = memory.ask(service, &completed.question, options).await?;
                answer.usage.add(&usage);
                Replied::Answer(Box::new(answer))
            }
            None => {
                let recalled = memory.recall(&completed.question, &options.recall).await?;
                Replied::Recalled(Box::new(recalled))
            }
        };
        let reply = Reply {
            asked: asked.to_owned(),
            understood: completed.question.clone(),
            found,
        };
        let topic = Chat::topic(memory, options, completed, &reply).await?;
        self.topics.truncate(CHAT_TOPICS_MAX - 1);
        self.topics.push_front(topic);
        assert!(
            self.topics.len() <= CHAT_TOPICS_MAX,
            "a conversation keeps a limited number of topics"
        );
        Ok(reply)
    }

    /// Asks the model to complete the question; `None` if its answer is unusable.
    async fn by_model(
        &self,
        service: &Service,
        asked: &str,
        usage: &mut Usage,
    ) -> Result<Option<String>, MemoryError> {
        let mut text = String::new();
        for topic in self.topics.iter().rev() {
            let (question, answer) = (shown_again(&topic.question), &topic.answer);
            text.push_str(&format!("Question: {question}\nAnswer: {answer}\n\n"));
        }
        text.push_str(&format!("The last question: {asked}"));
        let request = ChatRequest {
            instructions: INSTRUCTIONS,
            text: &text,
            schema_name: "question",
            schema: &SCHEMA,
            output_tokens_max: Some(CHAT_QUESTION_TOKENS_MAX),
        };
        let written: Option<Written> = service.chat_json(&request, usage).await?;
        let question = written.map(|written| written.question.trim().to_owned());
        Ok(question.filter(|question| !question.is_empty() && question.len() <= CHAT_QUESTION_BYTES_MAX))
    }

    /// Finds the names of persons in a question: speakers, and names that stood for persons before.
    async fn persons_in(&self, memory: &Memory, asked: &str) -> Result<Vec<String>, MemoryError> {
        let mut persons = Vec::new();
        for name in names(asked) {
            let mut known = self.topics.iter().flat_map(|topic| &topic.persons);
            if known.any(|person| person.name == name.text) || is_speaker(memory, &name.text).await? {
                persons.push(name.text);
            }
        }
        Ok(persons)
    }

    /// Gathers the names, the place and the time of a question and its reply.
    async fn topic(
        memory: &Memory,
        options: &AskOptions,
        completed: Completed,
        reply: &Reply,
    ) -> Result<Topic, MemoryError> {
        let (answer, best, recalled): (&str, _, &[RecalledRef]) = match &reply.found {
            Replied::Answer(answer) => {
                let best = answer.citations.first().map(|citation| &citation.message);
                (answer.text.as_str(), best, &[][..])
            }
            Replied::Recalled(recalled) => ("", recalled.messages.first(), recalled.knowledge.as_slice()),
        };
        let mut topic = Topic {
            answer: answer_text(answer, best),
            time: time_of(&completed.question, best, zone(memory, options).await?),
            persons: completed.persons,
            question: completed.question,
            subject: completed.subject,
            place: None,
        };
        let mut others = Vec::new();
        let told = names(&topic.subject).into_iter().chain(names(answer)).collect();
        topic.add_names(memory, told, recalled, &mut others).await?;
        if let Some(best) = best {
            best.message
                .message
                .speaker
                .iter()
                .for_each(|name| topic.add_person(name));
            if answer.is_empty() {
                let told = names(&shown_again(&best.message.message.text()));
                topic.add_names(memory, told, recalled, &mut others).await?;
            }
        }
        // Names that may not be persons come last.
        others.iter().for_each(|name| topic.add_person(name));
        Ok(topic)
    }
}

impl Topic {
    /// Adds names to the topic: persons, and the first place. Names that may be persons go to `others`.
    async fn add_names(
        &mut self,
        memory: &Memory,
        names: Vec<Name>,
        recalled: &[RecalledRef],
        others: &mut Vec<String>,
    ) -> Result<(), MemoryError> {
        for name in names {
            let types = types_of(&name.text, recalled);
            let is_typed = types.map(|types| types.iter().any(|kind| kind == "person"));
            if is_typed == Some(true) || is_speaker(memory, &name.text).await? {
                self.add_person(&name.text);
            } else if is_typed.is_none() && name.may_be_person() {
                others.push(name.text);
            } else if name.is_placed && self.place.is_none() {
                self.place = Some(name.text);
            }
        }
        Ok(())
    }

    fn add_person(&mut self, name: &str) {
        if self.persons.iter().all(|person| person.name != name) {
            self.persons.push(Person::new(name));
        }
    }
}

/// Finds the types of the entity with this name, if it was recalled.
fn types_of<'a>(name: &str, recalled: &'a [RecalledRef]) -> Option<&'a [String]> {
    let mut entities = recalled
        .iter()
        .filter_map(|found| match &found.reference.knowledge {
            Knowledge::Entity(entity) => Some(entity),
            _ => None,
        });
    let known = entities.find(|entity| entity.name.eq_ignore_ascii_case(name));
    known.map(|entity| entity.types.as_slice())
}

/// Whether a speaker has this name.
async fn is_speaker(memory: &Memory, name: &str) -> Result<bool, MemoryError> {
    let words = split(name).map(|word| speaker_word(&word)).collect();
    let spoken = memory.knowledge().messages_with(words).await?;
    Ok(spoken.iter().any(|messages| !messages.is_empty()))
}

/// Finds the offset from UTC of the times in questions, in minutes.
async fn zone(memory: &Memory, options: &AskOptions) -> Result<i16, MemoryError> {
    let compiled = compile_options(&**memory.knowledge(), &options.recall).await?;
    Ok(compiled.zone_minutes)
}

/// Cuts the answer to the length that a model is shown again. Without an answer, the best message stands for it.
fn answer_text(answer: &str, best: Option<&RecalledMessage>) -> String {
    let text = match (answer, best) {
        ("", Some(best)) => best.message.message.text(),
        (answer, _) => answer.to_owned(),
    };
    shown_again(&text)
}

/// Cuts a text to the length that a model is shown again.
fn shown_again(text: &str) -> String {
    text.chars().take(CHAT_SHOWN_CHARACTERS_MAX).collect()
}

/// The time in the question, or else the time of the best message, in words that a question may use.
fn time_of(question: &str, best: Option<&RecalledMessage>, zone_minutes: i16) -> Option<String> {
    let told = understand(question, None)
        .time_range
        .and_then(|range| words_of(&range));
    told.or_else(|| {
        let at = best?.message.message.moment?.at;
        let local = at.0.checked_add(i64::from(zone_minutes) * 60_000)?;
        let day = chrono::DateTime::from_timestamp_millis(local)?.date_naive();
        Some(format!("on {day}"))
    })
}

fn words_of(range: &DateTimeRange) -> Option<String> {
    let day = |date: Date| chrono::NaiveDate::from_ymd_opt(date.year, date.month, date.day);
    let first = day(range.start_date.date)?;
    let Some(stop) = &range.stop_date else {
        return Some(format!("since {first}"));
    };
    let last = day(stop.date)?.pred_opt()?;
    Some(if first == last {
        format!("on {first}")
    } else {
        format!("between {first} and {last}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_a_question_names_it() {
        for (asked, expected) in [
            ("What happened on 2023-05-08?", Some("on 2023-05-08")),
            (
                "What happened in May 2023?",
                Some("between 2023-05-01 and 2023-05-31"),
            ),
            ("Mails since 2023-05-08", Some("since 2023-05-08")),
            ("Who keeps bees?", None),
        ] {
            let told = time_of(asked, None, 0);
            assert_eq!(told.as_deref(), expected, "{asked}");
            if let Some(told) = told {
                let again = understand(&format!("What happened {told}?"), None).time_range;
                assert_eq!(again, understand(asked, None).time_range, "{told}");
            }
        }
    }
}
