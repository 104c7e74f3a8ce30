//! Connections to PostgreSQL, shared by the store of jobs and the knowledge base: an address with TLS and with the
//! variables and files of libpq, a lock on a name, and the layout of a schema.

mod address;
pub mod failure;
pub mod layout;
pub mod limits;
mod name_lock;
mod password_file;
mod pooler;
mod settings;
mod tls;

pub use address::{Address, SharedAddress, without_password};
pub use name_lock::NameLock;
