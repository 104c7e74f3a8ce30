//! The credentials of an agent.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::HeaderValue;

use crate::error::AgentError;

/// The credentials of an agent. They do not appear in arguments and logs.
#[derive(Clone)]
pub struct AgentToken {
    file: Option<PathBuf>,
    header: Arc<Mutex<HeaderValue>>,
}

impl fmt::Debug for AgentToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AgentToken(…)")
    }
}

impl AgentToken {
    /// A token as `gristmill token create` printed it, from the environment.
    pub fn new(text: &str) -> Result<Self, AgentError> {
        Ok(AgentToken {
            file: None,
            header: Arc::new(Mutex::new(bearer(text)?)),
        })
    }

    /// A token in a file. If the server refuses the token, the file is read again, so that a new token can be put there
    /// before the old one expires.
    pub fn from_file(path: &Path) -> Result<Self, AgentError> {
        let header = Arc::new(Mutex::new(read_bearer(path)?));
        Ok(AgentToken {
            file: Some(path.to_owned()),
            header,
        })
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.header.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again. Returns whether it has another token than before.
    pub(crate) fn reread(&self) -> bool {
        let Some(new) = self.file.as_deref().and_then(|path| read_bearer(path).ok()) else {
            return false;
        };
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = *header != new;
        *header = new;
        changed
    }
}

fn read_bearer(path: &Path) -> Result<HeaderValue, AgentError> {
    let text = std::fs::read_to_string(path).map_err(|error| AgentError::TokenFile {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    bearer(&text)
}

fn bearer(text: &str) -> Result<HeaderValue, AgentError> {
    let text = text.trim();
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(AgentError::Token);
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| AgentError::Token)?;
    header.set_sensitive(true);
    Ok(header)
}
