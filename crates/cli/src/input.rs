//! The input of a run or a submit: a file or a pipe of items. It is read in batches and never as a whole.
//!
//! A batch reader packs items straight into batches. After each batch it knows how far it has read, so that a later
//! process can continue there. A bad item becomes a rejected job whose error names the file and the line. The items
//! around it are not affected.

mod array;
pub mod batch_reader;
mod chain;
mod csv_rows;
mod dialect;
mod error;
mod format;
mod lines;
mod opened;
mod parquet;
mod payloads;
mod places;
mod resume;
mod source;
mod stream;

pub use batch_reader::BatchReader;
pub use dialect::DialectArguments;
pub use error::InputError;
pub use format::Format;
pub use gristmill_operations::feeder::InputBatch;
pub use payloads::Payloads;
pub use resume::Reopened;
pub use source::{Fingerprint, Input};
