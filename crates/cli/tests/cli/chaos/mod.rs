//! Tests that kill processes or cut the power, and check the stored jobs afterwards.

mod fleet;
mod load;
mod power_cuts;
mod recorded_device;
mod run;
mod store_under_test;
