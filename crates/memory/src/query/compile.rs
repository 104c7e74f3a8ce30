//! Compiles a search query to term groups with scopes.
//!
//! A term of the question is searched in each role that it may have: an entity as a name and as a topic, a verb as a
//! topic. The action of the question (who did what to what) becomes the scope: only messages that mention the action
//! count.

use std::collections::HashSet;

use crate::message::TimeRange;
use crate::property::Property;
use crate::query::expression::{
    BooleanOp, Expression, Group, Node, PropertyName, PropertyTerm, SearchTerm, Select, WILDCARD, When,
};
use crate::query::search_query::{ActionTerm, EntityTerm, FacetTerm, SearchFilter, SearchQuery};

/// The weight of a match with the name or type of an entity.
pub const ENTITY_WEIGHT: f64 = 100.0;

/// The weight of any other match.
pub const TERM_WEIGHT: f64 = 10.0;

/// Values without meaning: everything is a thing.
const NOISE: [&str; 5] = ["thing", "object", "concept", "idea", "entity"];

/// Options of [`compile`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileOptions {
    /// Whether messages must contain the question's verb. Without it, the search is less strict.
    pub verb_scope: bool,
    /// The offset from UTC of the query's times, in minutes.
    pub zone_minutes: i16,
    /// Searches only messages with one of these tags; all messages if empty.
    pub tags: Vec<String>,
    /// Searches only messages of this time, unless the query names a time.
    pub time_range: Option<TimeRange>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            verb_scope: true,
            zone_minutes: 0,
            tags: Vec::new(),
            time_range: None,
        }
    }
}

/// Compiles a query to one expression for each of its search expressions.
pub fn compile(query: &SearchQuery, options: &CompileOptions) -> Vec<Expression> {
    let compiled = query.search_expressions.iter().map(|expression| Expression {
        select_expressions: expression
            .filters
            .iter()
            .map(|filter| Select {
                search_term_group: select_group(filter),
                when: when(filter, options),
            })
            .collect(),
        raw_query: Some(expression.rewritten_query.clone()),
    });
    compiled.collect()
}

// --- what to look for ---

fn select_group(filter: &SearchFilter) -> Group {
    let mut terms = Terms::default();
    if let Some(entities) = &filter.entity_search_terms {
        terms.entities(entities);
    }
    if let Some(action) = &filter.action_search_term {
        terms.action(action);
    }
    match &filter.search_terms {
        Some(texts) => {
            let searched = texts
                .iter()
                .map(|text| Node::Term(SearchTerm::new(text, TERM_WEIGHT)));
            terms.nodes.extend(searched);
        }
        // A question without names asks for an overview.
        None if terms.nodes.is_empty() => {
            terms
                .nodes
                .push(property_node(Property::Topic, WILDCARD, TERM_WEIGHT));
        }
        None => {}
    }
    Group {
        boolean_op: BooleanOp::Or,
        terms: terms.nodes,
    }
}

/// The terms of a select group while they are gathered. Each pair of term and role is added once.
#[derive(Default)]
struct Terms {
    nodes: Vec<Node>,
    added: HashSet<(String, String)>,
}

impl Terms {
    /// Adds entities: name, types and facets together, and the name and the facets' values as topics.
    fn entities(&mut self, entities: &[EntityTerm]) {
        for entity in entities {
            let mut nodes = self.entity(entity);
            let node = if nodes.len() == 1 {
                nodes.remove(0)
            } else {
                Node::Group(Group {
                    boolean_op: BooleanOp::OrMax,
                    terms: nodes,
                })
            };
            self.nodes.push(node);
        }
        for entity in entities {
            if !entity.is_name_pronoun {
                self.topic(&entity.name, ENTITY_WEIGHT);
            }
            for facet in &entity.facets {
                self.topic(&facet.facet_value, TERM_WEIGHT);
            }
        }
    }

    fn entity(&mut self, entity: &EntityTerm) -> Vec<Node> {
        let mut nodes = Vec::new();
        let mut add = |property: Property, text: &str| {
            if is_searchable(text) && !is_noise(text) {
                self.added.insert((property.name().to_owned(), text.to_owned()));
                nodes.push(property_node(property, text, ENTITY_WEIGHT));
            }
        };
        add(Property::Name, &entity.name);
        for text in &entity.types {
            add(Property::Type, text);
        }
        nodes.extend(entity.facets.iter().filter_map(facet_node));
        nodes
    }

    /// Adds an action: verbs as topics, and the names of its entities in any role.
    fn action(&mut self, action: &ActionTerm) {
        for verb in action.action_verbs.iter().flat_map(|verbs| &verbs.words) {
            self.topic(verb, TERM_WEIGHT);
        }
        for entities in [
            &action.actor_entities,
            &action.target_entities,
            &action.additional_entities,
        ] {
            let named = entities.iter().flatten().filter(|entity| !entity.is_name_pronoun);
            for entity in named {
                let facets = entity
                    .facets
                    .iter()
                    .flat_map(|facet| [&facet.facet_name, &facet.facet_value]);
                let texts = std::iter::once(&entity.name).chain(&entity.types).chain(facets);
                for text in texts.filter(|text| is_searchable(text)) {
                    self.nodes.push(Node::Term(SearchTerm::new(text, TERM_WEIGHT)));
                }
            }
        }
    }

    fn topic(&mut self, text: &str, weight: f64) {
        let key = (Property::Topic.name().to_owned(), text.to_owned());
        if is_searchable(text) && !is_noise(text) && self.added.insert(key) {
            self.nodes.push(property_node(Property::Topic, text, weight));
        }
    }
}

fn facet_node(facet: &FacetTerm) -> Option<Node> {
    let (name, value) = match (facet.facet_name.as_str(), facet.facet_value.as_str()) {
        (WILDCARD | "", WILDCARD | "") => return None,
        // The extractor decides whether a facet's name or its value mentions an interest, and mostly it is the value.
        // This is the recorded form. Searching only the names was tried and finds next to nothing.
        (name, WILDCARD | "") => (Property::FacetName.name(), name),
        (WILDCARD | "", value) => (Property::FacetValue.name(), value),
        (name, value) => (name, value),
    };
    if is_noise(value) {
        return None;
    }
    let property_name = match Property::from_name(name) {
        Some(property) => PropertyName::Known(property),
        None => PropertyName::Facet(required(name, TERM_WEIGHT)),
    };
    Some(Node::Property(PropertyTerm {
        property_name,
        property_value: required(value, TERM_WEIGHT),
    }))
}

// --- where to look ---

fn when(filter: &SearchFilter, options: &CompileOptions) -> Option<When> {
    let scope = filter.action_search_term.as_ref().and_then(|action| {
        // A question for a fact may be answered anywhere, and so may a question without an actor.
        let is_scoped = !action.is_informational && action.actor_entities.is_some();
        is_scoped.then(|| scope_group(action, options.verb_scope))
    });
    let own_range = filter.time_range.as_ref();
    let when = When {
        scope_defining_terms: scope.filter(|group| !group.terms.is_empty()),
        date_range: own_range
            .and_then(|range| range.in_zone(options.zone_minutes))
            .or(options.time_range),
        tags: options.tags.clone(),
    };
    (when != When::default()).then_some(when)
}

/// Requires subject, verb and object. For several objects, requires all of them, each with subject and verb.
fn scope_group(action: &ActionTerm, verb_scope: bool) -> Group {
    let Some(targets) = &action.target_entities else {
        // Without an object, the verb stays required: the subject alone would put all its actions in scope.
        return and(subject_and_verb(action, true));
    };
    let mut groups: Vec<Group> = targets
        .iter()
        .map(|target| {
            let mut nodes = subject_and_verb(action, verb_scope);
            let object = object_group(target);
            if !object.terms.is_empty() {
                nodes.push(Node::Group(object));
            }
            and(nodes)
        })
        .collect();
    if groups.len() == 1 {
        return groups.remove(0);
    }
    and(groups.into_iter().map(Node::Group).collect())
}

fn subject_and_verb(action: &ActionTerm, with_verb: bool) -> Vec<Node> {
    let mut nodes = Vec::new();
    let actors = action.actor_entities.iter().flatten();
    for actor in actors.filter(|actor| !actor.is_name_pronoun) {
        nodes.extend(scope_node(Property::Subject, &actor.name, TERM_WEIGHT));
    }
    if with_verb {
        for verb in action.action_verbs.iter().flat_map(|verbs| &verbs.words) {
            nodes.extend(scope_node(Property::Verb, verb, TERM_WEIGHT));
        }
    }
    nodes
}

/// Matches the object of an action as an object, as an entity of the same message, or as its topic.
fn object_group(target: &EntityTerm) -> Group {
    let mut terms = Vec::new();
    if !target.is_name_pronoun {
        terms.extend(scope_node(Property::Object, &target.name, ENTITY_WEIGHT));
        terms.extend(scope_node(Property::Name, &target.name, ENTITY_WEIGHT));
        terms.extend(scope_node(Property::Topic, &target.name, TERM_WEIGHT));
    }
    Group {
        boolean_op: BooleanOp::Or,
        terms,
    }
}

fn scope_node(property: Property, text: &str, weight: f64) -> Option<Node> {
    (is_searchable(text) && !is_noise(text)).then(|| property_node(property, text, weight))
}

fn and(terms: Vec<Node>) -> Group {
    Group {
        boolean_op: BooleanOp::And,
        terms,
    }
}

fn property_node(property: Property, text: &str, weight: f64) -> Node {
    Node::Property(PropertyTerm {
        property_name: PropertyName::Known(property),
        property_value: required(text, weight),
    })
}

fn required(text: &str, weight: f64) -> SearchTerm {
    SearchTerm {
        related_terms_required: true,
        ..SearchTerm::new(text, weight)
    }
}

fn is_searchable(text: &str) -> bool {
    !text.is_empty() && text != WILDCARD
}

fn is_noise(text: &str) -> bool {
    NOISE.contains(&text.to_lowercase().as_str())
}
