//! The trust folder: its files and the operations on them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gristmill_model::batch::check_name;
use gristmill_model::{Clock, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::token::{Claims, TokenRecord};
use crate::caller::{EventScope, Role};
use crate::limits::{KEYS_MAX, QUEUES_MAX, SUBJECT_BYTES_MAX, TOKEN_LIFE_MS_MAX, TOKENS_MAX};

/// Bytes of a signing key: HMAC-SHA-256 makes use of this many (RFC 7518, section 3.2).
const SECRET_BYTES: usize = 32;

/// Bytes of the id of a token or key.
const ID_BYTES: usize = 9;

/// The error of reading or changing the trust folder.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file cannot be read or written.
    #[error("{}: {reason}; check the folder and its permissions, or create one with `gristmill token create`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// A file has the wrong content.
    #[error("{}: {reason}; restore it, or create a new folder", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// Others may read the keys.
    #[error("{}: others may read this file (mode {mode:o}); run `chmod 600` on it", path.display())]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// No such token.
    #[error("token `{0}` does not exist; see `gristmill token list`")]
    Unknown(String),
    /// Too many tokens or keys.
    #[error("the folder has reached its limit of {0} {1}; revoke or drop some")]
    Full(usize, &'static str),
    /// The system gave no random numbers.
    #[error("the system's random number generator failed: {0}")]
    Random(String),
}

/// A token to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// The worker group, or the submitting program.
    pub subject: String,
    /// Its role.
    pub role: Role,
    /// The queues that it gives access to; `*` for all.
    pub queues: Vec<String>,
    /// The one event that it may send, if it may do nothing else. It reaches no queues then.
    pub event: Option<EventScope>,
    /// Its life. Milliseconds.
    pub life_ms: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeyFile {
    keys: Vec<KeyRecord>,
}

#[derive(Serialize, Deserialize)]
struct KeyRecord {
    kid: String,
    secret: String,
    created_at: Timestamp,
}

impl std::fmt::Debug for KeyRecord {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("KeyRecord")
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct TokenFile {
    tokens: Vec<TokenRecord>,
}

/// The version of the folder: the parts of its files' metadata that do not depend on the device.
pub(super) type Stamp = [Option<(u64, i64, i64, u64)>; 2];

/// The contents of a folder at one time.
pub(super) struct Contents {
    pub stamp: Stamp,
    keys: HashMap<String, DecodingKey>,
    tokens: HashMap<String, TokenRecord>,
}

impl Contents {
    pub fn token(&self, jti: &str) -> Option<&TokenRecord> {
        self.tokens.get(jti)
    }

    /// Returns the claims of a signed text. The caller checks their times by its own clock.
    pub fn verify(&self, text: &str) -> Result<Claims, String> {
        let header = jsonwebtoken::decode_header(text).map_err(|_| "the token is not a JWT".to_owned())?;
        let kid = header.kid.ok_or("the token does not name its key")?;
        let key = self
            .keys
            .get(&kid)
            .ok_or("the token was signed with a key that this server does not know")?;
        let mut validation = Validation::new(Algorithm::HS256);
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.set_required_spec_claims(&["exp", "sub"]);
        let token = jsonwebtoken::decode::<Claims>(text, key, &validation)
            .map_err(|_| "the token's signature or form is wrong".to_owned())?;
        Ok(token.claims)
    }
}

/// A folder of keys and tokens.
#[derive(Debug, Clone)]
pub struct TrustFolder {
    path: PathBuf,
}

impl TrustFolder {
    /// The folder at `path`. It need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        super::hmac::install();
        TrustFolder { path: path.into() }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn keys_path(&self) -> PathBuf {
        self.path.join("keys.json")
    }

    fn tokens_path(&self) -> PathBuf {
        self.path.join("tokens.json")
    }

    pub(super) fn stamp(&self) -> Stamp {
        [self.keys_path(), self.tokens_path()].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            Some((
                metadata.ino(),
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.size(),
            ))
        })
    }

    pub(super) fn read(&self) -> Result<Contents, TrustError> {
        // The stamp is taken first, so that the next look notices a change between the stamp and the reading.
        let stamp = self.stamp();
        let KeyFile { keys } = self.read_keys()?;
        let mut decoding = HashMap::new();
        for key in keys {
            let secret = self.secret(&key)?;
            decoding.insert(key.kid, DecodingKey::from_secret(&secret));
        }
        let TokenFile { tokens } = read_json(&self.tokens_path())?;
        let tokens = tokens
            .into_iter()
            .map(|token| (token.jti.clone(), token))
            .collect();
        Ok(Contents {
            stamp,
            keys: decoding,
            tokens,
        })
    }

    fn read_keys(&self) -> Result<KeyFile, TrustError> {
        let path = self.keys_path();
        let metadata = fs::metadata(&path).map_err(|error| file_error(&path, &error))?;
        if metadata.mode() & 0o077 != 0 {
            return Err(TrustError::Readable {
                path,
                mode: metadata.mode() & 0o777,
            });
        }
        let file: KeyFile = read_json(&path)?;
        if file.keys.is_empty() {
            return Err(TrustError::Content {
                path,
                reason: "there is no key in it".to_owned(),
            });
        }
        Ok(file)
    }

    fn secret(&self, key: &KeyRecord) -> Result<Vec<u8>, TrustError> {
        let wrong = |reason: String| TrustError::Content {
            path: self.keys_path(),
            reason,
        };
        let secret = URL_SAFE_NO_PAD.decode(&key.secret).map_err(|error| {
            wrong(format!(
                "the secret of key `{}` is not base64url: {error}",
                key.kid
            ))
        })?;
        if secret.len() < SECRET_BYTES {
            return Err(wrong(format!(
                "the secret of key `{}` has under {SECRET_BYTES} bytes",
                key.kid
            )));
        }
        Ok(secret)
    }

    /// Creates a token, and the folder and its first key if they are missing. Returns the signed text, which is not
    /// stored, and the token's record in the list.
    pub fn create(&self, new: &NewToken, clock: &dyn Clock) -> Result<(String, TokenRecord), TrustError> {
        check_new(new)?;
        let _lock = self.lock()?;
        if !self.keys_path().exists() {
            self.write_keys(&KeyFile {
                keys: vec![new_key(clock.now())?],
            })?;
        }
        let keys = self.read_keys()?.keys;
        let Some(key) = keys.last() else {
            return Err(TrustError::Full(0, "keys"));
        };
        let now = clock.now();
        let mut list = self.read_tokens()?;
        list.tokens.retain(|token| token.expires_at > now);
        if list.tokens.len() >= TOKENS_MAX {
            return Err(TrustError::Full(TOKENS_MAX, "tokens"));
        }
        let (iat, exp) = (
            now.0.div_euclid(1_000),
            now.plus_ms(new.life_ms).0.div_euclid(1_000),
        );
        let record = TokenRecord {
            jti: random_id()?,
            subject: new.subject.clone(),
            role: new.role,
            queues: new.queues.clone(),
            event: new.event.clone(),
            kid: key.kid.clone(),
            created_at: now,
            expires_at: Timestamp(exp * 1_000),
            revoked_at: None,
        };
        let claims = Claims {
            sub: record.subject.clone(),
            role: record.role,
            queues: record.queues.clone(),
            event: record.event.clone(),
            iat,
            exp,
            jti: record.jti.clone(),
        };
        let header = Header {
            kid: Some(key.kid.clone()),
            ..Header::new(Algorithm::HS256)
        };
        let text = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(&self.secret(key)?))
            .map_err(|error| TrustError::Invalid(format!("the token cannot be signed: {error}")))?;
        list.tokens.push(record.clone());
        self.write(&self.tokens_path(), &list, 0o600)?;
        Ok((text, record))
    }

    /// All tokens that are listed, oldest first.
    pub fn tokens(&self) -> Result<Vec<TokenRecord>, TrustError> {
        Ok(self.read_tokens()?.tokens)
    }

    /// Revokes a token. Servers that read this folder refuse it within a second. A second revocation changes nothing.
    pub fn revoke(&self, jti: &str, clock: &dyn Clock) -> Result<TokenRecord, TrustError> {
        let _lock = self.lock()?;
        let mut list = self.read_tokens()?;
        let token = list
            .tokens
            .iter_mut()
            .find(|token| token.jti == jti)
            .ok_or_else(|| TrustError::Unknown(jti.chars().take(80).collect()))?;
        token.revoked_at.get_or_insert(clock.now());
        let revoked = token.clone();
        self.write(&self.tokens_path(), &list, 0o600)?;
        Ok(revoked)
    }

    /// Creates a new signing key and returns its id. Tokens of older keys stay valid until they expire.
    pub fn rotate_key(&self, clock: &dyn Clock) -> Result<String, TrustError> {
        let _lock = self.lock()?;
        let mut file = if self.keys_path().exists() {
            self.read_keys()?
        } else {
            KeyFile { keys: Vec::new() }
        };
        let listed = self.read_tokens()?.tokens;
        // A key other than the newest is dropped when no listed token needs it.
        let newest = file.keys.last().map(|key| key.kid.clone());
        file.keys.retain(|key| {
            Some(&key.kid) == newest.as_ref()
                || listed
                    .iter()
                    .any(|token| token.kid == key.kid && token.expires_at > clock.now())
        });
        if file.keys.len() >= KEYS_MAX {
            return Err(TrustError::Full(KEYS_MAX, "keys"));
        }
        let key = new_key(clock.now())?;
        let kid = key.kid.clone();
        file.keys.push(key);
        self.write_keys(&file)?;
        Ok(kid)
    }

    fn read_tokens(&self) -> Result<TokenFile, TrustError> {
        let path = self.tokens_path();
        if path.exists() {
            read_json(&path)
        } else {
            Ok(TokenFile::default())
        }
    }

    fn write_keys(&self, file: &KeyFile) -> Result<(), TrustError> {
        self.write(&self.keys_path(), file, 0o600)
    }

    /// Creates the folder, and keeps other programs from changing it until the result is dropped.
    fn lock(&self) -> Result<File, TrustError> {
        fs::create_dir_all(&self.path).map_err(|error| file_error(&self.path, &error))?;
        let path = self.path.join("lock");
        let opened = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path);
        let file = opened.map_err(|error| file_error(&path, &error))?;
        file.lock().map_err(|error| file_error(&path, &error))?;
        Ok(file)
    }

    /// Writes a file as a whole: a reader sees the old or the new one, even after a crash.
    fn write<T: Serialize>(&self, path: &Path, content: &T, mode: u32) -> Result<(), TrustError> {
        let partial = path.with_extension("partial");
        let written = (|| {
            let _ = fs::remove_file(&partial);
            let mut file = OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(mode)
                .open(&partial)?;
            serde_json::to_writer_pretty(&mut file, content)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&partial, path)?;
            File::open(&self.path)?.sync_all()
        })();
        written.map_err(|error| file_error(path, &error))
    }
}

fn check_new(new: &NewToken) -> Result<(), TrustError> {
    let invalid = |reason: String| TrustError::Invalid(reason);
    check_name("subject", &new.subject).map_err(|error| invalid(error.to_string()))?;
    if new.subject.contains('/') || new.subject.len() > SUBJECT_BYTES_MAX {
        return Err(invalid(format!(
            "the subject `{}` holds a `/` or over {SUBJECT_BYTES_MAX} bytes; choose a shorter name without one",
            new.subject
        )));
    }
    if let Some(event) = &new.event {
        check_name("event", &event.name).map_err(|error| invalid(error.to_string()))?;
        if !new.queues.is_empty() {
            return Err(invalid("a token for one event names no queues".to_owned()));
        }
    } else if new.queues.is_empty() || new.queues.len() > QUEUES_MAX {
        return Err(invalid(format!(
            "a token names 1 to {QUEUES_MAX} queues; `*` stands for all"
        )));
    }
    for queue in &new.queues {
        check_name("queue", queue).map_err(|error| invalid(error.to_string()))?;
    }
    if new.life_ms < 1_000 || new.life_ms > TOKEN_LIFE_MS_MAX {
        return Err(invalid(format!(
            "a token lives 1 second to {} days",
            TOKEN_LIFE_MS_MAX / 86_400_000
        )));
    }
    Ok(())
}

fn new_key(now: Timestamp) -> Result<KeyRecord, TrustError> {
    let mut secret = [0; SECRET_BYTES];
    fill(&mut secret)?;
    Ok(KeyRecord {
        kid: random_id()?,
        secret: URL_SAFE_NO_PAD.encode(secret),
        created_at: now,
    })
}

fn random_id() -> Result<String, TrustError> {
    let mut bytes = [0; ID_BYTES];
    fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn fill(bytes: &mut [u8]) -> Result<(), TrustError> {
    getrandom::fill(bytes).map_err(|error| TrustError::Random(error.to_string()))
}

fn file_error(path: &Path, error: &dyn std::fmt::Display) -> TrustError {
    TrustError::File {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, TrustError> {
    let text = fs::read_to_string(path).map_err(|error| file_error(path, &error))?;
    serde_json::from_str(&text).map_err(|error| TrustError::Content {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}
