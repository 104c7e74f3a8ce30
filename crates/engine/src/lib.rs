//! gristmill-engine
