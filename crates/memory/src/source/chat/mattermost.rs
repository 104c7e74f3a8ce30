//! The bulk export of Mattermost: a JSON object on each line, with its type.

use std::borrow::Cow;

use serde::Deserialize;

use super::said;
use crate::error::MemoryError;
use crate::message::Message;
use crate::source::{Item, ReadOptions, moment};

#[derive(Deserialize)]
struct Line<'t> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'t, str>,
    #[serde(borrow, default)]
    post: Option<Post<'t>>,
    #[serde(borrow, default)]
    direct_post: Option<Post<'t>>,
}

#[derive(Deserialize)]
struct Post<'t> {
    #[serde(borrow, default)]
    channel: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    channel_members: Option<Vec<Cow<'t, str>>>,
    #[serde(borrow)]
    user: Cow<'t, str>,
    #[serde(borrow, default)]
    message: Cow<'t, str>,
    #[serde(default)]
    create_at: Option<f64>,
    #[serde(borrow, default)]
    replies: Option<Vec<Post<'t>>>,
}

/// Whether the first bytes of a text are a bulk export: its first line names a version.
pub fn is_export(beginning: &str) -> bool {
    let first = beginning.lines().find(|line| !line.trim().is_empty());
    let kind = first.and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    kind.is_some_and(|line| line["type"] == "version" && line["version"].is_number())
}

/// Reads the posts of an export, each followed by its replies. Users, teams and channels are left out.
///
/// # Errors
///
/// None; a malformed line is one failure.
pub fn read(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Item>, MemoryError> {
    let mut messages = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str::<Line<'_>>(line) {
            Ok(Line {
                post: Some(post),
                kind,
                ..
            }) if kind == "post" => add(&post, &format!("line {number}"), options, &mut messages),
            Ok(Line {
                direct_post: Some(post),
                ..
            }) => add(&post, &format!("line {number}"), options, &mut messages),
            Ok(_) => {}
            Err(error) => messages.push(Err(MemoryError::unread(
                name,
                format!("line {number}"),
                format!("it is not a line of a bulk export: {error}"),
            ))),
        }
    }
    Ok(messages)
}

/// Adds a post, and behind it its replies, which are in its thread.
fn add(post: &Post<'_>, place: &str, options: &ReadOptions, messages: &mut Vec<Item>) {
    let channel = post.channel.as_deref().map(|name| format!("#{name}"));
    // An export has no ids. Nobody posts twice in a millisecond.
    let replies = post.replies.as_deref().unwrap_or_default();
    let thread = post.create_at.filter(|_| !replies.is_empty()).map(|at| {
        let channel = post.channel.as_deref().unwrap_or("direct");
        format!("mattermost/{channel}/{}/{at:.0}", post.user)
    });
    // Replies have none of their own, so deeper ones of a forged file are not followed.
    for said_by in std::iter::once(post).chain(replies) {
        let moment = said_by.create_at.and_then(moment::of_number);
        let members = said_by.channel_members.iter().flatten();
        let others = members.filter(|member| **member != said_by.user);
        messages.push(Ok(Message {
            place: Some(place.to_owned()),
            recipients: others.map(|member| member.to_string()).collect(),
            thread: thread.clone(),
            ..said(
                Some(said_by.user.to_string()),
                &said_by.message,
                moment,
                channel.as_deref(),
                options,
            )
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORT: &str = r#"{"type":"version","version":1}
{"type":"channel","channel":{"team":"bees","name":"hives"}}
{"type":"user","user":{"username":"ada"}}
{"type":"post","post":{"channel":"hives","user":"ada","message":"?","create_at":1682926200000,"replies":[{"user":"bob","message":"Yes."}]}}
no JSON
{"type":"direct_post","direct_post":{"channel_members":["ada","bob"],"user":"bob","message":"Come.","create_at":1682926300000}}
"#;

    #[test]
    fn reads_an_export() {
        assert!(is_export(EXPORT));
        assert!(!is_export("{\"text\": \"Bees\"}\n"));
        let found = read("all.jsonl", EXPORT, &ReadOptions::default()).expect("an export");
        assert_eq!(found.len(), 4, "{found:?}");
        let first = found[0].as_ref().expect("a post");
        assert_eq!(
            first.moment.expect("a time").at.to_string(),
            "2023-05-01T07:30:00.000Z"
        );
        let reply = found[1].as_ref().expect("a reply");
        assert_eq!(
            (reply.speaker.as_deref(), reply.tags.as_slice()),
            (Some("bob"), &["#hives".to_owned()][..])
        );
        assert_eq!(
            first.thread.as_deref(),
            Some("mattermost/hives/ada/1682926200000")
        );
        assert_eq!(reply.thread, first.thread);
        let error = found[2].as_ref().expect_err("no JSON").to_string();
        assert!(error.starts_with("all.jsonl, line 5: "), "{error}");
        assert_eq!(found[3].as_ref().expect("a post").recipients, ["ada"]);
    }
}
