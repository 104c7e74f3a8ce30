//! Recalled messages and knowledge as text for people.

use std::ops::Range;

use gristmill_memory::knowledge::{Facet, FacetValue};
use gristmill_memory::recall::{Gain, RecalledMessage};
use gristmill_memory::{Action, Entity, Knowledge};

/// The number of characters of a message to show.
const MESSAGE_CHARACTERS_SHOWN: usize = 400;

/// The characters before the first found word that are shown of a long message.
const CHARACTERS_BEFORE: usize = 80;

/// How messages are shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown {
    /// Whole messages, and not only the part with the words of the question.
    pub full: bool,
    /// The words of the question stand out, by control characters of terminals.
    pub marked: bool,
}

/// Messages, each with its number, its knowledge base where there are several, and an empty line after it.
pub fn messages_text<'a>(
    messages: impl IntoIterator<Item = (Option<&'a str>, &'a RecalledMessage)>,
    shown: Shown,
) -> String {
    let mut lines = Vec::new();
    for (number, (base, message)) in (1..).zip(messages) {
        lines.push(format!("{number}. {}", heading_in(base, message)));
        lines.push(text_of(message, shown));
        if !message.also_in.is_empty() {
            let places = message.also_in.iter();
            let places: Vec<String> = places
                .map(|place| format!("{} #{}", place.source, place.position))
                .collect();
            lines.push(plain(&format!("   also in {}", places.join(", "))));
        }
        if !message.explanation.is_empty() {
            lines.push(explanation_text(message.score, &message.explanation));
        }
        lines.push(String::new());
    }
    lines.join("\n")
}

/// The parts of a score, on one line.
fn explanation_text(score: f64, parts: &[Gain]) -> String {
    let parts: Vec<String> = parts
        .iter()
        .map(|part| format!("{} {:+.2}", part.part, part.gain))
        .collect();
    format!("   score {score:.2}: {}", parts.join(", "))
}

/// The speaker, time and position of a message.
pub fn heading(recalled: &RecalledMessage) -> String {
    heading_in(None, recalled)
}

/// The heading of a message, with the knowledge base that it is from, if there are several.
fn heading_in(base: Option<&str>, recalled: &RecalledMessage) -> String {
    let stored = &recalled.message;
    let base = base.map(|base| format!("{base}: ")).unwrap_or_default();
    let mut parts = vec![format!("{base}{} #{}", stored.source, stored.position)];
    parts.extend(stored.message.speaker.clone());
    parts.extend(stored.message.moment.map(|moment| moment.at.to_string()));
    parts.extend(stored.message.subject.clone());
    plain(&parts.join(" · "))
}

/// Text for a terminal, without the control characters of a message.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if letter.is_control() && letter != '\n' && letter != '\t' {
                ' '
            } else {
                letter
            }
        })
        .collect()
}

/// The text of a message, indented. Of a long one, a part of [`MESSAGE_CHARACTERS_SHOWN`] characters from shortly before the first
/// word of the question.
fn text_of(message: &RecalledMessage, shown: Shown) -> String {
    let letters: Vec<char> = message.message.message.text().chars().collect();
    let mut words = words_of(message);
    let part = if shown.full {
        0..letters.len()
    } else {
        part_with(&letters, &words)
    };
    words.retain(|word| shown.marked && part.start <= word.start && word.end <= part.end);
    let mut text = String::new();
    if part.start > 0 {
        text.push('…');
    }
    let mut words = words.into_iter().peekable();
    for at in part.clone() {
        if words.peek().is_some_and(|word| word.start == at) {
            text.push_str("\u{1b}[1m");
        }
        let letter = letters[at];
        let is_shown = !letter.is_control() || letter == '\n' || letter == '\t';
        text.push(if is_shown { letter } else { ' ' });
        if words.next_if(|word| word.end == at + 1).is_some() {
            text.push_str("\u{1b}[0m");
        }
    }
    if part.end < letters.len() {
        text.push('…');
    }
    let lines = text.trim().lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| format!("   {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The places of the words of the question in the whole text, in characters.
fn words_of(message: &RecalledMessage) -> Vec<Range<usize>> {
    let chunks = &message.message.message.text_chunks;
    let mut begins = vec![0];
    for chunk in chunks {
        begins.push(begins[begins.len() - 1] + chunk.chars().count());
    }
    let places = message.highlights.iter().map(|found| {
        let begin = begins.get(found.chunk as usize).copied().unwrap_or_default();
        begin + found.start as usize..begin + found.end as usize
    });
    places.collect()
}

/// The part of a text to show: its beginning, or what is around the first word of the question that is not in it.
fn part_with(letters: &[char], words: &[Range<usize>]) -> Range<usize> {
    let count = letters.len();
    if count <= MESSAGE_CHARACTERS_SHOWN {
        return 0..count;
    }
    let is_first_shown = words
        .first()
        .is_none_or(|word| word.end <= MESSAGE_CHARACTERS_SHOWN);
    let start = if is_first_shown {
        0
    } else {
        let wanted = words[0].start.saturating_sub(CHARACTERS_BEFORE);
        let wanted = wanted.min(count - MESSAGE_CHARACTERS_SHOWN);
        // The part begins with a whole word.
        let is_break = |at: &usize| letters[*at].is_whitespace();
        (wanted..words[0].start)
            .find(is_break)
            .map_or(wanted, |at| at + 1)
    };
    start..(start + MESSAGE_CHARACTERS_SHOWN).min(count)
}

/// One piece of knowledge on one line.
pub fn knowledge_line(knowledge: &Knowledge) -> String {
    let line = match knowledge {
        Knowledge::Entity(entity) => format!("entity  {}", entity_text(entity)),
        Knowledge::Action(action) => format!("action  {}", action_text(action)),
        Knowledge::Topic(topic) => format!("topic   {}", topic.text),
        Knowledge::Tag(tag) => format!("tag     {}", tag.text),
    };
    plain(&line).replace('\n', " ")
}

fn entity_text(entity: &Entity) -> String {
    let mut text = entity.name.clone();
    if !entity.types.is_empty() {
        text.push_str(&format!(" ({})", entity.types.join(", ")));
    }
    let facets: Vec<String> = entity.facets.iter().map(facet_text).collect();
    if !facets.is_empty() {
        text.push_str(&format!(": {}", facets.join(", ")));
    }
    text
}

fn facet_text(facet: &Facet) -> String {
    match &facet.value {
        Some(value) => format!("{} {}", facet.name, FacetValue::text(value)),
        None => facet.name.clone(),
    }
}

fn action_text(action: &Action) -> String {
    let parts = [
        action.subject_entity_name.clone(),
        Some(action.verb()),
        action.object_entity_name.clone(),
        action
            .indirect_object_entity_name
            .as_ref()
            .map(|name| format!("to {name}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use gristmill_memory::recall::Highlight;
    use gristmill_memory::store::StoredMessage;
    use gristmill_memory::{Message, MessageOrdinal};

    use super::*;

    fn message(text: &str, word: &str) -> RecalledMessage {
        let stored = StoredMessage {
            ordinal: MessageOrdinal(0),
            source: "notes.md".to_owned(),
            position: 3,
            message: Message::new(text),
        };
        let mut message = RecalledMessage::new(1.5, stored);
        if let Some(at) = text.find(word).filter(|_| !word.is_empty()) {
            let start = text[..at].chars().count() as u32;
            let end = start + word.chars().count() as u32;
            message.highlights.push(Highlight { chunk: 0, start, end });
        }
        message
    }

    #[test]
    fn no_control_character_reaches_a_terminal() {
        let shown = Shown::default();
        assert_eq!(
            text_of(&message("Bees\u{1b}[2Jhum\n\n\u{7}loud", ""), shown),
            "   Bees [2Jhum\n    loud"
        );
        let long = message(&"x".repeat(1_000), "");
        assert_eq!(
            text_of(&long, shown).chars().count(),
            MESSAGE_CHARACTERS_SHOWN + 4
        );
        assert_eq!(text_of(&long, Shown { full: true, ..shown }).len(), 1_003);
    }

    #[test]
    fn a_long_message_is_shown_where_the_words_of_the_question_stand() {
        let text = format!(
            "{}The drum is loud. {}",
            "Bées hum. ".repeat(90),
            "They sleep. ".repeat(60)
        );
        let shown = Shown {
            full: false,
            marked: true,
        };
        let part = text_of(&message(&text, "drum"), shown);
        assert!(part.starts_with("   …"), "{part}");
        assert!(part.contains("The \u{1b}[1mdrum\u{1b}[0m is loud."), "{part}");
        assert!(part.ends_with('…'), "{part}");
    }

    #[test]
    fn the_parts_of_a_score_stand_below_the_message() {
        let mut explained = message("Bees hum.", "Bees");
        explained.explanation = vec![
            Gain {
                part: "words",
                gain: 2.0,
            },
            Gain {
                part: "question",
                gain: -0.5,
            },
        ];
        let text = messages_text([(Some("kb.db"), &explained)], Shown::default());
        assert_eq!(
            text,
            "1. kb.db: notes.md #3\n   Bees hum.\n   score 1.50: words +2.00, question -0.50\n"
        );
    }

    #[test]
    fn knowledge_is_one_line() {
        let entity = Knowledge::Entity(Entity {
            name: "Tin\nDrum".to_owned(),
            types: vec!["book".to_owned()],
            facets: vec![Facet {
                name: "author".to_owned(),
                value: Some(FacetValue::Text("Ada".to_owned())),
            }],
        });
        assert_eq!(knowledge_line(&entity), "entity  Tin Drum (book): author Ada");
    }
}
