//! Checks of the source tree, in the manner of TigerBeetle's `tidy`: file and function length, folder size, line width,
//! file names, SQL objects, links and figures in Markdown, findings, import circles, dead public items. `tests/tree.rs` runs them on this
//! repository; each check's own tests run it on text with a known fault.

pub mod circles;
pub mod figures;
pub mod findings;
pub mod functions;
pub mod links;
pub mod public_items;
pub mod size;
pub mod sql;
pub mod tree;

pub use tree::{Fault, SourceFile, Tree};
