//! The options of libpq (of PostgreSQL 17, and the additional ones of 18), and the use of each.

/// The use of an option.
#[derive(Debug, Clone, Copy)]
pub(super) enum Use {
    /// It is used.
    Taken,
    /// These values describe the normal behaviour. Others are refused with the remedy.
    Only(&'static [&'static str], &'static str),
    /// It is refused with the remedy.
    Refused(&'static str),
}

/// An option of libpq.
#[derive(Debug)]
pub(super) struct KnownOption {
    /// Its name in URLs and service files.
    pub name: &'static str,
    /// The environment variable with its default.
    pub variable: Option<&'static str>,
    pub usage: Use,
}

const fn option(name: &'static str, variable: &'static str, usage: Use) -> KnownOption {
    KnownOption {
        name,
        variable: if variable.is_empty() { None } else { Some(variable) },
        usage,
    }
}

const KERBEROS: Use = Use::Refused("Gristmill does not log in by GSSAPI; use a password or a certificate");
const REVOCATION: Use = Use::Refused("Gristmill reads no lists of revoked certificates; remove it");

/// All options. If a service file or a variable has a refused option, the connection is refused, because a connection
/// without the option would not be the intended one.
pub(super) const OPTIONS: &[KnownOption] = &[
    option("host", "PGHOST", Use::Taken),
    option("hostaddr", "PGHOSTADDR", Use::Taken),
    option("port", "PGPORT", Use::Taken),
    option("dbname", "PGDATABASE", Use::Taken),
    option("user", "PGUSER", Use::Taken),
    option("password", "PGPASSWORD", Use::Taken),
    option("passfile", "PGPASSFILE", Use::Taken),
    option("service", "PGSERVICE", Use::Taken),
    option("servicefile", "PGSERVICEFILE", Use::Taken),
    option("options", "PGOPTIONS", Use::Taken),
    option("application_name", "PGAPPNAME", Use::Taken),
    option("fallback_application_name", "", Use::Taken),
    option("connect_timeout", "PGCONNECT_TIMEOUT", Use::Taken),
    option("keepalives", "", Use::Taken),
    option("keepalives_idle", "", Use::Taken),
    option("keepalives_interval", "", Use::Taken),
    option("keepalives_count", "", Use::Taken),
    option("tcp_user_timeout", "", Use::Taken),
    option("sslmode", "PGSSLMODE", Use::Taken),
    option("sslnegotiation", "PGSSLNEGOTIATION", Use::Taken),
    option("sslrootcert", "PGSSLROOTCERT", Use::Taken),
    option("sslcert", "PGSSLCERT", Use::Taken),
    option("sslkey", "PGSSLKEY", Use::Taken),
    option("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", Use::Taken),
    option("channel_binding", "PGCHANNELBINDING", Use::Taken),
    option("load_balance_hosts", "PGLOADBALANCEHOSTS", Use::Taken),
    option(
        "target_session_attrs",
        "PGTARGETSESSIONATTRS",
        Use::Only(
            &["any", "read-write", "read-only"],
            "write read-write for `primary`, and read-only for `standby`",
        ),
    ),
    option(
        "ssl_max_protocol_version",
        "PGSSLMAXPROTOCOLVERSION",
        Use::Only(
            &["TLSv1.3"],
            "remove it: both ends take the newest version that they have",
        ),
    ),
    option(
        "client_encoding",
        "PGCLIENTENCODING",
        Use::Only(
            &["UTF8", "utf8", "UTF-8", "utf-8", "auto"],
            "Gristmill speaks UTF8; remove it",
        ),
    ),
    option(
        "sslcompression",
        "PGSSLCOMPRESSION",
        Use::Only(&["0"], "TLS is not compressed; remove it"),
    ),
    option(
        "sslsni",
        "PGSSLSNI",
        Use::Only(&["1"], "Gristmill always names the host to the server; remove it"),
    ),
    option(
        "sslcertmode",
        "PGSSLCERTMODE",
        Use::Only(&["allow"], "name a certificate by sslcert and sslkey, or none"),
    ),
    option(
        "requiressl",
        "PGREQUIRESSL",
        Use::Only(&["0"], "write sslmode=require"),
    ),
    option(
        "gssencmode",
        "PGGSSENCMODE",
        Use::Only(
            &["disable", "prefer"],
            "Gristmill encrypts by TLS alone: sslmode=require",
        ),
    ),
    option("krbsrvname", "PGKRBSRVNAME", KERBEROS),
    option("gsslib", "PGGSSLIB", KERBEROS),
    option("gssdelegation", "PGGSSDELEGATION", KERBEROS),
    option("sslcrl", "PGSSLCRL", REVOCATION),
    option("sslcrldir", "PGSSLCRLDIR", REVOCATION),
    option(
        "sslpassword",
        "",
        Use::Refused("Gristmill reads no encrypted keys; decrypt it: openssl pkey -in KEY -out NEW"),
    ),
    option(
        "requirepeer",
        "PGREQUIREPEER",
        Use::Refused(
            "Gristmill does not ask whose a socket is; use sslmode=verify-full, or a folder that only that user may write to",
        ),
    ),
    option(
        "require_auth",
        "PGREQUIREAUTH",
        Use::Refused("use channel_binding=require, or choose the methods in the server's pg_hba.conf"),
    ),
    option(
        "replication",
        "",
        Use::Refused("Gristmill needs a plain connection; remove it"),
    ),
    option(
        "min_protocol_version",
        "PGMINPROTOCOLVERSION",
        Use::Only(&["3.0"], "Gristmill speaks version 3.0; remove it"),
    ),
    option(
        "max_protocol_version",
        "PGMAXPROTOCOLVERSION",
        Use::Only(
            &["3.0", "3.2", "latest"],
            "Gristmill speaks version 3.0; remove it",
        ),
    ),
    option(
        "sslkeylogfile",
        "",
        Use::Refused("Gristmill writes the keys of TLS nowhere; remove it"),
    ),
    option(
        "oauth_issuer",
        "",
        Use::Refused("Gristmill does not log in by OAuth"),
    ),
    option(
        "oauth_client_id",
        "",
        Use::Refused("Gristmill does not log in by OAuth"),
    ),
    option(
        "oauth_client_secret",
        "",
        Use::Refused("Gristmill does not log in by OAuth"),
    ),
    option(
        "oauth_scope",
        "",
        Use::Refused("Gristmill does not log in by OAuth"),
    ),
    option("scram_client_key", "", Use::Refused("give the password")),
    option("scram_server_key", "", Use::Refused("give the password")),
    // Gristmill's own.
    option(super::POOLER, "", Use::Taken),
];
