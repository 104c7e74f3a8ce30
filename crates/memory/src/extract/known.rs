//! Knowledge from a message's own fields, without its text: speaker, listeners, addresses, subject, tags.

use std::collections::HashMap;

use crate::knowledge::{Action, Entity, Facet, FacetValue, Knowledge, Tag, Tense, Topic};
use crate::message::Message;

/// Makes the knowledge that a message's own fields give: the people as entities, with their addresses as facets; an
/// action in which the speaker says or sends something to each recipient; the subject as a topic; the tags.
pub fn knowledge(message: &Message) -> Vec<Knowledge> {
    let mut known = Vec::new();
    let everybody = message.speaker.iter().chain(&message.recipients);
    known.extend(everybody.map(|person| Knowledge::Entity(entity(person))));
    if let Some(speaker) = &message.speaker {
        let recipients = message.recipients.iter();
        known.extend(recipients.map(|recipient| Knowledge::Action(said(message, speaker, recipient))));
    }
    let subject = message
        .subject
        .iter()
        .map(|text| Knowledge::Topic(Topic { text: text.clone() }));
    known.extend(subject);
    known.extend(
        message
            .tags
            .iter()
            .map(|text| Knowledge::Tag(Tag { text: text.clone() })),
    );
    known
}

fn entity(person: &str) -> Entity {
    let (name, address) = split(person);
    Entity {
        name: name.to_owned(),
        types: vec!["person".to_owned()],
        facets: address
            .map(|address| Facet {
                name: "email address".to_owned(),
                value: Some(FacetValue::Text(address.to_owned())),
            })
            .into_iter()
            .collect(),
    }
}

fn said(message: &Message, speaker: &str, recipient: &str) -> Action {
    let is_mail = split(speaker).1.is_some();
    Action {
        verbs: vec![if is_mail { "send" } else { "say" }.to_owned()],
        verb_tense: Tense::Past,
        subject_entity_name: Some(split(speaker).0.to_owned()),
        object_entity_name: match &message.subject {
            Some(subject) if is_mail => Some(subject.clone()),
            _ => Some(split(recipient).0.to_owned()),
        },
        indirect_object_entity_name: is_mail.then(|| split(recipient).0.to_owned()),
        ..Action::default()
    }
}

/// Splits `Ada King <ada@bees.example>` into name and address. An address without a name is both.
fn split(person: &str) -> (&str, Option<&str>) {
    if let Some((name, rest)) = person.split_once('<')
        && let Some(address) = rest.strip_suffix('>')
        && !name.trim().is_empty()
    {
        return (name.trim(), Some(address));
    }
    (person, person.contains('@').then_some(person))
}

/// Pairs first names with full names, in both directions, for each `First Last` whose first name is unique.
pub fn aliases<'a>(people: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    let names: std::collections::BTreeSet<&str> = people.map(|person| split(person).0).collect();
    let mut called: HashMap<&str, u32> = HashMap::new();
    for name in &names {
        *called
            .entry(name.split(' ').next().unwrap_or_default())
            .or_default() += 1;
    }
    let mut aliases = Vec::new();
    for name in &names {
        let Some((first, _)) = name.split_once(' ') else {
            continue;
        };
        let is_only_one = called.get(first) == Some(&1);
        if is_only_one && first.chars().count() > 1 {
            aliases.push((first.to_owned(), (*name).to_owned()));
            aliases.push(((*name).to_owned(), first.to_owned()));
        }
    }
    aliases
}

/// Verbs that mean `say`, the verb of stored speech.
pub const SAY_ALIASES: [&str; 22] = [
    "announce",
    "announced",
    "claim",
    "claimed",
    "comment",
    "discuss",
    "discussed",
    "express",
    "expressed",
    "mention",
    "mentioned",
    "said",
    "saying",
    "speak",
    "spoke",
    "state",
    "stated",
    "talk",
    "talked",
    "talking",
    "think",
    "thoughts",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speech_has_a_speaker_and_a_listener() {
        let message = Message {
            speaker: Some("Ada King".to_owned()),
            recipients: vec!["Bob".to_owned(), "Cleo".to_owned()],
            ..Message::new("Hello.")
        };
        let known = knowledge(&message);
        assert_eq!(known.len(), 5);
        let Knowledge::Action(action) = &known[4] else {
            panic!("an action: {:?}", known[4])
        };
        assert_eq!(
            (action.verb().as_str(), action.object_entity_name.as_deref()),
            ("say", Some("Cleo"))
        );
    }

    #[test]
    fn mail_has_addresses_and_a_subject() {
        let message = Message {
            speaker: Some("Ada <ada@bees.example>".to_owned()),
            recipients: vec!["bob@bees.example".to_owned()],
            subject: Some("Drums".to_owned()),
            ..Message::new("Hello.")
        };
        let known = knowledge(&message);
        let Knowledge::Entity(ada) = &known[0] else {
            panic!("an entity")
        };
        assert_eq!(ada.name, "Ada");
        assert_eq!(
            ada.facets[0].value.as_ref().map(FacetValue::text).as_deref(),
            Some("ada@bees.example")
        );
        let Knowledge::Action(sent) = &known[2] else {
            panic!("an action")
        };
        assert_eq!(sent.object_entity_name.as_deref(), Some("Drums"));
        assert_eq!(
            known[3],
            Knowledge::Topic(Topic {
                text: "Drums".to_owned()
            })
        );
    }

    #[test]
    fn a_first_name_is_an_alias_if_one_person_has_it() {
        let people = ["Ada King", "Bob Ray", "Bob Dee", "Cleo"];
        assert_eq!(
            aliases(people.into_iter()),
            [
                ("Ada".to_owned(), "Ada King".to_owned()),
                ("Ada King".to_owned(), "Ada".to_owned())
            ]
        );
    }
}
