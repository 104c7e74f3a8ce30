use super::*;

fn gather(place: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
    Settings::gather(place, &|name| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn places_are_read_like_in_libpq() {
    for (place, expected) in [
        ("postgresql://", ""),
        (
            "postgres://me:a%40b:c@one:5433,[::1],three:/d%C3%A9b?sslmode=require&options=-c%20jit%3Doff",
            "dbname=déb host=one,::1,three options=-c jit=off password=a@b:c port=5433,, sslmode=require user=me",
        ),
        ("postgresql:///d?host=%2Frun&host=/tmp", "dbname=d host=/tmp"),
        ("postgresql://h/d?ssl=true", "dbname=d host=h sslmode=require"),
        (
            "host = h  password='it\\'s a \\\\' user=\\me dbname=''",
            "dbname= host=h password=it's a \\ user=me",
        ),
    ] {
        let settings = gather(place, &[]).unwrap();
        let shown: Vec<String> = settings
            .values
            .iter()
            .map(|(name, (value, _))| format!("{name}={value}"))
            .collect();
        assert_eq!(shown.join(" "), expected, "{place}");
    }
}

#[test]
fn the_place_comes_before_the_service_and_the_service_before_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services");
    std::fs::write(&file, "[jobs]\nhost=of-service\nport=5433\n").unwrap();
    let variables = [
        ("PGSERVICEFILE", file.to_str().unwrap()),
        ("PGSERVICE", "jobs"),
        ("PGHOST", "of-variable"),
        ("PGPORT", "1"),
        ("PGUSER", "me"),
        ("PGAPPNAME", ""),
    ];
    let settings = gather("postgresql://given/db", &variables).unwrap();
    let found = ["host", "port", "user", "application_name"].map(|name| settings.get(name));
    assert_eq!(found, [Some("given"), Some("5433"), Some("me"), None]);
    let error = gather("postgresql:///db?service=other", &variables).unwrap_err();
    assert!(
        error.starts_with("there is no service `other`") && error.contains("services"),
        "{error}"
    );
    std::fs::write(&file, "[jobs]\nsslcrl=x\n").unwrap();
    let error = gather("postgresql:///db", &variables).unwrap_err();
    assert!(
        error.starts_with("sslcrl (of the service `jobs`) is not supported"),
        "{error}"
    );
}

/// No option of libpq is ignored: each is used, or refused by its name, in every place.
#[test]
fn every_option_is_taken_or_refused_by_name() {
    for option in OPTIONS {
        let value = match option.usage {
            Use::Taken => continue,
            Use::Only(values, _) => {
                let place = format!("postgresql://h/d?{}={}", option.name, values[0]);
                gather(&place, &[]).unwrap();
                "other"
            }
            Use::Refused(_) => "any",
        };
        let error = gather(&format!("postgresql://h/d?{}={value}", option.name), &[]).unwrap_err();
        assert!(
            error.starts_with(option.name) && error.contains("not supported: "),
            "{error}"
        );
        if let Some(variable) = option.variable {
            let error = gather("postgresql://h/d", &[(variable, value)]).unwrap_err();
            assert!(error.contains(variable), "{error}");
        }
    }
    for wrong in ["postgresql://h/d?hots=x", "hots=x"] {
        let error = gather(wrong, &[]).unwrap_err();
        assert!(error.starts_with("`hots` is no option"), "{error}");
    }
}

#[test]
fn broken_places_are_refused() {
    for (place, reason) in [
        ("postgresql://h/%", "percent"),
        ("postgresql://h/d?sslmode", "`sslmode` has no `=`"),
        ("jobs", "`jobs` has no `=`"),
        ("password='open", "lacks its second quote"),
    ] {
        let error = gather(place, &[]).unwrap_err();
        assert!(error.contains(reason), "{place}: {error}");
    }
}
