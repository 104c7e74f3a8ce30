//! What is left after kills and cuts of the power.

mod fleet;
mod load;
mod power_cuts;
mod recorded_device;
mod run;
mod store_under_test;
