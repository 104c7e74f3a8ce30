//! The dashboard: a page at `/` over the API. `web/` has its source; `make web` builds it into the folder `dashboard/` of
//! this crate, which the program embeds.

mod assets;
mod session;

use axum::Router;
use axum::middleware;
use axum::routing::get;

use crate::app::App;

/// The page, its files and its session.
pub fn routes(app: &App) -> Router<App> {
    Router::new()
        .route("/", get(assets::index))
        .route("/assets/{file}", get(assets::asset))
        .route(
            "/dashboard/session",
            get(session::show)
                .post(session::sign_in)
                .delete(session::sign_out),
        )
        .layer(middleware::from_fn_with_state(app.clone(), assets::protect))
}
