//! gristmill-worker
