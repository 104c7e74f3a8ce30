//! One suite that every store passes.
//!
//! A store's tests implement [`Database`] and call [`store_conformance!`](crate::store_conformance), which makes one
//! test of each check:
//!
//! ```text
//! gristmill_store::store_conformance!(TemporarySqlite::new());
//! ```

pub mod claims;
pub mod fixture;

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_model::ManualClock;

use crate::Store;

/// An empty database of its own for one check, in which several handles can be opened.
#[async_trait]
pub trait Database: Send + Sync {
    /// Opens a handle, as another process would.
    async fn open(&self) -> Arc<dyn Store>;

    /// The clock that all handles go by.
    fn clock(&self) -> &ManualClock;
}

/// Makes a `#[tokio::test]` of every check of the suite. The argument makes a new [`Database`](conformance::Database)
/// each time.
#[macro_export]
macro_rules! store_conformance {
    ($database:expr) => {
        $crate::store_conformance! { @modules $database;
            claims [
                a_batch_goes_through,
            ]
        }
    };
    (@modules $database:expr; $($module:ident [$($check:ident,)*])*) => {
        $(mod $module {
            #[allow(unused_imports, reason = "the database may be named by a path")]
            use super::*;
            $(
                #[tokio::test]
                async fn $check() {
                    $crate::conformance::$module::$check(&$database).await;
                }
            )*
        })*
    };
}
