//! What holds due jobs back from a worker that claims in vain.

use gristmill_model::{Clock, Control, Effect, Scope};
use gristmill_store::rules::admission::held_back::{HELD_BACK_AFTER_MS, held_back};
use gristmill_store::{ControlFilter, Want};

use crate::Database;
use crate::fixture::*;

/// Pauses, limits and locks are told; jobs that are not due, not wanted, or due for a moment are not.
pub async fn what_holds_due_jobs_back_is_told(database: &dyn Database) {
    let store = database.open().await;
    let wanted = want(1);
    let told = async || held_back(&*store, &wanted).await;
    assert_eq!(told().await, None);
    // Many lanes of others come first.
    let others = (0..300).map(|lane| {
        let mut new = batch(1);
        new.queue = format!("queue {lane}");
        new
    });
    store.submit(others.collect(), None).await.unwrap();
    let mut later = batch(1);
    later.options.run_at = Some(database.clock().now().plus_ms(10 * HELD_BACK_AFTER_MS));
    submit(&*store, later).await;
    database.clock().advance_ms(2 * HELD_BACK_AFTER_MS);
    let first = submit(&*store, batch(2)).await;
    assert_eq!(told().await, None, "another worker may be about to claim it");
    database.clock().advance_ms(HELD_BACK_AFTER_MS);
    let text = told().await.unwrap();
    let of_lane = "jobs of kind `work` on queue `default` are due: ";
    assert!(
        text.starts_with(&format!("{of_lane}no pause or limit holds them")),
        "{text}"
    );
    let elsewhere = Want {
        kinds: vec!["other".into()],
        ..want(1)
    };
    assert_eq!(held_back(&*store, &elsewhere).await, None);

    let control = |effect| Control {
        scope: Scope {
            queue: Some("default".to_owned()),
            ..Scope::default()
        },
        effect,
    };
    let pause = control(Effect::Pause {
        reason: "stocktaking".to_owned(),
        until: None,
    });
    store.put_controls(vec![pause]).await.unwrap();
    assert_eq!(
        told().await.unwrap(),
        format!("{of_lane}a pause of queue default holds them (stocktaking, until it is resumed)")
    );
    store.delete_controls(ControlFilter::default()).await.unwrap();
    let worker = worker(&*store).await;
    let slice = only(claim(&*store, worker, 1).await);
    assert_eq!(slice.batch, first);
    let limit = control(Effect::Concurrency { jobs_max: 1 });
    store.put_controls(vec![limit]).await.unwrap();
    assert_eq!(
        told().await.unwrap(),
        format!("{of_lane}a limit of queue default: at most 1 running")
    );
    exchange(&*store, worker, vec![completed(&slice)], Some(want(1))).await;
    let rest = told().await;
    assert_eq!(rest, None, "the second job runs, and nothing else is due");
}
