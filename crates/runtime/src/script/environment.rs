//! The environment of scripts and programs: the environment of this process without the secrets of Gristmill.
//!
//! This keeps secrets out of values, logs and crash reports. A script runs as the same user, so this does not stop a
//! script that searches for secrets elsewhere, for example in files of the user.

use std::ffi::{OsStr, OsString};
use std::process::Command;

use gristmill_model::WEBHOOK_SECRET_VARIABLE;

/// Variables with a secret of Gristmill, or with the name of a secret's file: tokens, passwords of databases, keys of
/// models and of receivers.
pub const SECRET_VARIABLES: [&str; 13] = [
    WEBHOOK_SECRET_VARIABLE,
    "AGENT_TOKEN",
    "GRISTMILL_TOKEN",
    "PGPASSWORD",
    "PGPASSFILE",
    "OPENAI_API_KEY",
    "OPENAI_API_KEY_FILE",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_API_KEY_FILE",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
];

/// Variables that name a store: a file, or the address of a database, which may contain a password.
pub const STORE_VARIABLES: [&str; 2] = ["GRISTMILL_STORE", "GRISTMILL_MEMORY"];

/// Removes the secrets of this process's environment from a command, except for those that are passed.
pub(crate) fn withhold_secrets(command: &mut Command, passed: &[OsString]) {
    let stores = STORE_VARIABLES
        .into_iter()
        .filter(|name| std::env::var_os(name).is_some_and(|store| is_address(&store)));
    for name in SECRET_VARIABLES.into_iter().chain(stores) {
        if !passed.iter().any(|passed| passed == name) {
            command.env_remove(name);
        }
    }
}

/// Reports whether a store is a database, named by a URL or by settings in libpq's form.
fn is_address(store: &OsStr) -> bool {
    let store = store.to_string_lossy();
    ["://", "host=", "password="]
        .iter()
        .any(|sign| store.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_secrets_are_withheld_except_for_passed_ones() {
        let mut command = Command::new("true");
        withhold_secrets(&mut command, &["PGPASSWORD".into(), "PATH".into()]);
        let withheld: Vec<&OsStr> = command
            .get_envs()
            .filter_map(|(name, value)| value.is_none().then_some(name))
            .collect();
        for name in SECRET_VARIABLES {
            assert_eq!(
                withheld.contains(&OsStr::new(name)),
                name != "PGPASSWORD",
                "{name}"
            );
        }
        assert!(!withheld.contains(&OsStr::new("PATH")));
    }

    #[test]
    fn addresses_of_databases_and_files_are_distinguished() {
        for (store, expected) in [
            ("postgresql://me:secret@db/jobs", true),
            ("host=db password=secret", true),
            ("gristmill.db", false),
            ("/var/lib/gristmill/jobs.db", false),
        ] {
            assert_eq!(is_address(OsStr::new(store)), expected, "{store}");
        }
    }
}
