//! A figure that callers ask for repeatedly, although computing it reads much of the store. While callers ask, the
//! server computes it ahead, so that no caller waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::error::ApiError;
use crate::limits::{RECENT_FOR_TIMES_ITS_COST, WATCHED_FOR, WATCHED_PAUSE_MAX, WATCHED_PAUSE_MIN};

/// A figure that knows the cost of computing it.
pub trait Figure {
    /// Reports whether the figure is computed for each caller.
    fn is_cheap(&self) -> bool;
}

/// The last figure, and whether it is computed ahead.
#[derive(Debug)]
pub struct Watched<F> {
    state: Mutex<State<F>>,
    /// Callers without a recent figure wait for one computation.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State<F> {
    last: Option<Looked<F>>,
    asked_at: Option<Instant>,
    is_watched: bool,
}

#[derive(Debug)]
struct Looked<F> {
    figure: F,
    began: Instant,
    at: Instant,
    took: Duration,
}

impl<F> Looked<F> {
    /// The pause before the figure is computed ahead again. The computations take at most 2 % of one core, or happen
    /// every [`WATCHED_PAUSE_MAX`].
    fn pause(&self) -> Duration {
        (self.took * RECENT_FOR_TIMES_ITS_COST).min(WATCHED_PAUSE_MAX)
    }

    /// Reports whether callers get this figure: it is at most two pauses old.
    fn is_recent(&self) -> bool {
        self.at.elapsed() <= self.pause() * 2
    }
}

impl<F> Default for Watched<F> {
    fn default() -> Self {
        let state = State {
            last: None,
            asked_at: None,
            is_watched: false,
        };
        Watched {
            state: Mutex::new(state),
            looking: tokio::sync::Mutex::default(),
        }
    }
}

impl<F: Figure + Clone + Send + 'static> Watched<F> {
    fn state(&self) -> MutexGuard<'_, State<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> Option<F> {
        let state = self.state();
        let last = state.last.as_ref()?;
        (!last.figure.is_cheap() && last.is_recent()).then(|| last.figure.clone())
    }

    /// Returns the figure: a new one while it is cheap, else the last one. It is then computed ahead until nobody has
    /// asked for a while, or until `stopped`.
    pub async fn get<Look, Looking, Stopped>(
        self: &Arc<Self>,
        look: Look,
        stopped: Stopped,
    ) -> Result<F, ApiError>
    where
        Look: Fn() -> Looking + Send + Sync + 'static,
        Looking: Future<Output = Result<F, ApiError>> + Send,
        Stopped: Future<Output = ()> + Send + 'static,
    {
        let now = Instant::now();
        self.state().asked_at = Some(now);
        if let Some(figure) = self.recent() {
            return Ok(figure);
        }
        let figure = self.look(now, &look).await?;
        if !figure.is_cheap() && !std::mem::replace(&mut self.state().is_watched, true) {
            let watched = self.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = watched.watch(look) => {}
                    () = stopped => watched.state().is_watched = false,
                }
            });
        }
        Ok(figure)
    }

    /// Computes the figure once for all waiting callers.
    async fn look<Looking>(&self, asked_at: Instant, look: &impl Fn() -> Looking) -> Result<F, ApiError>
    where
        Looking: Future<Output = Result<F, ApiError>>,
    {
        let _looking = self.looking.lock().await;
        if let Some(figure) = self.recent() {
            return Ok(figure);
        }
        if let Some(last) = &self.state().last
            && last.began >= asked_at
        {
            return Ok(last.figure.clone());
        }
        self.look_anew(look).await
    }

    async fn look_anew<Looking>(&self, look: &impl Fn() -> Looking) -> Result<F, ApiError>
    where
        Looking: Future<Output = Result<F, ApiError>>,
    {
        let began = Instant::now();
        let figure = look().await?;
        self.state().last = Some(Looked {
            figure: figure.clone(),
            began,
            at: Instant::now(),
            took: began.elapsed(),
        });
        Ok(figure)
    }

    /// Computes the figure repeatedly, until nobody has asked for [`WATCHED_FOR`] or it has become cheap.
    async fn watch<Looking>(&self, look: impl Fn() -> Looking)
    where
        Looking: Future<Output = Result<F, ApiError>>,
    {
        loop {
            let next = {
                let mut state = self.state();
                let last = state.last.as_ref().filter(|last| !last.figure.is_cheap());
                let next = last.map(|last| last.at + last.pause());
                let is_asked = state.asked_at.is_some_and(|at| at.elapsed() <= WATCHED_FOR);
                match next.filter(|_| is_asked) {
                    Some(next) => next,
                    None => {
                        state.is_watched = false;
                        return;
                    }
                }
            };
            // After a failure the last figure stays. The pause keeps failures from following each other closely.
            sleep_until(next.max(Instant::now() + WATCHED_PAUSE_MIN)).await;
            let _looking = self.looking.lock().await;
            // If the figure becomes too old, callers compute it themselves and learn of the failure.
            let _ = self.look_anew(&look).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    /// A figure that counts its computations.
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Number(u32, bool);

    impl Figure for Number {
        fn is_cheap(&self) -> bool {
            self.1
        }
    }

    /// A store that computes a figure in 10 ms.
    #[derive(Default)]
    struct Store {
        looks: AtomicU32,
        is_cheap: AtomicBool,
    }

    const LOOK: Duration = Duration::from_millis(10);
    const PAUSE: Duration = Duration::from_millis(10 * RECENT_FOR_TIMES_ITS_COST as u64);

    impl Store {
        async fn ask(self: &Arc<Self>, watched: &Arc<Watched<Number>>) -> u32 {
            let store = self.clone();
            let look = move || {
                let store = store.clone();
                async move {
                    tokio::time::sleep(LOOK).await;
                    let number = store.looks.fetch_add(1, Ordering::Relaxed) + 1;
                    Ok(Number(number, store.is_cheap.load(Ordering::Relaxed)))
                }
            };
            watched.get(look, std::future::pending()).await.unwrap().0
        }

        fn looks(&self) -> u32 {
            self.looks.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cheap_figure_is_new_for_each_caller() {
        let (store, watched) = (Arc::new(Store::default()), Arc::default());
        store.is_cheap.store(true, Ordering::Relaxed);
        assert_eq!((store.ask(&watched).await, store.ask(&watched).await), (1, 2));
        tokio::time::sleep(WATCHED_FOR).await;
        assert_eq!(store.looks(), 2, "nothing is looked at ahead");
    }

    #[tokio::test(start_paused = true)]
    async fn the_figure_is_computed_ahead_while_callers_ask() {
        let (store, watched) = (Arc::new(Store::default()), Arc::default());
        let (one, other) = tokio::join!(store.ask(&watched), store.ask(&watched));
        assert_eq!((one, other), (1, 1), "both wait for one look");
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let asked_at = Instant::now();
            let number = store.ask(&watched).await;
            assert_eq!(asked_at.elapsed(), Duration::ZERO, "nobody waits");
            assert!(store.looks() - number <= 1);
        }
        let expected = 100_000 / u32::try_from((PAUSE + LOOK).as_millis()).unwrap();
        assert!(store.looks().abs_diff(expected) <= 2, "{}", store.looks());
        tokio::time::sleep(WATCHED_FOR + PAUSE).await;
        let looks = store.looks();
        tokio::time::sleep(WATCHED_FOR).await;
        assert_eq!(store.looks(), looks, "nobody asks any more");
        assert_eq!(store.ask(&watched).await, looks + 1, "an old figure is no answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_figure_that_has_become_cheap_is_computed_for_each_caller() {
        let (store, watched) = (Arc::new(Store::default()), Arc::default());
        store.ask(&watched).await;
        store.is_cheap.store(true, Ordering::Relaxed);
        tokio::time::sleep(PAUSE + LOOK * 2).await;
        let looks = store.looks();
        assert_eq!(store.ask(&watched).await, looks + 1);
        tokio::time::sleep(PAUSE * 3).await;
        assert_eq!(store.looks(), looks + 1);
        store.is_cheap.store(false, Ordering::Relaxed);
        store.ask(&watched).await;
        tokio::time::sleep(PAUSE * 3).await;
        assert!(store.looks() >= looks + 4, "looks are made ahead again");
    }
}
