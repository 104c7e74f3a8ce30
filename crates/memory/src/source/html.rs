//! HTML as text.

use crate::source::mail::html::to_text;

/// The text of HTML, without its tags, styles and scripts.
pub(super) fn text(html: &str) -> String {
    to_text(html).trim().to_owned()
}
