//! The location of a store: a SQLite file or a PostgreSQL database.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// The schemes of PostgreSQL URLs.
const POSTGRES_SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The location of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database.
    Postgres(DatabaseUrl),
}

/// The URL of a PostgreSQL database. Its displayed form has no password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// The URL with this text.
    pub fn new(url: String) -> DatabaseUrl {
        DatabaseUrl(url)
    }

    /// The URL with its password, if it has one. Only for the connection.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The position of the password in the URL. Bytes.
    fn password(&self) -> Option<std::ops::Range<usize>> {
        let authority_at = self.0.find("://")? + 3;
        let authority_end = self.0[authority_at..]
            .find(['/', '?', '#'])
            .map_or(self.0.len(), |length| authority_at + length);
        let authority = &self.0[authority_at..authority_end];
        if let Some(user_end) = authority.rfind('@')
            && let Some(colon) = authority[..user_end].find(':')
        {
            return Some(authority_at + colon + 1..authority_at + user_end);
        }
        let options_at = self.0.find('?')? + 1;
        let mut at = options_at;
        for option in self.0[options_at..].split('&') {
            if let Some(value) = option.strip_prefix("password=") {
                return Some(at + option.len() - value.len()..at + option.len());
            }
            at += option.len() + 1;
        }
        None
    }

    /// Reports whether it contains a password.
    pub fn has_password(&self) -> bool {
        self.password().is_some_and(|range| !range.is_empty())
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.password().filter(|range| !range.is_empty()) {
            Some(range) => write!(formatter, "{}***{}", &self.0[..range.start], &self.0[range.end..]),
            None => formatter.write_str(&self.0),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DatabaseUrl({self})")
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreLocation::File(path) => path.display().fmt(formatter),
            StoreLocation::Postgres(url) => url.fmt(formatter),
        }
    }
}

/// An invalid location of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Another kind of database, or a typing error.
    #[error(
        "`{0}:` is not a kind of store: name a file, or a database as in postgresql://user@host/database"
    )]
    Scheme(String),
    /// A URL must be text.
    #[error("the database's URL is not UTF-8")]
    NotText,
}

impl StoreLocation {
    /// Parses the value of `--store` or of the environment.
    pub fn parse(text: &OsStr) -> Result<StoreLocation, LocationError> {
        let lossy = text.to_string_lossy();
        if POSTGRES_SCHEMES.iter().any(|scheme| lossy.starts_with(scheme)) {
            let url = text.to_str().ok_or(LocationError::NotText)?;
            return Ok(StoreLocation::Postgres(DatabaseUrl::new(url.to_owned())));
        }
        match lossy.split_once("://") {
            Some((scheme, _))
                if !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
            {
                Err(LocationError::Scheme(scheme.to_owned()))
            }
            _ => Ok(StoreLocation::File(PathBuf::from(text))),
        }
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            StoreLocation::File(path) => Some(path),
            StoreLocation::Postgres(_) => None,
        }
    }

    /// Reports whether a password is in these arguments, which every user of the machine can read.
    pub fn shows_password_among(&self, mut arguments: impl Iterator<Item = OsString>) -> bool {
        match self {
            StoreLocation::File(_) => false,
            StoreLocation::Postgres(url) => {
                url.has_password()
                    && arguments.any(|argument| argument.to_string_lossy().contains(url.secret()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        StoreLocation::parse(OsStr::new(text)).unwrap().to_string()
    }

    #[test]
    fn a_password_is_never_shown() {
        for (url, shows) in [
            ("postgres://me@host/db", "postgres://me@host/db"),
            ("postgres://me:secret@host/db", "postgres://me:***@host/db"),
            (
                "postgresql://me:a@b:c@host:5433,other/db?x=1",
                "postgresql://me:***@host:5433,other/db?x=1",
            ),
            (
                "postgresql:///db?host=/tmp&password=secret&user=me",
                "postgresql:///db?host=/tmp&password=***&user=me",
            ),
            ("postgres://me:@host/db", "postgres://me:@host/db"),
        ] {
            assert_eq!(shown(url), shows);
            let location = StoreLocation::parse(OsStr::new(url)).unwrap();
            assert!(!format!("{location:?}").contains("secret"), "{location:?}");
        }
    }

    #[test]
    fn a_text_without_a_scheme_is_a_file() {
        for text in ["gristmill.db", "/a/b c.db", "a:b", "://x"] {
            assert_eq!(shown(text), text);
            assert!(StoreLocation::parse(OsStr::new(text)).unwrap().file().is_some());
        }
        let error = StoreLocation::parse(OsStr::new("mysql://x/y"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`mysql:`") && error.contains("postgresql://"),
            "{error}"
        );
    }

    #[test]
    fn a_password_among_the_arguments_is_found() {
        let location = StoreLocation::parse(OsStr::new("postgres://me:secret@host/db")).unwrap();
        let arguments = |texts: &[&str]| texts.iter().map(OsString::from).collect::<Vec<_>>().into_iter();
        assert!(
            location.shows_password_among(arguments(&["gristmill", "--store=postgres://me:secret@host/db"]))
        );
        assert!(!location.shows_password_among(arguments(&["gristmill", "jobs"])));
    }
}
