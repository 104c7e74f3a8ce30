//! The two forms of a connection's place: `postgresql://user@host/database?name=value`, and `name=value name='value'`
//! (PostgreSQL's documentation, section "Connection Strings").

/// The settings of a place in order. A later one replaces an earlier one.
pub(super) fn pairs(place: &str) -> Result<Vec<(String, String)>, String> {
    let rest = ["postgresql://", "postgres://"]
        .iter()
        .find_map(|scheme| place.strip_prefix(scheme));
    match rest {
        Some(rest) => of_url(rest),
        None => of_pairs(place),
    }
}

fn of_url(rest: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut add = |name: &str, value: &str| -> Result<(), String> {
        if !value.is_empty() {
            pairs.push((name.to_owned(), decoded(value)?));
        }
        Ok(())
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    let (account, hosts) = match authority.rsplit_once('@') {
        Some((account, hosts)) => (account, hosts),
        None => ("", authority),
    };
    let (user, password) = account.split_once(':').unwrap_or((account, ""));
    add("user", user)?;
    add("password", password)?;
    let hosts: Vec<(&str, &str)> = hosts.split(',').map(host_and_port).collect();
    let joined = |part: fn(&(&str, &str)) -> String| -> String {
        let parts: Vec<String> = hosts.iter().map(part).collect();
        if parts.iter().all(String::is_empty) {
            String::new()
        } else {
            parts.join(",")
        }
    };
    add("host", &joined(|(host, _)| (*host).to_owned()))?;
    add("port", &joined(|(_, port)| (*port).to_owned()))?;
    add("dbname", database)?;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| {
            format!(
                "`{}` has no `=`: write name=value",
                decoded(part).unwrap_or_default()
            )
        })?;
        pairs.push((decoded(name)?, decoded(value)?));
    }
    Ok(pairs)
}

/// A host and its port. An IPv6 address is in brackets.
fn host_and_port(text: &str) -> (&str, &str) {
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (address, rest.strip_prefix(':').unwrap_or(rest));
    }
    text.split_once(':').unwrap_or((text, ""))
}

/// Decodes text such as `%20` for a blank.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "a percent sign stands before two hexadecimal digits; write %25 for itself".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).ok_or_else(wrong);
                let byte = digit(high)? * 16 + digit(low)?;
                bytes.push(u8::try_from(byte).map_err(|_| wrong())?);
                tail
            }
            (b'%', _) => return Err(wrong()),
            (byte, tail) => {
                bytes.push(*byte);
                tail
            }
        };
    }
    String::from_utf8(bytes).map_err(|_| "a percent-encoded part of it is not UTF-8".to_owned())
}

fn of_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut letters = text.chars().peekable();
    loop {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        if letters.peek().is_none() {
            return Ok(pairs);
        }
        let mut name = String::new();
        while let Some(letter) = letters.next_if(|letter| *letter != '=' && !letter.is_whitespace()) {
            name.push(letter);
        }
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        if letters.next_if_eq(&'=').is_none() {
            return Err(format!(
                "`{name}` has no `=` behind it: write postgresql://user@host/database, or host=HOST dbname=DATABASE"
            ));
        }
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        let quoted = letters.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        loop {
            match letters.next() {
                None if quoted => return Err(format!("the value of {name} lacks its second quote")),
                None => break,
                Some('\'') if quoted => break,
                Some(letter) if !quoted && letter.is_whitespace() => break,
                Some('\\') => value.extend(letters.next()),
                Some(letter) => value.push(letter),
            }
        }
        pairs.push((name, value));
    }
}
