//! Calls of models, against a stand-in that speaks as providers do.

mod packages;
mod service;
