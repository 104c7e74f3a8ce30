//! What the options of all stores share.

use gristmill_model::Rng;

/// An [`Rng`] that can be shown.
pub trait DebugRng: Rng + std::fmt::Debug {}

impl<R: Rng + std::fmt::Debug> DebugRng for R {}
