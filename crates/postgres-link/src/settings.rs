//! The settings of a connection, gathered like in libpq: first from a URL or `name=value` pairs, then from the service
//! that these or `PGSERVICE` name, and then from the environment. Each option of libpq is used, or refused by its name.
//! None is ignored.

mod options;
mod service;
mod text;

use std::collections::BTreeMap;
use std::fmt;

use options::{KnownOption, OPTIONS, Use};

/// Gristmill's own option that names the kind of a connection pooler.
pub(crate) const POOLER: &str = "pooler";

/// Reads a variable of the environment.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The origin of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// The URL, or the pairs in its place.
    Given,
    /// This service of the service file.
    Service(String),
    Variable(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Given => Ok(()),
            Origin::Service(name) => write!(formatter, " (of the service `{name}`)"),
            Origin::Variable(name) => write!(formatter, " (of the variable {name})"),
        }
    }
}

/// The settings of a connection by their libpq names.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, (String, Origin)>,
}

impl Settings {
    /// Gathers the settings of a connection to `place`.
    pub fn gather(place: &str, environment: Environment<'_>) -> Result<Settings, String> {
        let mut settings = Settings::default();
        for (name, value) in text::pairs(place)? {
            // This follows libpq, which has it from JDBC.
            let (name, value) = match (name.as_str(), value.as_str()) {
                ("ssl", "true") => ("sslmode", "require".to_owned()),
                (name, _) => (name, value),
            };
            settings.put(name, value, Origin::Given)?;
        }
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let service = settings
            .get("service")
            .map(str::to_owned)
            .or_else(|| variable("PGSERVICE"));
        if let Some(service) = service {
            let file = settings.get("servicefile").map(str::to_owned);
            for (name, value) in service::read(&service, file, &variable)? {
                if settings.get(&name).is_none() {
                    settings.put(&name, value, Origin::Service(service.clone()))?;
                }
            }
        }
        for option in OPTIONS {
            if let Some(name) = option.variable
                && !settings.values.contains_key(option.name)
                && let Some(value) = variable(name)
            {
                settings.put(option.name, value, Origin::Variable(name))?;
            }
        }
        Ok(settings)
    }

    fn put(&mut self, name: &str, value: String, origin: Origin) -> Result<(), String> {
        let known = OPTIONS.iter().find(|option| option.name == name);
        let Some(KnownOption { name, usage, .. }) = known else {
            return Err(format!(
                "`{name}`{origin} is no option of a connection to PostgreSQL"
            ));
        };
        match usage {
            Use::Taken => {}
            Use::Only(values, _) if values.contains(&value.as_str()) => {}
            Use::Only(_, remedy) => return Err(format!("{name}={value}{origin} is not supported: {remedy}")),
            Use::Refused(remedy) => return Err(format!("{name}{origin} is not supported: {remedy}")),
        }
        self.values.insert(name, (value, origin));
        Ok(())
    }

    /// A setting, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (value, _) = self.values.get(name)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// Reports whether the place itself has a setting.
    pub fn is_given(&self, name: &str) -> bool {
        matches!(self.values.get(name), Some((_, Origin::Given)))
    }

    /// A setting with one of a few values.
    pub fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, String> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let found = words.iter().find(|(word, _)| *word == value);
        found.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(name, &format!("write one of {}", known.join(", ")))
        })
    }

    /// A setting that is a whole number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.get(name)
            .map(|value| {
                let number = value.trim().parse();
                number.map_err(|_| self.wrong(name, "write a whole number of at least 0"))
            })
            .transpose()
    }

    /// The refusal of a setting's value.
    pub fn wrong(&self, name: &str, remedy: &str) -> String {
        match self.values.get(name) {
            Some((value, origin)) => format!("{name}={value}{origin}: {remedy}"),
            None => format!("{name}: {remedy}"),
        }
    }
}

#[cfg(test)]
mod tests;
