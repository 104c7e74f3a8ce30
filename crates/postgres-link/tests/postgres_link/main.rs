//! Tests of connections, locks and layouts, in one program.

mod layout;
mod name_lock;
