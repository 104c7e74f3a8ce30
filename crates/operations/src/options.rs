//! The options of jobs, which a submit, a schedule and a spawn share.

mod priority;
mod unique;

pub use priority::Priority;
pub use unique::UniqueOptions;

use gristmill_model::batch::check_name;
use gristmill_model::limits::ATTEMPTS_MAX;
use gristmill_model::{After, Backoff, BatchOptions, HookTarget, Hooks, OnFailure, RetryPolicy, Timestamp};
use serde::{Deserialize, Serialize};

use crate::limits::{AFTER_PER_REQUEST_MAX, SPAN_MS_MAX, TIMESTAMP_MS_MAX};
use crate::refused::Refused;

/// The retry policy. Each field has a default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RetryOptions {
    /// The maximum number of attempts, including the first; 3 by default.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub attempts_max: Option<u32>,
    /// The growth of the delay; `jitter` by default.
    pub backoff: Option<Backoff>,
    /// The base delay in milliseconds; 1000 by default.
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 316_224_000_000_i64))]
    pub delay_ms: Option<u64>,
    /// The maximum delay in milliseconds; 300000 by default.
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 316_224_000_000_i64))]
    pub delay_ms_max: Option<u64>,
}

/// Declares a request with the options of jobs and its own fields, so that each option is written only once.
macro_rules! with_job_options {
    ($(#[$attribute:meta])* pub struct $name:ident $(<$life:lifetime>)? { $($own:tt)* }) => {
        $(#[$attribute])*
        pub struct $name $(<$life>)? {
            $($own)*
            /// Higher is claimed first; 0 by default.
            #[serde(default)]
            pub priority: Option<Priority>,
            /// The earliest start. Milliseconds since 1970.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 253_402_300_799_999_i64))]
            pub run_at: Option<i64>,
            /// The delay before the jobs can be claimed, by the server's clock. Milliseconds. Not with `run_at`.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 316_224_000_000_i64))]
            pub delay_ms: Option<u64>,
            /// A job that no worker has started by this time expires. Milliseconds since 1970.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 253_402_300_799_999_i64))]
            pub expires_at: Option<i64>,
            /// The time limit of one attempt. Milliseconds.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
            pub timeout_ms: Option<u64>,
            /// A job that has not completed this long after its first attempt began is not retried, and ends as dead.
            /// Milliseconds.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
            pub complete_within_ms: Option<u64>,
            /// Reuses the value of a job of the same queue, kind, group and payload that completed within this time, if it
            /// also had this option. Milliseconds. Not with keys and `after`.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
            pub cached_ms: Option<u64>,
            /// The retry policy.
            #[serde(default)]
            pub retry: Option<RetryOptions>,
            /// The tenant or customer that owns the jobs: limits, pauses and shares can apply to a group.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
            pub group: Option<String>,
            /// When all jobs of the submit have completed: the kind of a job that gets a summary as its payload, or a URL that a
            /// worker with `--http-hooks` posts the summary to. With at most 10,000 jobs, and not with keys.
            #[serde(default)]
            #[cfg_attr(
                feature = "schema",
                schema(min_length = 1, max_length = 2000, example = "https://hooks.example/done")
            )]
            pub on_success: Option<String>,
            /// The same, when all jobs of the submit have ended and one has not completed.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 2000))]
            pub on_failure: Option<String>,
        }
    };
}

/// Takes the options out of a request that `with_job_options` declared.
macro_rules! take_job_options {
    ($request:ident) => {
        $crate::options::JobOptions {
            priority: $request.priority.take(),
            run_at: $request.run_at,
            delay_ms: $request.delay_ms,
            expires_at: $request.expires_at,
            timeout_ms: $request.timeout_ms,
            complete_within_ms: $request.complete_within_ms,
            cached_ms: $request.cached_ms,
            retry: $request.retry,
            group: $request.group.take(),
            on_success: $request.on_success.take(),
            on_failure: $request.on_failure.take(),
        }
    };
}

pub(crate) use take_job_options;
pub(crate) use with_job_options;

with_job_options! {
    /// The options of all jobs of a submit. All are optional.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
    #[serde(deny_unknown_fields)]
    pub struct JobOptions {}
}

fn check_hook(field: &str, hook: Option<&String>) -> Result<Option<HookTarget>, Refused> {
    let target = hook.map(|text| text.parse::<HookTarget>()).transpose();
    target
        .map_err(|error| Refused::invalid(format!("`{field}`: {error}"), "give the name of a kind, or a URL"))
}

fn check_range<T: PartialOrd + std::fmt::Display>(
    what: &str,
    value: Option<T>,
    least: T,
    most: T,
) -> Result<(), Refused> {
    match value {
        Some(value) if value < least || value > most => Err(Refused::invalid(
            format!("`{what}` is {value}"),
            format!("give {least} to {most}"),
        )),
        _ => Ok(()),
    }
}

impl JobOptions {
    /// The options in the form of a batch, counted from `now`.
    pub fn check(&self, now: Timestamp) -> Result<BatchOptions, Refused> {
        check_range("run_at", self.run_at, 0, TIMESTAMP_MS_MAX)?;
        check_range("expires_at", self.expires_at, 0, TIMESTAMP_MS_MAX)?;
        check_range("delay_ms", self.delay_ms, 0, SPAN_MS_MAX)?;
        check_range("timeout_ms", self.timeout_ms, 1, SPAN_MS_MAX)?;
        check_range("cached_ms", self.cached_ms, 1, SPAN_MS_MAX)?;
        check_range("complete_within_ms", self.complete_within_ms, 1, SPAN_MS_MAX)?;
        if self.run_at.is_some() && self.delay_ms.is_some() {
            return Err(Refused::invalid(
                "the request has both `run_at` and `delay_ms`",
                "give one of them",
            ));
        }
        if let Some(group) = &self.group {
            check_name("group", group)
                .map_err(|error| Refused::invalid(error.to_string(), "choose another name"))?;
        }
        let delayed = self.delay_ms.map(|delay_ms| now.plus_ms(delay_ms.cast_signed()));
        Ok(BatchOptions {
            priority: self.priority.as_ref().map_or(Ok(0), Priority::check)?,
            run_at: self.run_at.map(Timestamp).or(delayed),
            expires_at: self.expires_at.map(Timestamp),
            timeout_ms: self.timeout_ms,
            complete_within_ms: self.complete_within_ms,
            cached_ms: self.cached_ms,
            retry: self.retry.unwrap_or_default().check()?,
            unique: None,
            group: self.group.clone(),
            hooks: Hooks::of(
                check_hook("on_success", self.on_success.as_ref())?,
                check_hook("on_failure", self.on_failure.as_ref())?,
            ),
            signal: None,
            prerequisites: Vec::new(),
            traceparent: None,
        })
    }
}

impl RetryOptions {
    fn check(&self) -> Result<RetryPolicy, Refused> {
        check_range("retry.attempts_max", self.attempts_max, 1, ATTEMPTS_MAX)?;
        check_range("retry.delay_ms", self.delay_ms, 0, SPAN_MS_MAX)?;
        check_range("retry.delay_ms_max", self.delay_ms_max, 0, SPAN_MS_MAX)?;
        let default = RetryPolicy::default();
        Ok(RetryPolicy {
            attempts_max: self.attempts_max.unwrap_or(default.attempts_max),
            backoff: self.backoff.unwrap_or(default.backoff),
            delay_ms: self.delay_ms.unwrap_or(default.delay_ms),
            delay_ms_max: self.delay_ms_max.unwrap_or(default.delay_ms_max),
        })
    }
}

/// Parses the prerequisites.
pub fn check_after(after: &[String], on_failure: OnFailure) -> Result<Vec<After>, Refused> {
    if after.len() > AFTER_PER_REQUEST_MAX {
        return Err(Refused::invalid(
            format!("`after` names {} batches and jobs", after.len()),
            format!("name {AFTER_PER_REQUEST_MAX} at most; a whole batch counts once"),
        ));
    }
    let read = |(index, text): (usize, &String)| {
        let after: Result<After, _> = text.parse();
        match after {
            Ok(after) => Ok(after.on_failure(on_failure)),
            Err(error) => Err(Refused::invalid(
                format!("`after[{index}]`: {error}"),
                "name batches and jobs by the ids from their submit",
            )),
        }
    };
    after.iter().enumerate().map(read).collect()
}

/// Refuses the name of a kind or queue that no batch can have.
pub fn check_names(kind: &str, queue: &str) -> Result<(), Refused> {
    for (what, name) in [("kind", kind), ("queue", queue)] {
        check_name(what, name).map_err(|error| Refused::invalid(error.to_string(), "choose another name"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> Result<BatchOptions, String> {
        let options: JobOptions = serde_json::from_str(json).map_err(|error| error.to_string())?;
        options.check(Timestamp(1_000)).map_err(|error| error.to_string())
    }

    #[test]
    fn omitted_options_have_their_defaults() {
        assert_eq!(check("{}"), Ok(BatchOptions::default()));
        let options =
            check(r#"{"priority":-3,"delay_ms":5,"retry":{"attempts_max":1,"backoff":"linear"}}"#).unwrap();
        assert_eq!((options.priority, options.run_at), (-3, Some(Timestamp(1_005))));
        let retry = RetryPolicy {
            attempts_max: 1,
            backoff: Backoff::Linear,
            ..RetryPolicy::default()
        };
        assert_eq!(options.retry, retry);
        assert_eq!(check(r#"{"priority":"urgent"}"#).unwrap().priority, 100);
    }

    #[test]
    fn an_option_out_of_range_is_refused_by_its_name() {
        for (json, says) in [
            (r#"{"run_at":-1}"#, "run_at"),
            (r#"{"run_at":9223372036854775807}"#, "run_at"),
            (r#"{"expires_at":253402300800000}"#, "expires_at"),
            (r#"{"delay_ms":18446744073709551615}"#, "delay_ms"),
            (r#"{"delay_ms":1,"run_at":1}"#, "both"),
            (r#"{"timeout_ms":0}"#, "timeout_ms"),
            (r#"{"complete_within_ms":0}"#, "complete_within_ms"),
            (r#"{"retry":{"attempts_max":0}}"#, "attempts_max"),
            (r#"{"retry":{"attempts_max":1001}}"#, "attempts_max"),
            (r#"{"retry":{"backoff":"wild"}}"#, "wild"),
            (r#"{"group":""}"#, "group"),
            (r#"{"on_success":"ftp://a/b"}"#, "on_success"),
            (r#"{"on_failure":""}"#, "on_failure"),
            (r#"{"priorty":1}"#, "priorty"),
            (r#"{"priority":40000}"#, "40000"),
            (r#"{"priority":"higher"}"#, "urgent"),
        ] {
            let error = check(json).unwrap_err();
            assert!(error.contains(says), "{error} does not say {says}");
        }
    }
}
