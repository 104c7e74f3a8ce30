//! The program's tests, in one program.

#[macro_use]
mod workspace;

mod chaos;
mod commands;
mod documents;
mod everyday;
mod fleet;
mod flows;
mod help;
mod left_out;
mod live_logs;
mod llm;
mod logs;
mod memory;
mod newcomer;
mod opentelemetry;
mod postgres;
mod processes;
mod resume;
mod run;
mod schedules;
