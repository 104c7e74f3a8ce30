//! `{}` and `{field}` in the arguments of a program.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::process::Command;

use gristmill_model::item;

/// The command with the payload in its arguments: `{}` is the payload, and `{field}` a field of it, texts without
/// quotes and other values as in the payload. Braces around anything else do not change: programs such as awk have
/// their own.
pub(crate) fn fill(command: Command, payload: &str) -> Command {
    let has_placeholder = |argument: &OsStr| argument.as_encoded_bytes().contains(&b'{');
    if !command.get_args().any(has_placeholder) {
        return command;
    }
    let mut filled = Command::new(command.get_program());
    filled.args(command.get_args().map(|argument| match argument.to_str() {
        Some(text) => Cow::Owned(fill_template(text, payload).into()),
        None => Cow::Borrowed(argument),
    }));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => filled.env(name, value),
            None => filled.env_remove(name),
        };
    }
    filled
}

/// The names in braces in an argument that are probably fields: words, except after a `$` as in a shell.
pub fn field_names(template: &str) -> Vec<&str> {
    let is_word = |name: &str| {
        name.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
            && name
                .chars()
                .all(|letter| letter.is_alphanumeric() || "_-.".contains(letter))
    };
    let names = template.match_indices('{').filter_map(|(start, _)| {
        let (name, _) = template[start + 1..].split_once('}')?;
        (is_word(name) && !template[..start].ends_with('$')).then_some(name)
    });
    names.collect()
}

/// The template with the payload and its fields in the places of `{}` and `{field}`.
pub fn fill_template(template: &str, payload: &str) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let (before, after) = rest.split_at(start);
        filled.push_str(before);
        let named = after[1..].split_once('}');
        match named.and_then(|(name, behind)| Some((value(payload, name)?, behind))) {
            Some((value, behind)) => {
                filled.push_str(&item::plain_text(value));
                rest = behind;
            }
            None => {
                filled.push('{');
                rest = &after[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

fn value<'p>(payload: &'p str, name: &str) -> Option<&'p str> {
    match name {
        "" => Some(payload),
        name => item::field(payload, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_and_its_fields_replace_braces_in_arguments() {
        let object =
            r#"{"url":"https://x/a b", "n":3,"{":1, "id":123456789012345678901, "price":1.10,"far":1e400}"#;
        for (template, payload, expected) in [
            ("{}", r#""a b""#, "a b"),
            ("x{}y{}", "7", "x7y7"),
            ("{url}?n={n}", object, "https://x/a b?n=3"),
            ("{id} {price} {far}", object, "123456789012345678901 1.10 1e400"),
            ("{}", object, object),
            ("{ print }", object, "{ print }"),
            ("{none}{n}{", object, "{none}3{"),
            ("{url}", r#""text""#, "{url}"),
        ] {
            assert_eq!(fill_template(template, payload), expected, "{template}");
        }
    }

    #[test]
    fn words_in_braces_count_as_fields() {
        for (template, expected) in [
            ("{url}?n={page_size}", ["url", "page_size"].as_slice()),
            ("{} { print } ${HOME} x{3} {a,b} {\"k\":1} {", &[]),
            ("{{name}", &["name"]),
        ] {
            assert_eq!(field_names(template), expected, "{template}");
        }
    }
}
