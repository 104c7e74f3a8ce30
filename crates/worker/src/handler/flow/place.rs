//! The place of a job in the flow that began it as a step.

use gristmill_model::{JobId, Positions};
use gristmill_store::family::{StepPlace, Suspension};
use gristmill_store::{BatchPositions, Store, StoreError};

use crate::handler::flow::memo::named_steps;

/// The name and the version of a flow, from its kind.
pub fn name_and_version(kind: &str) -> (&str, Option<&str>) {
    match kind.rsplit_once('@') {
        Some((name, version)) if !name.is_empty() && !version.is_empty() => (name, Some(version)),
        _ => (kind, None),
    }
}

/// Finds the flow that began a job, and the step that the job is; `None` if no flow did.
///
/// # Errors
///
/// The store cannot be read.
pub async fn step_of(store: &dyn Store, job: JobId) -> Result<Option<StepPlace>, StoreError> {
    let Some((flow, suspension)) = store.suspension_of(job).await? else {
        return Ok(None);
    };
    let Some(number) = number_among(&suspension.children, job).filter(|_| suspension.flow.is_some()) else {
        return Ok(None);
    };
    let Some(details) = store.job(flow).await? else {
        return Ok(None);
    };
    let (name, version) = name_and_version(&details.row.kind);
    let (step, key, item) = named(&suspension, number);
    Ok(Some(StepPlace {
        flow,
        name: name.to_owned(),
        version: version.map(str::to_owned),
        step,
        key,
        item,
    }))
}

/// The number of a job among children, from 0.
fn number_among(children: &[BatchPositions], job: JobId) -> Option<u32> {
    assert!(
        children.is_sorted_by_key(|jobs| jobs.batch),
        "children are stored by batch"
    );
    let mut before = 0;
    for BatchPositions { batch, positions } in children {
        if *batch == job.batch && positions.contains(job.position) {
            let earlier = Positions::from(0..job.position);
            return Some(before + positions.intersection(&earlier).len());
        }
        before += positions.len();
    }
    None
}

/// The name and the key of the step with the child of this number, and the number of its item in a map.
fn named(suspension: &Suspension, number: u32) -> (Option<String>, Option<String>, Option<u32>) {
    let children: u32 = suspension.children.iter().map(|jobs| jobs.positions.len()).sum();
    assert!(number < children, "child {number} is one of {children}");
    let steps = named_steps(&suspension.memo).unwrap_or_default();
    let named: u64 = steps.iter().map(|step| u64::from(step.count.unwrap_or(1))).sum();
    if named != u64::from(children) {
        return (None, None, None);
    }
    let mut first = 0;
    for step in steps {
        let end = first + step.count.unwrap_or(1);
        if number < end {
            let item = step.count.map(|_| number - first);
            return (Some(step.name), step.key, item);
        }
        first = end;
    }
    (None, None, None)
}

#[cfg(test)]
mod tests {
    use gristmill_model::{BatchId, Wake};

    use super::*;

    #[test]
    fn a_child_is_found_by_its_number_in_the_memo() {
        let jobs = |batch, positions: &str| BatchPositions {
            batch: BatchId(batch),
            positions: positions.parse().unwrap(),
        };
        let suspension = Suspension {
            memo: r#"{"steps":[["fetch",7],["gone",3,null,0],["embed",9,"k",5]]}"#.to_owned(),
            flow: Some(Wake::Any),
            children: vec![jobs(4, "3"), jobs(6, "8-9"), jobs(7, "0,2,4")],
        };
        for (job, expected) in [
            ("4:3", Some((Some("fetch"), None, None))),
            ("6:8", Some((Some("embed"), Some("k"), Some(0)))),
            ("7:2", Some((Some("embed"), Some("k"), Some(3)))),
            ("7:4", Some((Some("embed"), Some("k"), Some(4)))),
            ("7:1", None),
            ("5:0", None),
        ] {
            let number = number_among(&suspension.children, job.parse().unwrap());
            let found = number.map(|number| named(&suspension, number));
            let expected = expected.map(|(name, key, item): (Option<&str>, Option<&str>, Option<u32>)| {
                (name.map(str::to_owned), key.map(str::to_owned), item)
            });
            assert_eq!(found, expected, "{job}");
        }
        let unnamed = Suspension {
            memo: "7".to_owned(),
            ..suspension
        };
        assert_eq!(named(&unnamed, 0), (None, None, None));
    }

    #[test]
    fn a_kind_has_a_name_and_perhaps_a_version() {
        assert_eq!(name_and_version("document@3"), ("document", Some("3")));
        for kind in ["document", "@3", "document@"] {
            assert_eq!(name_and_version(kind), (kind, None));
        }
    }
}
