//! The identity of a run: its name, its script and its input.

use std::io;
use std::path::Path;

use gristmill_model::Timestamp;
use gristmill_model::limits::NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::input::{Fingerprint, Input};

/// The prefix of a run's queue. The prefix and the run's name must fit into the name of a queue.
const QUEUE_PREFIX: &str = "run:";

/// The path in the identity of requests to a model. The path of a script is absolute.
const MODEL_PATH: &str = "llm";

/// The stored identity of a run, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The script or program that runs the items.
    pub script: ScriptIdentity,
    /// The kind of the run's batches. It stays the same even if another script runs them later.
    pub kind: String,
    /// The source of the items.
    pub input: Fingerprint,
    /// The run's queue has a rate limit while it runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_rated: bool,
    /// `--halt` stopped the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_halted: bool,
}

impl Description {
    /// Reports whether `--halt` stopped the run with this stored description.
    pub fn says_halted(stored: &str) -> bool {
        serde_json::from_str(stored).is_ok_and(|description: Description| description.is_halted)
    }
}

/// The identity of a script or program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptIdentity {
    /// Its absolute path.
    pub path: String,
    /// The SHA-256 of its file in hexadecimal digits. Modules that it imports do not count.
    pub sha256: String,
    /// A program's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

impl ScriptIdentity {
    /// Reads the file at `path`.
    pub fn read(path: &Path, arguments: Vec<String>) -> io::Result<ScriptIdentity> {
        let digest = Sha256::digest(std::fs::read(path)?);
        Ok(ScriptIdentity {
            path: path.to_string_lossy().into_owned(),
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            arguments,
        })
    }

    /// The identity of requests to a model, whose options have this digest.
    #[cfg(feature = "full")]
    pub fn of_model(options: &str) -> ScriptIdentity {
        let digest = Sha256::digest(options);
        ScriptIdentity {
            path: MODEL_PATH.to_owned(),
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            arguments: Vec::new(),
        }
    }

    /// The file's name.
    pub fn short_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Reports whether this is another script or program, or has other arguments. Another version of the same file does
    /// not count.
    pub fn is_other_program(&self, now: &ScriptIdentity) -> bool {
        self.path != now.path || self.arguments != now.arguments
    }

    /// The difference, if any.
    pub fn difference(&self, now: &ScriptIdentity) -> Option<String> {
        if self.path != now.path {
            return Some(format!("the script was {}, and is now {}", self.path, now.path));
        }
        if self.arguments != now.arguments {
            let (before, after) = (self.arguments.join(" "), now.arguments.join(" "));
            return Some(format!(
                "the program's arguments were `{before}`, and are now `{after}`"
            ));
        }
        (self.sha256 != now.sha256).then(|| match now.path.as_str() {
            MODEL_PATH => "the model, the template or another option of the requests has changed".to_owned(),
            path => format!("the script {path} has changed"),
        })
    }
}

/// The default name of a run: the names of its script and input, such as `word_stats.py:items.jsonl`. A run of standard
/// input, which cannot be read again, gets a unique name with its time and process.
pub fn default_name(script: &ScriptIdentity, input: &Input, begun_at: Timestamp) -> String {
    let mut name = format!("{}:{}", script.short_name(), input.short_name());
    if input.is_stdin() {
        name.push_str(&format!("-{:x}-{}", begun_at.0, std::process::id()));
    }
    let printable = name
        .chars()
        .map(|letter| if letter.is_control() { '_' } else { letter });
    let mut bytes_left = NAME_BYTES_MAX - QUEUE_PREFIX.len();
    printable
        .take_while(|letter| {
            let fits = letter.len_utf8() <= bytes_left;
            bytes_left = bytes_left.saturating_sub(letter.len_utf8());
            fits
        })
        .collect()
}

/// Checks a given name.
pub fn check_name(name: &str) -> anyhow::Result<()> {
    gristmill_model::batch::check_name("run", name)?;
    if queue_of(name).len() > NAME_BYTES_MAX {
        anyhow::bail!(
            "a run's name has at most {} bytes: {name}",
            NAME_BYTES_MAX - QUEUE_PREFIX.len()
        );
    }
    Ok(())
}

/// The run's own queue, so that no other worker takes its jobs by accident.
pub fn queue_of(name: &str) -> String {
    format!("{QUEUE_PREFIX}{name}")
}

/// Reports whether a queue belongs to a run.
pub fn is_of_run(queue: &str) -> bool {
    queue.starts_with(QUEUE_PREFIX)
}

/// The kind of a script's jobs.
pub fn kind_of(script: &ScriptIdentity) -> String {
    let kind: String = format!("script:{}", script.short_name())
        .chars()
        .filter(|letter| !letter.is_control())
        .collect();
    let mut end = kind.len().min(NAME_BYTES_MAX);
    while !kind.is_char_boundary(end) {
        end -= 1;
    }
    kind[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_describe_their_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{}.jsonl", "ä".repeat(120)));
        std::fs::write(&path, "").unwrap();
        let script_path = folder.path().join("word_stats.py");
        std::fs::write(&script_path, "def main(payload): ...").unwrap();
        let script = ScriptIdentity::read(&script_path, Vec::new()).unwrap();
        let long = default_name(&script, &Input::new(&path, None).unwrap(), Timestamp(0));
        assert!(long.starts_with("word_stats.py:ää"));
        check_name(&long).unwrap();
        check_name("x\n").unwrap_err();
        check_name(&"x".repeat(197)).unwrap_err();
        assert_eq!(kind_of(&script), "script:word_stats.py");
    }

    #[test]
    fn a_script_differs_by_path_arguments_or_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.py");
        std::fs::write(&path, "1").unwrap();
        let before = ScriptIdentity::read(&path, Vec::new()).unwrap();
        assert_eq!(
            before.difference(&ScriptIdentity::read(&path, Vec::new()).unwrap()),
            None
        );
        std::fs::write(&path, "2").unwrap();
        let after = ScriptIdentity::read(&path, Vec::new()).unwrap();
        assert!(before.difference(&after).unwrap().ends_with("a.py has changed"));
        let other = ScriptIdentity {
            arguments: vec!["-n".into()],
            ..before.clone()
        };
        assert!(
            before
                .difference(&other)
                .unwrap()
                .contains("arguments were ``, and are now `-n`")
        );
    }
}
