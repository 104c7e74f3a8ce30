//! What the options of all stores share.

use gristmill_model::{BatchOptions, Rng};

/// An [`Rng`] that can be shown.
pub trait DebugRng: Rng + std::fmt::Debug {}

impl<R: Rng + std::fmt::Debug> DebugRng for R {}

/// A batch's options as they are stored: `None` where all are default. The group is its lane's.
pub(crate) fn options_text(options: &BatchOptions) -> serde_json::Result<Option<String>> {
    if options.group.is_some() {
        let options = BatchOptions {
            group: None,
            ..options.clone()
        };
        return options_text(&options);
    }
    match *options == BatchOptions::default() {
        true => Ok(None),
        false => serde_json::to_string(options).map(Some),
    }
}
