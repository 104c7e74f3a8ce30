//! `gristmill pause`, `resume`, `pauses` and `limit`.

use std::time::Duration;

use anyhow::bail;
use gristmill_model::{Clock, Control, Effect, Scope, SystemClock};
use gristmill_store::{Change, Changed, ControlFilter, JobFilter, Selection};
use serde_json::json;

use crate::arguments::control::{
    LimitArguments, LimitCommand, LimitSetArguments, PauseArguments, PausesArguments, ResumeArguments,
    ScopeArguments,
};
use crate::arguments::shared::StoreArguments;
use crate::exit::Exit;
use crate::jobs::change::change;
use crate::output::json::print_json;
use crate::output::print_line;
use crate::output::table::{Align, Table};
use crate::span::{milliseconds, show_count, show_number_of};

/// The default period of a rate.
const RATE_PERIOD: Duration = Duration::from_secs(1);

/// The default reason of a pause.
const REASON: &str = "manual";

/// The options that name the jobs of a pause.
const PAUSE_SCOPES: &str = "--queue, --kind, --group or --all (single jobs: ids, --batch or --tag)";

/// The options that name the jobs of a limit.
const LIMIT_SCOPES: &str =
    "--queue, --kind, --group or --all (with --each-group, each group has its own limit)";

/// The effects of controls, without pauses.
const LIMITS: [&str; 4] = ["concurrency", "rate", "share", "aging"];

/// Runs `gristmill pause`.
pub async fn pause(arguments: PauseArguments) -> anyhow::Result<Exit> {
    let now = SystemClock.now();
    let after = |span| now.plus_ms(i64::try_from(milliseconds(span)).unwrap_or(i64::MAX));
    let until = arguments.span.map(after);
    if let Some(selection) = arguments.single.selection(&arguments.scope) {
        let store = arguments.store.open_existing().await?;
        let reason = arguments.reason;
        let changed = change(&store, selection, Change::Pause { reason, until }).await?;
        store.close().await?;
        return tell(
            arguments.json,
            changed,
            "paused",
            "only jobs that have not ended can be paused",
        );
    }
    check_named(&arguments.scope, PAUSE_SCOPES)?;
    let control = Control {
        scope: arguments.scope.scope(),
        effect: Effect::Pause {
            reason: arguments.reason,
            until,
        },
    };
    control.check()?;
    let store = arguments.store.open_or_create().await?;
    store.put_controls(vec![control.clone()]).await?;
    store.close().await?;
    if arguments.json {
        print_json(&control)?
    } else {
        print_line(&format!("{} paused: {}", control.scope, control.effect))?
    }
    Ok(Exit::Done)
}

/// Runs `gristmill resume`.
pub async fn resume(arguments: ResumeArguments) -> anyhow::Result<Exit> {
    if let Some(selection) = arguments.single.selection(&arguments.scope) {
        let store = arguments.store.open_existing().await?;
        let reason = Some(arguments.reason.unwrap_or_else(|| REASON.to_owned()));
        let changed = change(&store, selection, Change::Resume { reason }).await?;
        store.close().await?;
        return tell(
            arguments.json,
            changed,
            "resumed",
            "they have no pause with this reason",
        );
    }
    if arguments.reason.is_none() {
        check_named(&arguments.scope, PAUSE_SCOPES)?;
    }
    let is_everywhere = arguments.scope.all || arguments.scope.is_empty();
    let reason = arguments.reason.unwrap_or_else(|| REASON.to_owned());
    let filter = ControlFilter {
        effects: vec!["pause"],
        reason: Some(reason.clone()),
        scope: (!arguments.scope.is_empty()).then(|| arguments.scope.scope()),
    };
    let mut exit = lift(&arguments.store, arguments.json, filter, "pause").await?;
    if is_everywhere {
        let store = arguments.store.open_existing().await?;
        let all = Selection::Filter(JobFilter::default());
        let reason = Some(reason);
        let resumed = change(&store, all, Change::Resume { reason }).await?.changed;
        store.close().await?;
        if resumed > 0 {
            print_line(&if arguments.json {
                json!({"changed": resumed}).to_string()
            } else {
                format!("{} resumed", show_number_of(resumed, "job"))
            })?;
            exit = Exit::Done;
        }
    }
    Ok(exit)
}

/// Runs `gristmill pauses`.
pub async fn pauses(arguments: PausesArguments) -> anyhow::Result<Exit> {
    let store = arguments.store.open_existing().await?;
    let paused = store.counts(&JobFilter::default()).await?.paused;
    store.close().await?;
    let none = match paused {
        0 => "nothing is paused",
        _ => "no queue, kind or group is paused",
    };
    let exit = list(&arguments.store, arguments.json, &["pause"], none).await?;
    if paused > 0 {
        say!(
            "{} single jobs are paused: gristmill jobs --state paused",
            show_count(paused)
        );
    }
    Ok(exit)
}

/// Runs `gristmill limit`.
pub async fn limit(arguments: LimitArguments) -> anyhow::Result<Exit> {
    match arguments.command {
        LimitCommand::Set(set) => self::set(&set).await,
        LimitCommand::List(listed) => list(&listed.store, listed.json, &LIMITS, "no limits").await,
        LimitCommand::Lift(lifted) => {
            check_named(&lifted.scope, LIMIT_SCOPES)?;
            let filter = ControlFilter {
                effects: LIMITS.to_vec(),
                reason: None,
                scope: Some(Scope {
                    each_group: lifted.each_group,
                    ..lifted.scope.scope()
                }),
            };
            lift(&lifted.store, lifted.json, filter, "limit").await
        }
    }
}

/// Prints the number of paused or resumed jobs.
fn tell(as_json: bool, changed: Changed, done: &str, rule: &str) -> anyhow::Result<Exit> {
    if as_json {
        print_line(&serde_json::to_string(&changed)?)?;
    } else {
        print_line(&format!("{} {done}", show_number_of(changed.changed, "job")))?;
    }
    if changed.unchanged == 0 {
        return Ok(Exit::Done);
    }
    say!(
        "{} did not change or cannot be found: {rule}",
        show_number_of(changed.unchanged, "job")
    );
    Ok(Exit::SomeFailed)
}

fn check_named(scope: &ScopeArguments, options: &str) -> anyhow::Result<()> {
    if scope.is_empty() {
        bail!("name the jobs: {options}");
    }
    Ok(())
}

async fn set(arguments: &LimitSetArguments) -> anyhow::Result<Exit> {
    check_named(&arguments.scope, LIMIT_SCOPES)?;
    let scope = Scope {
        each_group: arguments.each_group,
        ..arguments.scope.scope()
    };
    let mut effects = Vec::new();
    effects.extend(
        arguments
            .concurrency
            .map(|jobs_max| Effect::Concurrency { jobs_max }),
    );
    if let Some(rate) = arguments.rate {
        let period_ms = match (rate.period_ms, arguments.per) {
            (Some(_), Some(_)) => bail!("--rate and --per both name a period: omit the unit, or --per"),
            (Some(period_ms), None) => period_ms,
            (None, per) => milliseconds(per.unwrap_or(RATE_PERIOD)),
        };
        effects.push(Effect::Rate {
            jobs: rate.jobs,
            period_ms,
            burst: arguments.burst.unwrap_or((rate.jobs / 10).max(1)),
        });
    }
    if arguments.weight.is_some() || arguments.min_jobs.is_some() {
        effects.push(Effect::Share {
            weight: arguments.weight.unwrap_or(1),
            jobs_min: arguments.min_jobs.unwrap_or(0),
        });
    }
    effects.extend(arguments.age_step.map(|step| Effect::Aging {
        grace_ms: arguments.age_after.map_or(0, milliseconds),
        step_ms: milliseconds(step),
    }));
    if effects.is_empty() {
        bail!("name a limit: --concurrency, --rate, --weight, --min-jobs or --age-step");
    }
    let controls: Vec<Control> = effects
        .into_iter()
        .map(|effect| Control {
            scope: scope.clone(),
            effect,
        })
        .collect();
    for control in &controls {
        control.check()?;
    }
    let store = arguments.store.open_or_create().await?;
    store.put_controls(controls.clone()).await?;
    store.close().await?;
    for control in &controls {
        print_line(&if arguments.json {
            serde_json::to_string(control)?
        } else {
            format!("{}: {}", control.scope, control.effect)
        })?;
    }
    Ok(Exit::Done)
}

async fn lift(
    store: &StoreArguments,
    as_json: bool,
    filter: ControlFilter,
    noun: &str,
) -> anyhow::Result<Exit> {
    let store = store.open_existing().await?;
    let lifted = store.delete_controls(filter).await?;
    store.close().await?;
    let plural = if lifted == 1 { "" } else { "s" };
    print_line(&if as_json {
        json!({"lifted": lifted}).to_string()
    } else {
        format!("{} {noun}{plural} lifted", show_count(lifted))
    })?;
    Ok(match lifted {
        0 => Exit::SomeFailed,
        _ => Exit::Done,
    })
}

async fn list(store: &StoreArguments, as_json: bool, effects: &[&str], none: &str) -> anyhow::Result<Exit> {
    let store = store.open_existing().await?;
    let mut controls = store.controls().await?;
    store.close().await?;
    controls.retain(|control| effects.contains(&control.effect.name()));
    if as_json {
        for control in &controls {
            print_json(control)?;
        }
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[("jobs", Align::Left), ("what", Align::Left)]);
    for control in &controls {
        table.row([control.scope.to_string(), control.effect.to_string()]);
    }
    if table.is_empty() {
        say!("{none}");
    } else {
        print_line(&table.text())?;
    }
    Ok(Exit::Done)
}
