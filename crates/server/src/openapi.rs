//! One list of the routes and their descriptions.

mod links;
mod variants;

use utoipa::openapi::RefOr;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::endpoints;
use crate::rules::{BASE, RULES};

/// The name of the only security scheme.
const TOKEN: &str = "token";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Gristmill",
        description = "Submit jobs, watch them, and run them as an agent. Every operation but the probes needs a token, \
            except on a server without a trust folder, which listens on loopback only. `x-gristmill-roles` lists the roles that \
            may call an operation, and `x-gristmill-queues` the affected queues. Bodies may be compressed with zstd.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/", description = "The server that this description comes from")),
    tags(
        (name = "jobs", description = "Submitting and changing jobs, and reading their outcomes"),
        (name = "schedules", description = "Jobs that are submitted at intervals or by the calendar"),
        (name = "controls", description = "Pauses, limits, shares and aging"),
        (name = "watching", description = "Queues, workers, events and health"),
        (name = "memory", description = "The knowledge base of a server that serves one"),
        (name = "agents", description = "Operations of agents"),
    ),
    modifiers(&TokenScheme),
)]
struct Description;

struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .build();
        let components = description.components.get_or_insert_default();
        components.add_security_scheme(TOKEN, SecurityScheme::Http(scheme));
    }
}

/// The routes, separated by whether they need a token.
#[derive(Debug)]
pub struct Routes {
    /// The routes below `/api/v1`, which need a token.
    pub guarded: axum::Router<App>,
    /// The probes, which need no token.
    pub probes: axum::Router<App>,
}

/// All routes and their description, including the rules.
pub fn router() -> (Routes, utoipa::openapi::OpenApi) {
    let operations = OpenApiRouter::new()
        .routes(routes!(
            endpoints::jobs::submit::submit,
            endpoints::jobs::list::jobs
        ))
        .routes(routes!(endpoints::jobs::submit_stream::submit_stream))
        .routes(routes!(endpoints::jobs::count::count_jobs))
        .routes(routes!(endpoints::jobs::ids::job_ids))
        .routes(routes!(endpoints::jobs::details::job))
        .routes(routes!(endpoints::jobs::steps::job_steps))
        .routes(routes!(endpoints::jobs::flow_event::send_event))
        .routes(routes!(endpoints::jobs::flow_event::send_events))
        .routes(routes!(endpoints::flows::flows))
        .routes(routes!(endpoints::flows::flow_kinds))
        .routes(routes!(endpoints::jobs::tags::tag_values))
        .routes(routes!(endpoints::jobs::groups::groups))
        .routes(routes!(endpoints::jobs::change::cancel))
        .routes(routes!(endpoints::jobs::change::retry))
        .routes(routes!(endpoints::jobs::change::discard))
        .routes(routes!(endpoints::jobs::change::prioritise))
        .routes(routes!(endpoints::jobs::change::pause_jobs))
        .routes(routes!(endpoints::jobs::change::resume_jobs))
        .routes(routes!(endpoints::jobs::fork::fork_flows))
        .routes(routes!(endpoints::jobs::fork::flow_memos))
        .routes(routes!(
            endpoints::operations::start::start_operation,
            endpoints::operations::single::operations
        ))
        .routes(routes!(
            endpoints::operations::single::operation,
            endpoints::operations::single::cancel_operation
        ))
        .routes(routes!(endpoints::jobs::results::results))
        .routes(routes!(endpoints::batches::batches))
        .routes(routes!(endpoints::queues::queues))
        .routes(routes!(endpoints::backlog::backlog))
        .routes(routes!(
            endpoints::workers::register::register,
            endpoints::workers::list::workers
        ))
        .routes(routes!(endpoints::schedules::schedules))
        .routes(routes!(
            endpoints::schedules::schedule,
            endpoints::schedules::put_schedule,
            endpoints::schedules::delete_schedule
        ))
        .routes(routes!(endpoints::schedules::pause_schedule))
        .routes(routes!(endpoints::schedules::resume_schedule))
        .routes(routes!(endpoints::schedules::trigger_schedule))
        .routes(routes!(
            endpoints::controls::controls,
            endpoints::controls::put_controls
        ))
        .routes(routes!(endpoints::controls::lift_controls))
        .routes(routes!(endpoints::runs::runs))
        .routes(routes!(endpoints::stats::stats))
        .routes(routes!(endpoints::memory::memory))
        .routes(routes!(endpoints::memory::recall))
        .routes(routes!(endpoints::history::history))
        .routes(routes!(endpoints::events::events))
        .routes(routes!(endpoints::logs::logs))
        .routes(routes!(endpoints::metrics::metrics))
        .routes(routes!(endpoints::health::health))
        .routes(routes!(endpoints::ready::ready))
        .routes(routes!(endpoints::openapi::openapi))
        .routes(routes!(endpoints::workers::exchange::exchange))
        .routes(routes!(endpoints::workers::heartbeat::heartbeat))
        .routes(routes!(endpoints::workers::output::put_output))
        .routes(routes!(endpoints::workers::children::children))
        .routes(routes!(endpoints::workers::questions::step))
        .routes(routes!(endpoints::workers::questions::prerequisites))
        .routes(routes!(endpoints::workers::leave::leave))
        .routes(routes!(endpoints::workers::drain::drain_worker))
        .routes(routes!(endpoints::workers::claims::claim))
        .routes(routes!(endpoints::workers::reports::report));
    let probes = OpenApiRouter::new()
        .routes(routes!(endpoints::probes::healthz))
        .routes(routes!(endpoints::probes::readyz));
    let (probes, described_probes) = probes.split_for_parts();
    let (guarded, mut description) = OpenApiRouter::with_openapi(Description::openapi())
        .nest(BASE, operations)
        .split_for_parts();
    describe_rules(&mut description);
    links::add(&mut description);
    describe_parameters(&mut description);
    variants::name_all(&mut description);
    description.merge(described_probes);
    (Routes { guarded, probes }, description)
}

/// Describes parameters as present or absent, never as `null`.
fn describe_parameters(description: &mut utoipa::openapi::OpenApi) {
    let items = description.paths.paths.values_mut();
    let parameters = items
        .flat_map(links::operations)
        .flat_map(|operation| operation.parameters.iter_mut().flatten());
    for parameter in parameters {
        if let RefOr::T(parameter) = parameter
            && let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
            && let SchemaType::Array(types) = &object.schema_type
            && let [only, Type::Null] | [Type::Null, only] = &types[..]
        {
            object.schema_type = SchemaType::Type(only.clone());
        }
    }
}

/// Writes each rule to its operation.
fn describe_rules(description: &mut utoipa::openapi::OpenApi) {
    for rule in RULES {
        let path = format!("{BASE}{}", rule.path);
        let Some(item) = description.paths.paths.get_mut(&path) else {
            continue;
        };
        let operation: &mut Option<Operation> = match rule.method {
            "GET" => &mut item.get,
            "POST" => &mut item.post,
            "PUT" => &mut item.put,
            _ => &mut item.delete,
        };
        if let Some(operation) = operation {
            let roles: Vec<&str> = rule.roles.iter().map(|role| role.name()).collect();
            operation.security = Some(vec![SecurityRequirement::new::<_, [String; 0], String>(
                TOKEN,
                [],
            )]);
            let rules = Extensions::builder()
                .add("x-gristmill-roles", roles)
                .add("x-gristmill-queues", rule.queues.name())
                .build();
            operation.extensions.get_or_insert_default().merge(rules);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Client generators name the type of a body after its schema, and some cannot make a type for a nullable parameter.
    #[test]
    fn bodies_have_names_and_parameters_are_not_null() {
        let description = serde_json::to_value(router().1).unwrap();
        let paths = description["paths"].as_object().unwrap();
        let operations = paths.values().flat_map(|item| item.as_object().unwrap().values());
        let (mut bodies, mut parameters) = (0, 0);
        for operation in operations {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(parameter["schema"]["type"].is_string(), "{parameter}");
                parameters += 1;
            }
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert!(body.is_null() || body["$ref"].is_string(), "{body}");
            bodies += usize::from(body.is_object());
        }
        assert!(bodies > 10 && parameters > 30, "{bodies} {parameters}");
        let tags = description["tags"].as_array().unwrap();
        for operation in paths.values().flat_map(|item| item.as_object().unwrap().values()) {
            let is_known = tags.iter().any(|tag| tag["name"] == operation["tags"][0]);
            assert!(is_known, "{operation}");
        }
    }

    #[test]
    fn every_operation_has_a_rule_and_every_rule_an_operation() {
        let description = serde_json::to_value(router().1).unwrap();
        let mut described = BTreeSet::new();
        for (path, item) in description["paths"].as_object().unwrap() {
            if ["/healthz", "/readyz"].contains(&path.as_str()) {
                assert_eq!(item["get"]["security"], serde_json::json!([{}]));
                continue;
            }
            for (method, operation) in item.as_object().unwrap() {
                assert!(operation["x-gristmill-roles"].is_array(), "{method} {path}");
                described.insert((method.to_uppercase(), path.strip_prefix(BASE).unwrap().to_owned()));
            }
        }
        let ruled: BTreeSet<_> = RULES
            .iter()
            .map(|rule| (rule.method.to_owned(), rule.path.to_owned()))
            .collect();
        assert_eq!(described, ruled);
    }
}
