//! `{field}` in the arguments of a program. The fields are checked against the first items before any job runs.

use std::collections::BTreeSet;

use anyhow::bail;
use gristmill_model::item;
use gristmill_runtime::field_names;

use crate::input::InputBatch;

/// The number of fields of the first item that an error names.
const FIELDS_SHOWN_MAX: usize = 20;

/// Reports whether arguments name fields.
pub fn have_fields(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| !field_names(argument).is_empty())
}

/// Refuses a field that none of the first items has, because its name is probably mistyped.
pub fn check(arguments: &[String], first: &InputBatch) -> anyhow::Result<()> {
    let mut missing: BTreeSet<&str> = arguments
        .iter()
        .flat_map(|argument| field_names(argument))
        .collect();
    let mut rejected = first.rejected.iter().map(|rejected| rejected.position).peekable();
    let mut fields = None;
    for (position, item) in (0..).zip(first.payloads.items()) {
        if missing.is_empty() {
            return Ok(());
        }
        if rejected.next_if_eq(&position).is_some() {
            continue;
        }
        let own = item::field_names(item);
        missing.retain(|name| !own.as_ref().is_some_and(|own| own.iter().any(|own| own == name)));
        fields.get_or_insert(own);
    }
    let (Some(name), Some(fields)) = (missing.first(), fields) else {
        return Ok(());
    };
    let has = match fields {
        None => "the first item is not an object and has no fields; {} is the whole item".to_owned(),
        Some(fields) if fields.len() > FIELDS_SHOWN_MAX => {
            format!(
                "the first item has {} and others",
                fields[..FIELDS_SHOWN_MAX].join(", ")
            )
        }
        Some(fields) => format!("the first item has {}", fields.join(", ")),
    };
    bail!(
        "no item has the field `{name}` of {{{name}}} in the arguments after --: {has}. For braces that name no field, \
         write {{ {name} }}"
    );
}
