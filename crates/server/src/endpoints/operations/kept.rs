//! The running and ended operations of this server.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gristmill_engine::Portions;
use gristmill_model::Timestamp;
use gristmill_operations::access::QueueScope;
use gristmill_store::StoreError;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::ToSchema;

use super::start::OperationRequest;
use crate::app::App;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::{OPERATIONS_KEPT_MAX, OPERATIONS_RUNNING_MAX};

/// The suggested delay before a retry when too many operations run. Seconds.
const RETRY_AFTER_S: u64 = 5;

/// The operations of one server. An ended operation is kept until enough others have started.
#[derive(Debug)]
pub struct Operations {
    /// The operations, oldest first.
    kept: Mutex<VecDeque<Arc<Operation>>>,
    begun: AtomicU64,
    room: Arc<Semaphore>,
}

/// The state of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OperationState {
    /// More portions are left.
    Running,
    /// All jobs were visited.
    Completed,
    /// It was cancelled between two portions.
    Cancelled,
    /// A portion failed.
    Failed,
}

/// The end of an operation.
#[derive(Debug)]
pub struct End {
    /// How it ended.
    pub state: OperationState,
    /// The reason of a failure.
    pub failure: Option<Refusal>,
    /// When it ended.
    pub at: Timestamp,
}

/// A running change.
#[derive(Debug)]
pub struct Operation {
    /// The id. It contains the id of the server's run, so that no other server has an operation with this id.
    pub id: String,
    /// The change.
    pub request: OperationRequest,
    /// The caller that started it.
    caller: Caller,
    /// The number of jobs that matched at the start.
    pub matched: u64,
    /// The start.
    pub started_at: Timestamp,
    changed: AtomicU64,
    cancelled: AtomicBool,
    end: OnceLock<End>,
}

impl Default for Operations {
    fn default() -> Self {
        Operations {
            kept: Mutex::default(),
            begun: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(OPERATIONS_RUNNING_MAX)),
        }
    }
}

impl Operations {
    /// Takes room for one more operation.
    pub fn room(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let room = self.room.clone().try_acquire_owned();
        room.map_err(|_| ApiError::TooMany {
            what: "too many operations run",
            limit: format!("{OPERATIONS_RUNNING_MAX} operations"),
            retry_after_s: RETRY_AFTER_S,
        })
    }

    /// Runs a change in the background.
    pub fn begin(
        &self,
        app: &App,
        caller: &Caller,
        request: OperationRequest,
        (portions, matched): (Portions, u64),
        room: OwnedSemaphorePermit,
    ) -> Arc<Operation> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let operation = Arc::new(Operation {
            id: format!("{}-{number}", app.instance),
            request,
            caller: caller.clone(),
            matched,
            started_at: app.clock().now(),
            changed: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            end: OnceLock::new(),
        });
        let mut kept = self.kept();
        kept.push_back(operation.clone());
        if kept.len() > OPERATIONS_KEPT_MAX
            && let Some(oldest) = kept.iter().position(|operation| operation.end().is_some())
        {
            kept.remove(oldest);
        }
        drop(kept);
        let (app, running) = (app.clone(), operation.clone());
        tokio::spawn(async move {
            let end = running.run(&app, portions).await;
            // The end is set only here.
            let _ = running.end.set(end);
            drop(room);
        });
        operation
    }

    /// The operations on the caller's queues, the newest first.
    pub fn shown_to(&self, caller: &Caller) -> Vec<Arc<Operation>> {
        let kept = self.kept();
        let shown = kept
            .iter()
            .rev()
            .filter(|operation| operation.is_shown_to(caller));
        shown.cloned().collect()
    }

    /// The operation with this id, if it is on the caller's queues.
    pub fn find(&self, caller: &Caller, id: &str) -> Result<Arc<Operation>, ApiError> {
        let found = self.kept().iter().find(|operation| operation.id == id).cloned();
        let own = found.filter(|operation| operation.is_shown_to(caller));
        own.ok_or_else(|| ApiError::NotFound {
            what: "operation",
            id: id.chars().take(80).collect(),
        })
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Arc<Operation>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Operation {
    /// The number of jobs that were changed so far.
    pub fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }

    /// The end, if the operation has ended.
    pub fn end(&self) -> Option<&End> {
        self.end.get()
    }

    /// Ends the operation before its next portion.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn is_shown_to(&self, caller: &Caller) -> bool {
        match &self.request.filter.queue {
            Some(queue) => caller.access.queues.contains(queue),
            None => caller.access.queues == QueueScope::All,
        }
    }

    /// Changes one portion after the other until none is left, the operation is cancelled, its token ends or the server
    /// stops.
    async fn run(&self, app: &App, mut portions: Portions) -> End {
        let ended = loop {
            if self.cancelled.load(Ordering::Relaxed) {
                break Ok(OperationState::Cancelled);
            }
            if *app.stopping.borrow() {
                break Err(ApiError::Stopping);
            }
            if let Err(error) = app.trust.check_again(&self.caller) {
                break Err(error);
            }
            match portions.change_next().await {
                Ok(Some(changed)) => {
                    self.changed.fetch_add(changed, Ordering::Relaxed);
                    // The change may have made jobs claimable, and listeners expect its events.
                    app.wake.ring();
                    app.engine.wake_listeners();
                }
                Ok(None) => break Ok(OperationState::Completed),
                Err(error) => {
                    log(&self.id, &error);
                    break Err(ApiError::Store(error));
                }
            }
        };
        let at = app.clock().now();
        match ended {
            Ok(state) => End {
                state,
                failure: None,
                at,
            },
            Err(error) => End {
                state: OperationState::Failed,
                failure: Some(error.refusal()),
                at,
            },
        }
    }
}

fn log(id: &str, error: &StoreError) {
    tracing::warn!(operation = id, %error, "an operation failed; the portions before stay changed");
}
