//! The connection service file: `~/.pg_service.conf` or the file in `PGSERVICEFILE`, and then `pg_service.conf` in the
//! folder in `PGSYSCONFDIR` (PostgreSQL's documentation, section "The Connection Service File").

use std::path::PathBuf;

use super::Environment;

/// The folder of the system's file on Debian.
const SYSTEM_FOLDER: &str = "/etc/postgresql-common";

/// The settings of a service.
pub(super) fn read(
    service: &str,
    file: Option<String>,
    variable: Environment<'_>,
) -> Result<Vec<(String, String)>, String> {
    let named = file.or_else(|| variable("PGSERVICEFILE")).map(PathBuf::from);
    let own = named
        .clone()
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".pg_service.conf")));
    let system = PathBuf::from(variable("PGSYSCONFDIR").unwrap_or_else(|| SYSTEM_FOLDER.to_owned()));
    let files: Vec<PathBuf> = own.into_iter().chain([system.join("pg_service.conf")]).collect();
    for path in &files {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.as_ref() != Some(path) => {
                continue;
            }
            Err(error) => {
                return Err(format!(
                    "the service file {} cannot be read: {error}",
                    path.display()
                ));
            }
        };
        let found = section(&text, service).map_err(|reason| format!("{}: {reason}", path.display()))?;
        if let Some(pairs) = found {
            return Ok(pairs);
        }
    }
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    Err(format!(
        "there is no service `{service}` in {}",
        files.join(" or ")
    ))
}

/// The lines of a service. `None` if there is no service with this name.
fn section(text: &str, service: &str) -> Result<Option<Vec<(String, String)>>, String> {
    let mut pairs: Option<Vec<(String, String)>> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            if pairs.is_some() {
                break;
            }
            pairs = (name == service).then(Vec::new);
            continue;
        }
        let Some(pairs) = &mut pairs else { continue };
        let wrong = |reason: &str| format!("line {}: {reason}", number + 1);
        if line.starts_with("ldap") {
            return Err(wrong(
                "Gristmill asks no LDAP server; write the settings themselves",
            ));
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| wrong("it is not name=value"))?;
        if name == "service" {
            return Err(wrong("a service names no other one"));
        }
        // The first of several values counts, as in libpq.
        if pairs.iter().all(|(known, _)| known != name) {
            pairs.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_found_among_others() {
        let text =
            "# comment\n[other]\nhost=no\n\n[mine]\nhost=db\nport=5433\nhost=later\n[third]\nhost=no\n";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            section(text, "mine").unwrap(),
            Some(vec![pair("host", "db"), pair("port", "5433")])
        );
        assert_eq!(section(text, "fourth").unwrap(), None);
        for (line, reason) in [
            ("host", "line 2: it is not name=value"),
            ("ldap://x", "line 2: Gristmill asks no LDAP"),
        ] {
            let error = section(&format!("[mine]\n{line}\n"), "mine").unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
