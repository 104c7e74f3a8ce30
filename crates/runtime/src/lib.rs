//! gristmill-runtime
