//! Options that all stores share.

use std::borrow::Cow;

use gristmill_model::{Awaited, BatchId, BatchOptions, NewBatch, Rng};
use serde::{Deserialize, Serialize};

/// An [`Rng`] that can be printed.
pub trait DebugRng: Rng + std::fmt::Debug {}

impl<R: Rng + std::fmt::Debug> DebugRng for R {}

/// The options of a new batch as a store keeps them: with its prerequisites, if it has any. `earlier` are the ids of the earlier
/// batches of its submit.
pub fn stored_options<'b>(batch: &'b NewBatch, earlier: &[BatchId]) -> Cow<'b, BatchOptions> {
    if batch.after.is_empty() {
        return Cow::Borrowed(&batch.options);
    }
    let prerequisites = Awaited::of(&batch.after, earlier);
    assert!(
        !prerequisites.is_empty() && prerequisites.len() <= batch.after.len(),
        "each batch is named once"
    );
    Cow::Owned(BatchOptions {
        prerequisites,
        ..batch.options.clone()
    })
}

/// Writes a batch's options as they are stored; `None` if all are default and no job has tags. The group is stored with
/// the lane.
pub fn options_text(options: &BatchOptions, tagged: bool) -> serde_json::Result<Option<String>> {
    #[derive(Serialize)]
    struct TaggedOptions<'o> {
        #[serde(flatten)]
        options: &'o BatchOptions,
        tagged: bool,
    }
    let without_group;
    let options = match options.group {
        None => options,
        Some(_) => {
            without_group = BatchOptions {
                group: None,
                ..options.clone()
            };
            &without_group
        }
    };
    match (tagged, *options == BatchOptions::default()) {
        (false, true) => Ok(None),
        (false, false) => serde_json::to_string(options).map(Some),
        (true, _) => serde_json::to_string(&TaggedOptions { options, tagged }).map(Some),
    }
}

/// Whether stored options say that jobs of the batch have tags. A claim looks for tags only then.
pub fn is_tagged(options_text: Option<&str>) -> serde_json::Result<bool> {
    #[derive(Deserialize)]
    struct Mark {
        #[serde(default)]
        tagged: bool,
    }
    match options_text {
        Some(text) if text.contains("tagged") => Ok(serde_json::from_str::<Mark>(text)?.tagged),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::{PackedArray, Tag};

    use super::*;

    #[test]
    fn stored_options_say_whether_there_are_tags() {
        let plain = NewBatch::new("work", PackedArray::parse("[1]").unwrap());
        let optional = NewBatch {
            options: BatchOptions {
                timeout_ms: Some(5),
                group: Some("\"tagged\":true".to_owned()),
                ..BatchOptions::default()
            },
            ..plain.clone()
        };
        let tagged = |batch: &NewBatch| NewBatch {
            tags: vec![Tag::all("tenant", "acme")],
            ..batch.clone()
        };
        let options_text = |batch: &NewBatch| options_text(&batch.options, !batch.tags.is_empty());
        assert_eq!(options_text(&plain).unwrap(), None);
        for (batch, is) in [
            (plain.clone(), false),
            (optional.clone(), false),
            (tagged(&plain), true),
            (tagged(&optional), true),
        ] {
            let text = options_text(&batch).unwrap();
            assert_eq!(is_tagged(text.as_deref()).unwrap(), is, "{text:?}");
            let read: BatchOptions =
                text.map_or_else(BatchOptions::default, |text| serde_json::from_str(&text).unwrap());
            assert_eq!(read.timeout_ms, batch.options.timeout_ms);
        }
        let by_sql = r#"{"retry": {}, "tagged": true}"#;
        assert!(is_tagged(Some(by_sql)).unwrap());
        assert!(!is_tagged(Some(r#"{"group":"\"tagged\":true"}"#)).unwrap());
    }
}
