//! The dashboard of Grafana and the alert rules of Prometheus use only metrics and labels that the server exposes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gristmill_batching::{BatchStats, EndReason};
use gristmill_server::Role;
use serde_json::{Value, json};

use crate::support::{Api, completing};

fn packaged(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The labels of each metric that a server with jobs, an agent and requests exposes.
async fn exposed() -> BTreeMap<String, BTreeSet<String>> {
    let api = Api::new().await;
    api.submit("double", json!([1, 2])).await;
    let token = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&token).await;
    let lease = api.claim(&token, worker, api.wanting(1, 1)).await;
    api.report(&token, worker, 2, completing(&lease, "0", "[2]"))
        .await;
    let mut hops = BatchStats::default();
    hops.record("submit", 2, EndReason::Drained);
    api.engine.store().record(hops).await.unwrap();
    let text = String::from_utf8(api.get("/metrics").await.body.to_vec()).unwrap();
    let mut metrics = BTreeMap::<String, BTreeSet<String>>::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let names = names_in(line);
        let [(name, labels)] = names.metrics.as_slice() else {
            panic!("not a sample: {line}");
        };
        metrics
            .entry(name.clone())
            .or_default()
            .extend(labels.iter().cloned());
    }
    metrics
}

/// The names in an expression of PromQL.
#[derive(Debug, Default, PartialEq)]
struct Names {
    /// Metrics of Gristmill, each with the labels in its braces.
    metrics: Vec<(String, Vec<String>)>,
    /// Labels by which results are grouped or matched.
    groups: Vec<String>,
}

/// The expression's words and signs, without the texts in quotes.
fn tokens(expression: &str) -> Vec<String> {
    let mut tokens = Vec::<String>::new();
    let mut characters = expression.chars().peekable();
    while let Some(first) = characters.next() {
        if first == '"' {
            while characters.next_if(|next| *next != '"').is_some() {}
            characters.next();
        } else if first.is_alphanumeric() || first == '_' || first == '$' {
            let mut word = String::from(first);
            while let Some(next) = characters.next_if(|next| next.is_alphanumeric() || *next == '_') {
                word.push(next);
            }
            tokens.push(word);
        } else if !first.is_whitespace() {
            tokens.push(first.to_string());
        }
    }
    tokens
}

/// The words of `tokens` between brackets, if they begin with the opening one.
fn bracketed(tokens: &[String], open: &str, close: &str) -> Vec<String> {
    if tokens.first().is_none_or(|token| token != open) {
        return Vec::new();
    }
    tokens[1..]
        .iter()
        .take_while(|token| *token != close)
        .cloned()
        .collect()
}

fn names_in(expression: &str) -> Names {
    let tokens = tokens(expression);
    let is_word = |token: &String| token.starts_with(|first: char| first.is_alphabetic());
    let mut names = Names::default();
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at + 1..];
        if token.starts_with("gristmill_") {
            let labels = bracketed(rest, "{", "}");
            names
                .metrics
                .push((token.clone(), labels.into_iter().filter(is_word).collect()));
        } else if ["by", "without", "on", "ignoring"].contains(&token.as_str()) {
            names
                .groups
                .extend(bracketed(rest, "(", ")").into_iter().filter(is_word));
        }
    }
    names
}

/// The expressions of the panels and of the variables, which ask `label_values(METRIC, LABEL)`.
fn dashboard_expressions(dashboard: &Value) -> Vec<String> {
    match dashboard {
        Value::Array(values) => values.iter().flat_map(dashboard_expressions).collect(),
        Value::Object(fields) => {
            let nested = fields.values().flat_map(dashboard_expressions);
            let own = ["expr", "definition"]
                .iter()
                .filter_map(|name| fields.get(*name)?.as_str());
            let own = own.map(|text| {
                let asked = text
                    .strip_prefix("label_values(")
                    .and_then(|asked| asked.split_once(','));
                asked.map_or_else(
                    || text.to_owned(),
                    |(metric, label)| format!("{metric} by ({label}"),
                )
            });
            own.chain(nested).collect()
        }
        _ => Vec::new(),
    }
}

/// The expressions of rules: each after `expr:`, or on the deeper lines below `expr: >-`.
fn rule_expressions(rules: &str) -> Vec<String> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = rules.lines().collect();
    let mut expressions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        match line.trim_start().strip_prefix("expr:").map(str::trim) {
            Some(">-") => {
                let below = lines[at + 1..]
                    .iter()
                    .take_while(|below| depth(below) > depth(line));
                expressions.push(below.copied().collect::<Vec<_>>().join(" "));
            }
            Some(expression) => expressions.push(expression.to_owned()),
            None => {}
        }
    }
    expressions
}

/// The names in an expression that the server does not expose.
fn unknown(expression: &str, metrics: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let names = names_in(expression);
    let mut unknown = Vec::new();
    // Prometheus adds the label of the scraped server.
    let mut groupable = BTreeSet::from(["instance".to_owned()]);
    for (metric, labels) in &names.metrics {
        let Some(known) = metrics.get(metric) else {
            unknown.push(metric.clone());
            continue;
        };
        groupable.extend(known.iter().cloned());
        unknown.extend(labels.iter().filter(|label| !known.contains(*label)).cloned());
    }
    unknown.extend(
        names
            .groups
            .into_iter()
            .filter(|label| !groupable.contains(label)),
    );
    unknown
}

#[tokio::test]
async fn dashboards_and_alerts_name_exposed_metrics_and_labels() {
    let metrics = exposed().await;
    let dashboard: Value = serde_json::from_str(&packaged("grafana/gristmill.json")).unwrap();
    let panels = dashboard_expressions(&dashboard);
    let rules = rule_expressions(&packaged("prometheus/gristmill.rules.yml"));
    assert!(
        panels.len() > 20 && rules.len() > 8,
        "{} and {}",
        panels.len(),
        rules.len()
    );
    for expression in panels.iter().chain(&rules) {
        let names = names_in(expression);
        assert!(!names.metrics.is_empty(), "no metric in: {expression}");
        let unknown = unknown(expression, &metrics);
        assert!(
            unknown.is_empty(),
            "the server does not expose {unknown:?}: {expression}"
        );
    }
    let shown: BTreeSet<String> = panels
        .iter()
        .flat_map(|panel| names_in(panel).metrics)
        .map(|(metric, _)| metric)
        .collect();
    let hidden: Vec<&String> = metrics
        .keys()
        .filter(|metric| !metric.ends_with("_sum") && !metric.ends_with("_count"))
        .filter(|metric| !shown.contains(*metric))
        .collect();
    assert!(hidden.is_empty(), "no panel shows {hidden:?}");
}

#[test]
fn names_that_no_server_exposes_are_found() {
    let metrics = BTreeMap::from([("gristmill_a".to_owned(), BTreeSet::from(["kind".to_owned()]))]);
    let cases: [(&str, &[&str]); 4] = [
        (r#"sum by (kind) (rate(gristmill_a{kind="by (x)"}[5m]))"#, &[]),
        (r#"gristmill_a{kind=~"$kind",queue!="b"}"#, &["queue"]),
        ("sum by (group) (gristmill_a)", &["group"]),
        (
            "gristmill_a / on(kind, host) gristmill_b",
            &["gristmill_b", "host"],
        ),
    ];
    for (expression, expected) in cases {
        assert_eq!(unknown(expression, &metrics), expected, "{expression}");
    }
    let rules = "- alert: A\n  expr: a > 1\n- alert: B\n  expr: >-\n    b\n    and c\n  for: 1m\n";
    assert_eq!(rule_expressions(rules), ["a > 1", "    b     and c"]);
}
