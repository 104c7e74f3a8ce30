//! The variables of OpenTelemetry that Gristmill reads
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sampler::Sampler;

/// The address of a receiver on this machine. It is used when an exporter is set without an address.
const ENDPOINT_DEFAULT: &str = "http://localhost:4318";

/// A signal: one kind of exported data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// The server's metrics.
    Metrics,
    /// Warnings and errors.
    Logs,
}

impl Signal {
    /// All signals.
    pub const ALL: [Signal; 3] = [Signal::Traces, Signal::Metrics, Signal::Logs];

    /// The name of the signal in paths and, in lower case, in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
        }
    }
}

/// The receiver of one signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The complete address.
    pub url: String,
    /// The headers of each request, such as a token.
    pub headers: Vec<(String, String)>,
    /// The time limit of a request.
    pub timeout: Duration,
}

/// The settings from the environment.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The receiver of spans, if spans are exported.
    pub traces: Option<Endpoint>,
    /// The receiver of metrics, if metrics are exported.
    pub metrics: Option<Endpoint>,
    /// The receiver of logs, if logs are exported.
    pub logs: Option<Endpoint>,
    /// The choice of exported traces.
    pub sampler: Sampler,
    /// The attributes of this program, by name.
    pub resource: Vec<(String, String)>,
    /// The longest time that spans gather before an export.
    pub spans_every: Duration,
    /// The longest time that logs gather before an export.
    pub logs_every: Duration,
    /// The time between two exports of metrics.
    pub metrics_every: Duration,
}

/// The settings, and warnings about ignored variables.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// The settings. `None` if nothing is exported.
    pub settings: Option<Settings>,
    /// One line for each unusable variable.
    pub warnings: Vec<String>,
}

/// Reads the variables. An empty variable counts as unset.
pub fn read(variable: &dyn Fn(&str) -> Option<String>) -> Read {
    let variable = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
    let mut reader = Reader {
        variable: &variable,
        warnings: Vec::new(),
    };
    let settings = reader.settings();
    Read {
        settings,
        warnings: reader.warnings,
    }
}

struct Reader<'v> {
    variable: &'v dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|text| text.trim().to_owned())
    }

    fn warn(&mut self, name: &str, value: &str, remedy: &str) {
        let value: String = value.chars().take(80).collect();
        self.warnings.push(format!("{name} is `{value}`: {remedy}"));
    }

    /// Reads a number of milliseconds.
    fn span(&mut self, name: &str, default_ms: u64) -> Duration {
        let given = self.text(name);
        let read = given.as_ref().map(|text| text.parse::<u64>());
        let ms = match (read, given) {
            (Some(Ok(ms)), _) if ms > 0 => ms,
            (Some(_), Some(text)) => {
                let remedy = format!("give a number of milliseconds above 0; {default_ms} is used");
                self.warn(name, &text, &remedy);
                default_ms
            }
            _ => default_ms,
        };
        Duration::from_millis(ms)
    }

    fn settings(&mut self) -> Option<Settings> {
        if self
            .text("OTEL_SDK_DISABLED")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
        {
            return None;
        }
        let [traces, metrics, logs] = Signal::ALL.map(|signal| self.endpoint(signal));
        if traces.is_none() && metrics.is_none() && logs.is_none() {
            return None;
        }
        Some(Settings {
            traces,
            metrics,
            logs,
            sampler: self.sampler(),
            resource: self.resource(),
            spans_every: self.span("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            logs_every: self.span("OTEL_BLRP_SCHEDULE_DELAY", 1_000),
            metrics_every: self.span("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
        })
    }

    /// The variable of one signal. If it is unset, the variable of all signals.
    fn of(&self, signal: Signal, what: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.name().to_uppercase());
        let general = format!("OTEL_EXPORTER_OTLP_{what}");
        [own, general]
            .into_iter()
            .find_map(|name| self.text(&name).map(|text| (name, text)))
    }

    fn endpoint(&mut self, signal: Signal) -> Option<Endpoint> {
        let exporter_variable = format!("OTEL_{}_EXPORTER", signal.name().to_uppercase());
        let exporter = self.text(&exporter_variable);
        let given = self.of(signal, "ENDPOINT");
        match exporter.as_deref() {
            Some("otlp") => {}
            None if given.is_some() => {}
            None | Some("none") => return None,
            Some(other) => {
                let remedy = format!("give otlp or none; {} are not exported", signal.name());
                let other = other.to_owned();
                self.warn(&exporter_variable, &other, &remedy);
                return None;
            }
        }
        if let Some((name, protocol)) = self.of(signal, "PROTOCOL")
            && !["http/json", "http/protobuf"].contains(&protocol.as_str())
        {
            let remedy = format!(
                "give http/json, and the receiver's port for HTTP, which is 4318; {} are not exported",
                signal.name()
            );
            self.warn(&name, &protocol, &remedy);
            return None;
        }
        let (name, base) = given.unwrap_or_else(|| (String::new(), ENDPOINT_DEFAULT.to_owned()));
        if !(base.starts_with("http://") || base.starts_with("https://")) {
            let remedy = format!("give http:// or https://; {} are not exported", signal.name());
            self.warn(&name, &base, &remedy);
            return None;
        }
        // The address of one signal is complete. The address of all signals is a prefix.
        let is_own = name.contains(&signal.name().to_uppercase());
        let url = if is_own {
            base
        } else {
            format!("{}/v1/{}", base.trim_end_matches('/'), signal.name())
        };
        let timeout_variable = self
            .of(signal, "TIMEOUT")
            .map_or_else(String::new, |(name, _)| name);
        let timeout = self.span(&timeout_variable, 10_000);
        let headers = self
            .of(signal, "HEADERS")
            .map_or_else(Vec::new, |(_, text)| pairs(&text));
        Some(Endpoint {
            url,
            headers,
            timeout,
        })
    }

    /// The attributes of the resource. The environment's attributes replace our own. The last of two attributes with
    /// the same name wins.
    fn resource(&mut self) -> Vec<(String, String)> {
        let variable = "OTEL_RESOURCE_ATTRIBUTES";
        let given = self.text(variable).unwrap_or_default();
        for part in given.split(',').filter(|part| !part.trim().is_empty()) {
            if part
                .split_once('=')
                .is_none_or(|(name, _)| name.trim().is_empty())
            {
                self.warn(variable, part, "write name=value; this part is ignored");
            }
        }
        let own = [
            ("service.name", "gristmill"),
            ("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let service = self
            .text("OTEL_SERVICE_NAME")
            .map(|service| ("service.name".to_owned(), service));
        let all: BTreeMap<String, String> = own.into_iter().chain(pairs(&given)).chain(service).collect();
        all.into_iter().collect()
    }

    fn sampler(&mut self) -> Sampler {
        let name = self.text("OTEL_TRACES_SAMPLER");
        let argument = self.text("OTEL_TRACES_SAMPLER_ARG");
        let read = Sampler::read(name.as_deref(), argument.as_deref());
        read.unwrap_or_else(|remedy| {
            let value = format!("{} {}", name.unwrap_or_default(), argument.unwrap_or_default());
            self.warn("OTEL_TRACES_SAMPLER", value.trim(), &remedy);
            Sampler::default()
        })
    }
}

/// Reads names and values, such as `a=b,c=d`. Values are percent-encoded. Parts without a name are ignored.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|part| part.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value.trim())));
    pairs.filter(|(name, _)| !name.is_empty()).collect()
}

/// Decodes a percent-encoded text. Invalid sequences stay as they are.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|digits| !digits.starts_with('+'));
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)]) -> Read {
        read(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_is_exported_by_default() {
        for variables in [
            &[][..],
            &[("OTEL_SERVICE_NAME", "jobs")],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
            &[
                ("OTEL_TRACES_EXPORTER", "none"),
                ("OTEL_METRICS_EXPORTER", "none"),
            ],
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"),
                ("OTEL_SDK_DISABLED", "True"),
            ],
        ] {
            let read = check(variables);
            assert_eq!(
                (read.settings, read.warnings),
                (None, Vec::new()),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn an_address_enables_all_signals() {
        let read = check(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://otel.example/base/"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs.example/take"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20x%2Cy, tenant = 7,wrong",
            ),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("OTEL_METRICS_EXPORTER", "none"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=other,deployment.environment=test",
            ),
            ("OTEL_SERVICE_NAME", "jobs"),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ]);
        assert_eq!(read.warnings, Vec::<String>::new());
        let settings = read.settings.unwrap();
        let traces = settings.traces.unwrap();
        assert_eq!(traces.url, "https://otel.example/base/v1/traces");
        let [first, second] = &traces.headers[..] else {
            panic!("two headers: {:?}", traces.headers);
        };
        assert_eq!(
            (first.0.as_str(), first.1.as_str()),
            ("authorization", "Bearer x,y")
        );
        assert_eq!((second.0.as_str(), second.1.as_str()), ("tenant", "7"));
        assert_eq!(traces.timeout, Duration::from_millis(250));
        assert_eq!(settings.logs.unwrap().url, "http://logs.example/take");
        assert_eq!(settings.metrics, None);
        assert_eq!(settings.spans_every, Duration::from_millis(20));
        assert_eq!(settings.metrics_every, Duration::from_secs(60));
        let resource: Vec<&str> = settings
            .resource
            .iter()
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(resource, ["test", "jobs", env!("CARGO_PKG_VERSION")]);
    }

    #[test]
    fn resource_attributes_of_the_environment_win_and_no_name_repeats() {
        let read = check(&[
            ("OTEL_TRACES_EXPORTER", "otlp"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.version=7,team=a%20b,team=c, service.name = shop,alone,=x,",
            ),
        ]);
        let says = "OTEL_RESOURCE_ATTRIBUTES is `alone`: write name=value";
        assert!(
            read.warnings.len() == 2 && read.warnings[0].starts_with(says),
            "{:?}",
            read.warnings
        );
        let resource = read.settings.unwrap().resource;
        let resource: Vec<(&str, &str)> = resource.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            resource,
            [("service.name", "shop"), ("service.version", "7"), ("team", "c")]
        );
    }

    #[test]
    fn an_exporter_without_an_address_sends_to_this_machine() {
        let settings = check(&[("OTEL_TRACES_EXPORTER", "otlp")]).settings.unwrap();
        assert_eq!(settings.traces.unwrap().url, "http://localhost:4318/v1/traces");
        assert_eq!((settings.metrics, settings.logs), (None, None));
    }

    #[test]
    fn unusable_variables_are_reported_with_a_remedy() {
        for (variables, says) in [
            (
                &[("OTEL_TRACES_EXPORTER", "zipkin")][..],
                "OTEL_TRACES_EXPORTER is `zipkin`: give otlp or none",
            ),
            (
                &[
                    ("OTEL_TRACES_EXPORTER", "otlp"),
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ],
                "OTEL_EXPORTER_OTLP_PROTOCOL is `grpc`: give http/json",
            ),
            (
                &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4317")],
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is `collector:4317`: give http:// or https://",
            ),
            (
                &[
                    ("OTEL_TRACES_EXPORTER", "otlp"),
                    ("OTEL_BSP_SCHEDULE_DELAY", "5s"),
                ],
                "OTEL_BSP_SCHEDULE_DELAY is `5s`: give a number of milliseconds",
            ),
            (
                &[
                    ("OTEL_TRACES_EXPORTER", "otlp"),
                    ("OTEL_TRACES_SAMPLER", "jaeger"),
                ],
                "OTEL_TRACES_SAMPLER is `jaeger`: give",
            ),
        ] {
            let read = check(variables);
            assert!(
                read.warnings.len() == 1 && read.warnings[0].starts_with(says),
                "{:?} does not say `{says}`",
                read.warnings
            );
        }
    }
}
