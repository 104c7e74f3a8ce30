//! The password file of libpq's programs: `~/.pgpass`, or the file in `PGPASSFILE`. A line is
//! `host:port:database:user:password`. A `*` stands for any value, and a `\` before a colon or a `\` for the character
//! itself (PostgreSQL's documentation, section "The Password File").

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::settings::Environment;

/// The default port.
pub(crate) const PORT: u16 = 5432;

/// The password in the first line of the file that matches the address. A file that others can read is ignored, as in libpq.
pub(crate) fn password(config: &Config, file: Option<&str>, environment: Environment<'_>) -> Option<String> {
    let path = match file {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(environment("HOME")?).join(".pgpass"),
    };
    let text = read(&path)?;
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let ports = config.get_ports();
    config.get_hosts().iter().enumerate().find_map(|(index, host)| {
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
        find(&text, [&host_name(host), &port.to_string(), database, user])
    })
}

/// A host in the form of libpq's files.
pub(crate) fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.to_string_lossy().into_owned(),
    }
}

fn read(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "the password file is ignored: others may read it; run `chmod 600` on it");
        return None;
    }
    std::fs::read_to_string(path).ok()
}

fn find(text: &str, wanted: [&str; 4]) -> Option<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(fields).find_map(|fields| {
        let [rest @ .., password] = fields.as_slice() else {
            return None;
        };
        let fits = rest.len() == wanted.len()
            && rest
                .iter()
                .zip(wanted)
                .all(|(field, wanted)| field == "*" || field == wanted);
        fits.then(|| password.clone())
    })
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let is_last = fields.len() == 5;
        let letter = match letter {
            ':' if !is_last => {
                fields.push(String::new());
                continue;
            }
            '\\' => letters.next().unwrap_or('\\'),
            letter => letter,
        };
        if let Some(field) = fields.last_mut() {
            field.push(letter);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_line_has_the_password() {
        let text = "# comment\nother:5432:db:me:no\nhost:*:db:me:open\\:ses\\\\ame\n*:*:*:*:any\nbroken\n";
        let found = |host, port, database, user| find(text, [host, port, database, user]);
        assert_eq!(
            found("host", "5433", "db", "me").as_deref(),
            Some("open:ses\\ame")
        );
        assert_eq!(found("host", "5433", "db", "you").as_deref(), Some("any"));
        assert_eq!(
            find("a:1:b:c:with:colon", ["a", "1", "b", "c"]).as_deref(),
            Some("with:colon")
        );
        assert_eq!(find("a:1:b:c:d", ["x", "1", "b", "c"]), None);
    }
}
