//! gristmill-store
