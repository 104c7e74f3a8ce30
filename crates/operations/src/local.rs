//! Operations by name, for programs that have the store themselves: their requests and answers are JSON, as those of the HTTP API
//! are, and their names are the `operationId`s of its description.

use gristmill_engine::Engine;
use gristmill_store::{Change, ScheduleChange};
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::jobs::change::{PauseJobsRequest, PrioritiseRequest, ResumeJobsRequest, change};
use crate::jobs::events::EventsRequest;
use crate::jobs::{details, events, flows, fork, ids, list, memos, steps, tags};
use crate::read::read_request;
use crate::refused::Refused;
use crate::schedules::{PauseRequest, ScheduleRequest};
use crate::submit::submitted;
use crate::{backlog, batches, controls, history, queues, results, runs, schedules, stats};

/// Carries out an operation of this process's own store. `subject` is the job, schedule or tag that it is about, where it is
/// about one; `request` has its parameters or its body.
pub async fn carry_out(
    engine: &Engine,
    operation: &str,
    subject: &str,
    request: &str,
) -> Result<String, Refused> {
    let access = &Access::all();
    match operation {
        "submit" => told(submitted::submit(engine, read(request)?).await),
        "jobs" => told(list::jobs(engine, access, read(request)?).await),
        "count_jobs" => told(list::count_jobs(engine, access, read(request)?).await),
        "job_ids" => told(ids::job_ids(engine, access, read(request)?).await),
        "job" => told(details::job(engine, access, subject).await),
        "tag_values" => told(tags::tag_values(engine, subject, read(request)?).await),
        "cancel" => told(change(engine, access, (read(request)?, Change::Cancel)).await),
        "retry" => told(change(engine, access, (read(request)?, Change::Retry)).await),
        "discard" => told(change(engine, access, (read(request)?, Change::Discard)).await),
        "prioritise" => told(change(engine, access, read::<PrioritiseRequest>(request)?.parts()?).await),
        "pause_jobs" => told(change(engine, access, read::<PauseJobsRequest>(request)?.parts()?).await),
        "resume_jobs" => told(change(engine, access, read::<ResumeJobsRequest>(request)?.parts()?).await),
        "send_events" => {
            let events = read::<EventsRequest<'_>>(request)?.check()?;
            told(events::send_events(engine, access, events).await)
        }
        "flows" => told(flows::flows(engine, access, read(request)?).await),
        "flow_kinds" => told(flows::flow_kinds(engine, access, read(request)?).await),
        "steps" => told(steps::steps(engine, access, subject, read(request)?).await),
        "flow_memos" => told(memos::memos(engine, access, read(request)?).await),
        "fork_flows" => told(fork::fork(engine, access, read(request)?).await),
        "results" => told(results::results(engine, access, read(request)?).await),
        "batches" => told(batches::batches(engine, access, read(request)?).await),
        "runs" => told(runs::runs(engine, read(request)?).await),
        "queues" => told(queues::queues(engine, access, read(request)?).await),
        "schedules" => told(schedules::schedules(engine, read(request)?).await),
        "schedule" => told(schedules::schedule(engine, subject).await),
        "put_schedule" => {
            let schedule: ScheduleRequest<'_> = read(request)?;
            let schedule = schedule.check(subject.to_owned(), access, engine.clock().now())?;
            told(schedules::put_schedule(engine, schedule).await)
        }
        "pause_schedule" => {
            let change = read::<PauseRequest>(request)?.change()?;
            told(schedules::change_schedule(engine, subject, change).await)
        }
        "resume_schedule" => told(schedules::change_schedule(engine, subject, ScheduleChange::Resume).await),
        "trigger_schedule" => {
            told(schedules::change_schedule(engine, subject, ScheduleChange::Trigger).await)
        }
        "delete_schedule" => told(schedules::delete_schedule(engine, subject).await),
        "controls" => told(controls::controls(engine).await),
        "put_controls" => told(controls::put_controls(engine, read(request)?).await),
        "lift_controls" => told(controls::lift_controls(engine, read(request)?).await),
        "history" => told(history::history(engine, access, read(request)?).await),
        "backlog" => told(backlog::backlog(engine, access, read(request)?).await),
        "stats" => told(stats::stats(engine).await),
        _ => Err(Refused::invalid(
            format!("`{operation}` needs a server"),
            "give the address of one",
        )),
    }
}

fn read<'a, T: Deserialize<'a>>(request: &'a str) -> Result<T, Refused> {
    read_request(request.as_bytes())
        .map_err(|error| Refused::invalid(error, "see this operation in docs/http.md"))
}

fn told<T: Serialize>(answer: Result<T, Refused>) -> Result<String, Refused> {
    serde_json::to_string(&answer?)
        .map_err(|error| Refused::invalid(error.to_string(), "report this as a bug"))
}
