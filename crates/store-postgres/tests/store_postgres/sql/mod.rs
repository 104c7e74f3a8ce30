//! What SQL clients see of a PostgreSQL store: its schema, the functions `submit`, `cancel` and `retry`, the view
//! `job`, and who may use them.

mod beside;
mod caller_transaction;
mod case;
mod change;
mod corruption;
mod flows;
mod forgotten_lanes;
mod keys;
mod locks;
mod old_snapshot;
mod open;
mod pooler;
mod read_only;
mod rights;
mod settings;
mod submit;
mod view;
