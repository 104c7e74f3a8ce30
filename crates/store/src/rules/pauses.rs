//! Pauses of single jobs. A paused job is part of a row of `blocked`, which claims do not read, with a reason for each
//! pause. Pauses stack: the job becomes claimable when the last one ends.

use std::collections::BTreeMap;

use gristmill_model::Timestamp;
use gristmill_model::batch::check_name;
use gristmill_model::limits::PAUSES_PER_JOB_MAX;
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// The pauses of jobs: the end of each, by its reason; `None` if it lasts until a resume. At least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pauses(BTreeMap<String, Option<Timestamp>>);

impl Pauses {
    /// Adds a pause to others.
    pub fn with(
        others: Option<&Pauses>,
        reason: &str,
        until: Option<Timestamp>,
    ) -> Result<Pauses, StoreError> {
        let mut all = others.cloned().unwrap_or_else(|| Pauses(BTreeMap::new()));
        all.0.insert(reason.to_owned(), until);
        if all.0.len() > PAUSES_PER_JOB_MAX {
            return Err(StoreError::InvalidInput(format!(
                "a job is paused for at most {PAUSES_PER_JOB_MAX} reasons: resume it for one of the others first"
            )));
        }
        Ok(all)
    }

    /// Removes one pause and those that have ended. `None` if none remain, or for `reason: None`.
    pub fn without(&self, reason: Option<&str>, now: Timestamp) -> Option<Pauses> {
        let mut left = self.clone();
        left.0.remove(reason?);
        left.0.retain(|_, until| until.is_none_or(|until| until > now));
        (!left.0.is_empty()).then_some(left)
    }

    /// Whether there is a pause with this reason (any pause if `None`).
    pub fn has(&self, reason: Option<&str>) -> bool {
        reason.is_none_or(|reason| self.0.contains_key(reason))
    }

    /// The end of the last pause; `None` if one has no end.
    pub fn until(&self) -> Option<Timestamp> {
        let all: Option<Vec<Timestamp>> = self.0.values().copied().collect();
        all.and_then(|all| all.into_iter().max())
    }

    /// The reasons with the ends of their pauses; `None` for a pause that lasts until a resume.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Option<Timestamp>)> {
        self.0.iter()
    }

    /// Writes the pauses as they are stored.
    pub fn text(&self) -> String {
        serde_json::json!(self.0).to_string()
    }

    /// Whether all pauses have ended.
    pub fn are_over(&self, now: Timestamp) -> bool {
        self.until().is_some_and(|until| until <= now)
    }
}

/// Refuses an invalid pause.
pub fn check_pause(reason: &str, until: Option<Timestamp>) -> Result<(), StoreError> {
    check_name("reason", reason)?;
    match until {
        Some(Timestamp(until)) if until < 0 => Err(StoreError::InvalidInput(
            "until is in milliseconds since 1970, at least 0".to_owned(),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stack() {
        let deploy = Pauses::with(None, "deploy", None).unwrap();
        let both = Pauses::with(Some(&deploy), "quota", Some(Timestamp(5))).unwrap();
        assert_eq!((both.until(), both.are_over(Timestamp(9))), (None, false));
        assert!(both.has(Some("quota")) && both.has(None) && !both.has(Some("x")));
        let quota = both.without(Some("deploy"), Timestamp(4)).unwrap();
        assert_eq!(both.without(Some("deploy"), Timestamp(5)), None);
        assert_eq!(quota.until(), Some(Timestamp(5)));
        assert_eq!(
            (quota.are_over(Timestamp(4)), quota.are_over(Timestamp(5))),
            (false, true)
        );
        let now = Timestamp(0);
        assert_eq!(
            (both.without(None, now), quota.without(Some("quota"), now)),
            (None, None)
        );
        let text = serde_json::to_string(&both).unwrap();
        assert_eq!(text, r#"{"deploy":null,"quota":5}"#);
        assert_eq!(serde_json::from_str::<Pauses>(&text).unwrap(), both);
        let mut many = deploy;
        for number in 1..PAUSES_PER_JOB_MAX {
            many = Pauses::with(Some(&many), &number.to_string(), None).unwrap();
        }
        assert!(Pauses::with(Some(&many), "deploy", None).is_ok());
        assert!(Pauses::with(Some(&many), "more", None).is_err());
    }
}
