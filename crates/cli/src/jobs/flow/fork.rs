//! `gristmill flow fork`: starts new instances that have the steps of ended ones up to a step.

use gristmill_engine::flow_fork::{Fork, Forked, Forks, flows_to_fork};
use gristmill_engine::{CannotFork, StepAt};
use serde_json::json;

use crate::arguments::flow::FlowForkArguments;
use crate::exit::Exit;
use crate::jobs::change::select;
use crate::output::print_line;
use crate::output::terminal::harmless;
use crate::span::{show_count, show_number_of};

/// Flows that cannot be forked and that are told one by one.
const TOLD_MAX: u64 = 20;

/// Runs the command.
pub async fn fork(arguments: FlowForkArguments) -> anyhow::Result<Exit> {
    let from = step_at(&arguments)?;
    let (store, selection) = select(&arguments.flows, "fork").await?;
    let fork = Fork {
        from,
        version: arguments.to.clone(),
    };
    let flows = flows_to_fork(&*store, selection).await?;
    let (mut forked, mut refused) = (0, 0);
    let mut forks = Forks::of(&*store, flows, fork)?;
    let ended = async {
        while let Some(told) = forks.next().await? {
            for one in told {
                match one.fork {
                    Ok(_) => forked += 1,
                    Err(_) => refused += 1,
                }
                tell(&arguments, &one, refused)?;
            }
        }
        anyhow::Ok(())
    };
    let ended = ended.await;
    drop(forks);
    store.close().await?;
    ended?;
    if !arguments.flows.json {
        let more = refused - TOLD_MAX.min(refused);
        if more > 0 {
            say!("{} more flows cannot be forked", show_count(more));
        }
        say!("{} forked", show_number_of(forked, "flow"));
    }
    Ok(match refused {
        0 => Exit::Done,
        _ => Exit::SomeFailed,
    })
}

fn step_at(arguments: &FlowForkArguments) -> anyhow::Result<StepAt> {
    match (arguments.from.parse(), &arguments.step_key) {
        (Ok(number), None) => Ok(StepAt::Number(number)),
        (Ok(_), Some(_)) => {
            anyhow::bail!("--step-key goes with the name of a step: a number names one step with any key")
        }
        (Err(_), key) => Ok(StepAt::Named {
            name: arguments.from.clone(),
            key: key.clone(),
        }),
    }
}

fn tell(arguments: &FlowForkArguments, one: &Forked, refused: u64) -> anyhow::Result<()> {
    let Forked { origin, fork } = one;
    if arguments.flows.json {
        let shown = match fork {
            Ok(fork) => json!({"flow": origin, "fork": fork}),
            Err(reason) => json!({"flow": origin, "error": reason.to_string()}),
        };
        return Ok(print_line(&shown.to_string())?);
    }
    match fork {
        Ok(fork) => print_line(&format!("{fork}  a fork of {origin}"))?,
        Err(CannotFork::Unknown) if refused <= TOLD_MAX => {
            say!("flow {origin} does not exist; `gristmill flow list` lists flows")
        }
        Err(reason) if refused <= TOLD_MAX => {
            say!("{}", harmless(&format!("flow {origin} is not forked: {reason}")))
        }
        Err(_) => {}
    }
    Ok(())
}
