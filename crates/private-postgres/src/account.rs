//! Whom the server runs as. PostgreSQL refuses to run as root.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::PostgresError;

/// The user of the server and of its clients.
#[derive(Debug)]
pub(crate) struct Account {
    pub name: String,
    /// User and group to change to, where this process is root.
    change_to: Option<(u32, u32)>,
}

impl Account {
    /// The user of this process; for root, Debian's user `postgres`.
    pub fn for_server() -> Result<Self, PostgresError> {
        let unreadable = |what: &str, error: std::io::Error| {
            PostgresError::Missing(format!("{what} cannot be read: {error}"))
        };
        let user = std::fs::metadata("/proc/self")
            .map_err(|error| unreadable("/proc/self", error))?
            .uid();
        let passwords =
            std::fs::read_to_string("/etc/passwd").map_err(|error| unreadable("/etc/passwd", error))?;
        let mut accounts = passwords.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            Some((
                *fields.first()?,
                fields.get(2)?.parse::<u32>().ok()?,
                fields.get(3)?.parse::<u32>().ok()?,
            ))
        });
        if user == 0 {
            let (name, user, group) = accounts.find(|(name, ..)| *name == "postgres").ok_or_else(|| {
                PostgresError::Missing(
                    "root cannot run PostgreSQL, and there is no user `postgres`: apt-get install postgresql, or run as another user"
                        .to_owned(),
                )
            })?;
            return Ok(Account {
                name: name.to_owned(),
                change_to: Some((user, group)),
            });
        }
        let (name, ..) = accounts
            .find(|(_, id, _)| *id == user)
            .ok_or_else(|| PostgresError::Missing(format!("user {user} has no name in /etc/passwd")))?;
        Ok(Account {
            name: name.to_owned(),
            change_to: None,
        })
    }

    /// A command that runs as this user, in a folder that it can enter.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/");
        if let Some((user, group)) = self.change_to {
            command.uid(user).gid(group);
        }
        command
    }

    /// Gives a folder to this user; everyone may look for the socket in it.
    pub fn own(&self, folder: &Path) -> Result<(), PostgresError> {
        use std::os::unix::fs::PermissionsExt as _;
        let failed = |error: std::io::Error| PostgresError::Failed {
            program: format!("giving {} to {}", folder.display(), self.name),
            output: error.to_string(),
        };
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
        match self.change_to {
            None => Ok(()),
            Some((user, group)) => std::os::unix::fs::chown(folder, Some(user), Some(group)).map_err(failed),
        }
    }
}
