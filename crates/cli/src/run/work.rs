//! The work of a run: a script or a model gets each item.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use gristmill_engine::Handler;
use gristmill_runtime::{Runtime, Script};

use super::identity::{ScriptIdentity, kind_of};
#[cfg(feature = "full")]
use super::model::ModelWork;
use crate::input::Input;
use crate::output::tally::Tally;
use crate::script::{Keeping, start};

/// The program or the model that gets each item.
pub enum Work {
    /// A script or a program gets it.
    Script {
        /// The script or program.
        script: Script,
        /// The script's file, unless it is a program.
        file: Option<PathBuf>,
        /// The program's arguments.
        arguments: Vec<String>,
        /// The settings of its processes.
        keeping: Keeping,
    },
    /// A model is asked.
    #[cfg(feature = "full")]
    Model(Box<ModelWork>),
}

impl Work {
    /// Starts the handler, and checks that it can run.
    pub async fn start(&self) -> anyhow::Result<Arc<dyn Handler>> {
        match self {
            Work::Script { script, keeping, .. } => start(script.clone(), *keeping).await,
            #[cfg(feature = "full")]
            Work::Model(work) => work.start().await,
        }
    }

    /// The input with what the work needs to read it.
    pub fn reads(&self, input: Input) -> Input {
        match self {
            Work::Script { script, .. } if script.runtime() == Runtime::Python => {
                input.with_python(script.program_name())
            }
            Work::Script { .. } => input,
            #[cfg(feature = "full")]
            Work::Model(work) => input.with_payloads(work.payloads()),
        }
    }

    /// Reports whether the payloads of jobs are made of the items, and are not the items.
    pub fn makes_payloads(&self) -> bool {
        !matches!(self, Work::Script { .. })
    }

    /// The script's file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Work::Script { file, .. } => file.as_deref(),
            #[cfg(feature = "full")]
            Work::Model(_) => None,
        }
    }

    /// Resolves with the reason when the work has to stop, because each further job would fail.
    pub async fn denied(&self) -> String {
        match self {
            Work::Script { .. } => std::future::pending().await,
            #[cfg(feature = "full")]
            Work::Model(work) => work.denied().await,
        }
    }

    /// The identity to store.
    pub fn identity(&self) -> anyhow::Result<ScriptIdentity> {
        match self {
            Work::Script {
                script, arguments, ..
            } => ScriptIdentity::read(script.path(), arguments.clone())
                .with_context(|| format!("{} cannot be read", script.path().display())),
            #[cfg(feature = "full")]
            Work::Model(work) => Ok(ScriptIdentity::of_model(&work.options())),
        }
    }

    /// The kind of the jobs.
    pub fn kind(&self, identity: &ScriptIdentity) -> String {
        match self {
            Work::Script { .. } => kind_of(identity),
            #[cfg(feature = "full")]
            Work::Model(_) => gristmill_llm::job::LLM_KIND.to_owned(),
        }
    }

    /// The sums over the values that the summary tells, if the work has any.
    pub fn tally(&self) -> Option<Tally> {
        match self {
            Work::Script { .. } => None,
            #[cfg(feature = "full")]
            Work::Model(_) => Some(Tally::default()),
        }
    }
}
