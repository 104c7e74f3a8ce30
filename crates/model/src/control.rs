//! Controls: pauses, limits, rates, shares and aging. With priority and time, they decide when jobs can be claimed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::batch::{InvalidBatch, check_name};
use crate::clock::Timestamp;

/// The shortest period of a rate. Milliseconds.
pub const RATE_PERIOD_MS_MIN: u64 = 1;

/// The longest period of a rate, grace or step, in milliseconds: a year.
pub const CONTROL_SPAN_MS_MAX: u64 = 366 * 86_400_000;

/// The largest weight of a share.
pub const WEIGHT_MAX: u32 = 10_000;

/// The scope of a control: jobs that match all named conditions; all jobs without conditions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ControlScope))]
#[serde(default, deny_unknown_fields)]
pub struct Scope {
    /// The queue of the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub queue: Option<String>,
    /// The kind of the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub kind: Option<String>,
    /// The group of the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub group: Option<String>,
    /// Each group has its own limit; jobs without a group have none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub each_group: bool,
}

/// The effect of a control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ControlEffect))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// Workers claim none of the jobs until their last pause ends.
    Pause {
        /// The reason. Pauses with different reasons stack, and each is lifted by its reason.
        #[cfg_attr(
            feature = "schema",
            schema(min_length = 1, max_length = 200, example = "deploy")
        )]
        reason: String,
        /// The end of the pause; by default, it ends when it is lifted. Milliseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
        until: Option<Timestamp>,
    },
    /// A limit of running jobs.
    Concurrency {
        /// The maximum number. With 0, workers claim none.
        jobs_max: u32,
    },
    /// A limit of attempts in a period: a token bucket, one token for each attempt.
    Rate {
        /// The tokens added in each period.
        #[cfg_attr(feature = "schema", schema(minimum = 1))]
        jobs: u32,
        /// The period. Milliseconds.
        #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 31_622_400_000_i64))]
        period_ms: u64,
        /// The size of the bucket: the number of attempts that can begin at once.
        #[cfg_attr(feature = "schema", schema(minimum = 1))]
        burst: u32,
    },
    /// The share of one group or queue in claims, among groups or queues with waiting jobs.
    Share {
        /// The weight in proportion to others; 1 by default.
        #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 10_000))]
        weight: u32,
        /// While fewer of its jobs run, it comes before groups or queues that have reached their own minimum.
        jobs_min: u32,
    },
    /// Jobs that have waited long come before jobs of a higher priority; for one queue or all.
    Aging {
        /// The wait before a job begins to age. Milliseconds.
        #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 31_622_400_000_i64))]
        grace_ms: u64,
        /// The span that raises the priority by one. Milliseconds.
        #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 31_622_400_000_i64))]
        step_ms: u64,
    },
}

impl Effect {
    /// The names of all effects.
    pub const NAMES: [&str; 5] = ["pause", "concurrency", "rate", "share", "aging"];

    /// The name of the effect.
    pub fn name(&self) -> &'static str {
        match self {
            Effect::Pause { .. } => "pause",
            Effect::Concurrency { .. } => "concurrency",
            Effect::Rate { .. } => "rate",
            Effect::Share { .. } => "share",
            Effect::Aging { .. } => "aging",
        }
    }
}

/// A pause, a limit, a share or an aging of some jobs.
// Of one scope there is one of each, and of pauses one for each reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ControlView))]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The jobs.
    pub scope: Scope,
    /// The effect.
    pub effect: Effect,
}

/// The reason for which a control was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidControl {
    /// A name is invalid.
    #[error(transparent)]
    Name(#[from] InvalidBatch),
    /// The effect does not allow this scope.
    #[error("a {effect} cannot have this scope: {reason}")]
    Scope {
        /// The name of the effect.
        effect: &'static str,
        /// The remedy.
        reason: &'static str,
    },
    /// A number is out of its range.
    #[error("the {what} of a {effect} is {given}; give {least} to {most}")]
    Number {
        /// The name of the effect.
        effect: &'static str,
        /// The name of the number.
        what: &'static str,
        /// The number.
        given: u64,
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
}

impl Control {
    /// Checks everything that can be checked without a store.
    pub fn check(&self) -> Result<(), InvalidControl> {
        let scope = &self.scope;
        for (what, name) in [
            ("queue", &scope.queue),
            ("kind", &scope.kind),
            ("group", &scope.group),
        ] {
            if let Some(name) = name {
                check_name(what, name)?;
            }
        }
        let effect = self.effect.name();
        let refuse = |reason| Err(InvalidControl::Scope { effect, reason });
        let within = |what, given, least, most| {
            if (least..=most).contains(&given) {
                return Ok(());
            }
            Err(InvalidControl::Number {
                effect,
                what,
                given,
                least,
                most,
            })
        };
        if scope.each_group && scope.group.is_some() {
            return refuse("name one group or each group, not both");
        }
        match &self.effect {
            Effect::Pause { reason, .. } => {
                check_name("reason", reason)?;
                if scope.each_group {
                    return refuse("a pause of each group is one of all: leave the group out");
                }
            }
            Effect::Concurrency { .. } => {}
            Effect::Rate {
                jobs,
                period_ms,
                burst,
            } => {
                within("jobs", (*jobs).into(), 1, u32::MAX.into())?;
                within("period_ms", *period_ms, RATE_PERIOD_MS_MIN, CONTROL_SPAN_MS_MAX)?;
                within("burst", (*burst).into(), 1, u32::MAX.into())?;
            }
            Effect::Share { weight, .. } => {
                within("weight", (*weight).into(), 1, WEIGHT_MAX.into())?;
                let named = [&scope.queue, &scope.group].into_iter().flatten().count();
                if named != 1 || scope.kind.is_some() || scope.each_group {
                    return refuse("name one queue, or one group");
                }
            }
            Effect::Aging { grace_ms, step_ms } => {
                within("grace_ms", *grace_ms, 0, CONTROL_SPAN_MS_MAX)?;
                within("step_ms", *step_ms, 1, CONTROL_SPAN_MS_MAX)?;
                if scope.kind.is_some() || scope.group.is_some() || scope.each_group {
                    return refuse("name a queue, or nothing for all queues");
                }
            }
        }
        Ok(())
    }

    /// The identity of the control: it replaces an earlier control with the same key.
    pub fn key(&self) -> String {
        let scope = &self.scope;
        let reason = match &self.effect {
            Effect::Pause { reason, .. } => Some(reason.as_str()),
            _ => None,
        };
        let parts = (
            self.effect.name(),
            &scope.queue,
            &scope.kind,
            &scope.group,
            scope.each_group,
            reason,
        );
        // Texts, options and a boolean can always be written as JSON.
        serde_json::to_string(&parts).unwrap_or_default()
    }
}

impl Scope {
    /// Whether jobs of this queue, kind and group are in the scope. The group is empty for jobs without one.
    pub fn covers(&self, queue: &str, kind: &str, group: &str) -> bool {
        let is = |named: &Option<String>, is: &str| named.as_deref().is_none_or(|named| named == is);
        is(&self.queue, queue)
            && is(&self.kind, kind)
            && is(&self.group, group)
            && !(self.each_group && group.is_empty())
    }
}

/// In words.
impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            ("queue", &self.queue),
            ("kind", &self.kind),
            ("group", &self.group),
        ];
        let named = named
            .iter()
            .filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?)));
        let each = self.each_group.then(|| "each group".to_owned());
        let parts: Vec<String> = named.chain(each).collect();
        if parts.is_empty() {
            formatter.write_str("all jobs")
        } else {
            formatter.write_str(&parts.join(", "))
        }
    }
}

/// In words.
impl fmt::Display for Effect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Pause { reason, until: None } => write!(formatter, "{reason}, until it is resumed"),
            Effect::Pause {
                reason,
                until: Some(until),
            } => write!(formatter, "{reason}, until {until}"),
            Effect::Concurrency { jobs_max } => write!(formatter, "at most {jobs_max} running"),
            Effect::Rate {
                jobs,
                period_ms,
                burst,
            } => write!(formatter, "at most {jobs} in {period_ms} ms, {burst} at once"),
            Effect::Share { weight, jobs_min } => {
                write!(
                    formatter,
                    "weight {weight}, first while fewer than {jobs_min} run"
                )
            }
            Effect::Aging { grace_ms, step_ms } => {
                write!(
                    formatter,
                    "one priority higher for each {step_ms} ms after {grace_ms} ms"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(queue: &str, kind: &str, group: &str, each_group: bool) -> Scope {
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        Scope {
            queue: named(queue),
            kind: named(kind),
            group: named(group),
            each_group,
        }
    }

    #[test]
    fn a_scope_covers_the_jobs_that_it_names() {
        for (scope, covers, expected) in [
            (scope("", "", "", false), ("q", "k", ""), true),
            (scope("q", "", "", false), ("q", "k", "g"), true),
            (scope("q", "", "", false), ("p", "k", "g"), false),
            (scope("", "k", "g", false), ("q", "k", "g"), true),
            (scope("", "k", "g", false), ("q", "k", ""), false),
            (scope("", "k", "", true), ("q", "k", "h"), true),
            (scope("", "k", "", true), ("q", "k", ""), false),
        ] {
            let (queue, kind, group) = covers;
            assert_eq!(scope.covers(queue, kind, group), expected, "{scope:?} {covers:?}");
        }
    }

    #[test]
    fn impossible_controls_are_refused_by_name() {
        let rate = |jobs, period_ms, burst| Effect::Rate {
            jobs,
            period_ms,
            burst,
        };
        let pause = |reason: &str| Effect::Pause {
            reason: reason.to_owned(),
            until: None,
        };
        let share = |weight| Effect::Share { weight, jobs_min: 0 };
        let aging = |step_ms| Effect::Aging { grace_ms: 0, step_ms };
        for (scope, effect, says) in [
            (scope("", "", "", false), pause(""), "reason"),
            (scope("", "a\nb", "", false), pause("x"), "kind"),
            (scope("", "", "", true), pause("x"), "each group"),
            (scope("", "", "g", true), rate(1, 1, 1), "not both"),
            (scope("", "", "", false), rate(0, 1, 1), "jobs"),
            (scope("", "", "", false), rate(1, 0, 1), "period_ms"),
            (scope("", "", "", false), rate(1, 1, 0), "burst"),
            (scope("", "", "", false), share(1), "one queue, or one group"),
            (scope("q", "", "g", false), share(1), "one queue, or one group"),
            (scope("q", "", "", false), share(0), "weight"),
            (scope("", "k", "", false), aging(1), "name a queue"),
            (scope("q", "", "", false), aging(0), "step_ms"),
        ] {
            let error = Control { scope, effect }.check().unwrap_err().to_string();
            assert!(error.contains(says), "{error} does not say {says}");
        }
    }

    #[test]
    fn different_controls_have_different_keys() {
        let pause = |reason: &str, until| Control {
            scope: scope("q", "", "", false),
            effect: Effect::Pause {
                reason: reason.to_owned(),
                until,
            },
        };
        assert_eq!(pause("a", None).key(), pause("a", Some(Timestamp(5))).key());
        assert_ne!(pause("a", None).key(), pause("b", None).key());
    }
}
