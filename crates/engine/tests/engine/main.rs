//! The engine's tests, in one program.

mod engine;
mod families;
mod features;
mod flow_steps;
mod flows;
mod limits;
mod portions;
mod retries;
mod runners;
mod running;
mod support;
mod testing;
