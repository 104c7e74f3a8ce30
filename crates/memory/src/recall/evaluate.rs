//! Evaluates term groups over postings.

use std::collections::{HashMap, HashSet};

use crate::error::MemoryError;
use crate::limits::{GROUP_DEPTH_MAX, QUERY_TERMS_MAX};
use crate::property::Property;
use crate::query::compile::{ENTITY_WEIGHT, TERM_WEIGHT};
use crate::query::expression::{
    BooleanOp, Group, Node, PropertyName, PropertyTerm, SearchTerm, Select, Term, When,
};
use crate::recall::matches::Matches;
use crate::store::{Columns, Postings};

/// The factor of a term that is the name or type of an entity, beside a term in any other role.
const ENTITY_BOOST: f64 = ENTITY_WEIGHT / TERM_WEIGHT;

/// Refs that are looked up before the first of them is added. Their places stay in the processor's cache until then.
const LOOKED_UP_AT_ONCE: usize = 1_024;

/// Lists all texts that a select expression looks up, each once, including related terms and tags.
pub fn texts(select: &Select) -> Vec<String> {
    let mut texts = Vec::new();
    let mut seen = HashSet::new();
    let mut add = |text: &str| {
        if seen.insert(text.to_owned()) {
            texts.push(text.to_owned());
        }
    };
    let mut visit = |term: &SearchTerm| {
        add(&term.term.text);
        for related in term.related() {
            add(&related.text);
        }
    };
    select.search_term_group.for_each_term(&mut visit);
    if let Some(when) = &select.when {
        if let Some(group) = &when.scope_defining_terms {
            group.for_each_term(&mut visit);
        }
        when.tags.iter().for_each(|tag| add(&tag.to_lowercase()));
    }
    texts
}

/// Finds the refs that a select expression matches.
///
/// `postings` has one entry for each of `texts`, in the same order.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the expression exceeds a limit.
pub fn evaluate(
    select: &Select,
    columns: &Columns,
    texts: Vec<String>,
    postings: &[Postings],
) -> Result<Matches, MemoryError> {
    if texts.len() > QUERY_TERMS_MAX {
        return Err(MemoryError::invalid(
            "the search query",
            format!(
                "it has {} terms with their related terms; at most {QUERY_TERMS_MAX} are searched",
                texts.len()
            ),
        ));
    }
    assert_eq!(
        texts.len(),
        postings.len(),
        "the store returns postings for each text"
    );
    let postings = texts.into_iter().zip(postings).collect();
    let mut evaluation = Evaluation {
        columns,
        postings,
        scopes: Vec::new(),
        terms_seen: HashSet::new(),
        properties_seen: HashSet::new(),
    };
    if let Some(when) = &select.when {
        evaluation.scopes = evaluation.scopes_of(when)?;
    }
    evaluation.group(&select.search_term_group, 0)
}

/// Says for each message whether it is in scope.
struct Scope(Vec<bool>);

struct Evaluation<'a> {
    columns: &'a Columns,
    postings: HashMap<String, &'a Postings>,
    scopes: Vec<Scope>,
    /// Terms that this group has looked up already. A term that is also a related term of another counts once.
    terms_seen: HashSet<&'a str>,
    properties_seen: HashSet<(Property, &'a str)>,
}

impl<'a> Evaluation<'a> {
    // --- refs ---

    fn group(&mut self, group: &'a Group, depth: usize) -> Result<Matches, MemoryError> {
        check_depth(depth)?;
        self.forget_seen();
        let mut all: Option<Matches> = None;
        for node in &group.terms {
            let found = match node {
                Node::Group(inner) => self.group(inner, depth + 1)?,
                leaf => self.leaf(leaf),
            };
            match (&mut all, group.boolean_op) {
                (_, BooleanOp::And) if found.is_empty() => return Ok(self.no_refs()),
                (None, _) => all = Some(found),
                (Some(all), BooleanOp::And) => all.intersect(&found),
                (Some(all), BooleanOp::Or | BooleanOp::OrMax) => all.unite(found),
            }
        }
        let mut all = all.unwrap_or_else(|| self.no_refs());
        finish(&mut all, group);
        Ok(all)
    }

    fn leaf(&mut self, node: &'a Node) -> Matches {
        let mut matches = self.no_refs();
        match node {
            Node::Group(_) => {}
            Node::Term(term) => self.any_role(term, &mut matches),
            Node::Property(PropertyTerm {
                property_name,
                property_value,
            }) => match property_name {
                PropertyName::Known(Property::Topic) => self.topic(property_value, &mut matches),
                PropertyName::Known(property) => self.role(*property, property_value, &mut matches),
                PropertyName::Facet(name) => {
                    self.role(Property::FacetName, name, &mut matches);
                    if !property_value.is_wildcard() {
                        self.role(Property::FacetValue, property_value, &mut matches);
                    }
                }
            },
        }
        matches
    }

    /// Matches a term in any role. It counts more in entities that have the term, or a related one, as name or type.
    fn any_role(&mut self, search: &'a SearchTerm, matches: &mut Matches) {
        let boosted = self.named(search);
        self.each_new_term(search, |evaluation, text, weight, is_exact| {
            let Some(postings) = evaluation.postings.get(text).copied() else {
                return;
            };
            let weight_of = |ordinal| {
                if boosted.contains(ordinal) {
                    ENTITY_BOOST * weight
                } else {
                    weight
                }
            };
            for (_, refs) in &postings.by_property {
                evaluation.add_all(refs, weight_of, is_exact, matches);
            }
        });
    }

    fn topic(&mut self, search: &'a SearchTerm, matches: &mut Matches) {
        if search.is_wildcard() {
            let topics = (0..self.columns.ref_end()).filter(|&ordinal| {
                self.columns.kind(ordinal) == Some(crate::knowledge::KnowledgeKind::Topic)
            });
            let weight = search.term.weight.unwrap_or(1.0);
            for ordinal in topics.filter(|&ordinal| self.is_in_scope(ordinal)) {
                matches.add_exact(ordinal, weight);
            }
            return;
        }
        self.each_new_term(search, |evaluation, text, weight, is_exact| {
            evaluation.add_of(Property::Topic, text, weight, is_exact, matches);
        });
    }

    fn role(&mut self, property: Property, search: &'a SearchTerm, matches: &mut Matches) {
        for (text, weight, is_exact) in terms_of(search) {
            if !self.properties_seen.contains(&(property, text))
                && self.add_of(property, text, weight, is_exact, matches)
            {
                self.properties_seen.insert((property, text));
            }
        }
    }

    /// Adds the refs of a term in one role. Returns whether there were any.
    fn add_of(
        &self,
        property: Property,
        text: &str,
        weight: f64,
        is_exact: bool,
        matches: &mut Matches,
    ) -> bool {
        let refs = self
            .postings
            .get(text)
            .map_or(&[][..], |postings| postings.of(property));
        self.add_all(refs, |_| weight, is_exact, matches)
    }

    /// Adds those of the refs that still exist and are in scope. Returns whether there were any.
    fn add_all(
        &self,
        refs: &[u32],
        weight_of: impl Fn(u32) -> f64,
        is_exact: bool,
        matches: &mut Matches,
    ) -> bool {
        let mut is_found = false;
        let mut counting = Vec::with_capacity(refs.len().min(LOOKED_UP_AT_ONCE));
        for refs in refs.chunks(LOOKED_UP_AT_ONCE) {
            counting.clear();
            let counts = |ordinal: &u32| self.columns.kind(*ordinal).is_some() && self.is_in_scope(*ordinal);
            counting.extend(refs.iter().copied().filter(counts));
            matches.fetch(&counting);
            for &ordinal in &counting {
                if is_exact {
                    matches.add_exact(ordinal, weight_of(ordinal));
                } else {
                    matches.add_related(ordinal, weight_of(ordinal));
                }
            }
            is_found |= !counting.is_empty();
        }
        is_found
    }

    /// Calls `look_up` for the term and its related terms, except for terms that this group has looked up.
    fn each_new_term(&mut self, search: &'a SearchTerm, mut look_up: impl FnMut(&Self, &'a str, f64, bool)) {
        for (text, weight, is_exact) in terms_of(search) {
            if self.terms_seen.insert(text) {
                look_up(self, text, weight, is_exact);
            }
        }
    }

    /// Finds the refs of entities that have the term, or a related one, as name or type.
    fn named(&self, search: &SearchTerm) -> BitSet {
        let mut named = BitSet::new(self.columns.ref_end());
        for (text, _, _) in terms_of(search) {
            if let Some(postings) = self.postings.get(text) {
                for property in [Property::Name, Property::Type] {
                    postings
                        .of(property)
                        .iter()
                        .for_each(|&ordinal| named.insert(ordinal));
                }
            }
        }
        named
    }

    fn no_refs(&self) -> Matches {
        Matches::new(self.columns.ref_end())
    }

    fn is_in_scope(&self, ordinal: u32) -> bool {
        self.scopes.is_empty() || {
            let message = self.columns.message(ordinal) as usize;
            self.scopes.iter().all(|scope| scope.0[message])
        }
    }

    fn forget_seen(&mut self) {
        self.terms_seen.clear();
        self.properties_seen.clear();
    }

    // --- scopes ---

    fn scopes_of(&mut self, when: &'a When) -> Result<Vec<Scope>, MemoryError> {
        let mut scopes = Vec::new();
        if let Some(range) = when.date_range {
            let is_in = |message| self.columns.time(message).is_some_and(|at| range.contains(at));
            scopes.push(Scope((0..self.columns.message_end()).map(is_in).collect()));
        }
        if let Some(group) = &when.scope_defining_terms
            && !group.terms.is_empty()
        {
            let matches = self.message_group(group, 0)?;
            scopes.push(self.scope(matches.iter().map(|found| found.ordinal)));
        }
        if !when.tags.is_empty() {
            let tags = when.tags.iter().map(|tag| tag.to_lowercase());
            let refs = tags
                .filter_map(|tag| self.postings.get(&tag).copied())
                .flat_map(|postings| postings.of(Property::Tag))
                .filter(|&&ordinal| self.columns.kind(ordinal).is_some());
            scopes.push(self.scope(refs.map(|&ordinal| self.columns.message(ordinal))));
        }
        Ok(scopes)
    }

    fn scope(&self, messages: impl Iterator<Item = u32>) -> Scope {
        let mut scope = vec![false; self.columns.message_end() as usize];
        messages.for_each(|message| scope[message as usize] = true);
        Scope(scope)
    }

    /// Finds the messages that a group matches, through any of their refs.
    fn message_group(&mut self, group: &'a Group, depth: usize) -> Result<Matches, MemoryError> {
        check_depth(depth)?;
        self.forget_seen();
        let mut all: Option<Matches> = None;
        for node in &group.terms {
            let found = match node {
                Node::Group(inner) => self.message_group(inner, depth + 1)?,
                leaf => {
                    let refs = self.leaf(leaf);
                    let mut messages = self.no_messages();
                    for found in refs.iter() {
                        messages.add_best(self.columns.message(found.ordinal), found.score);
                    }
                    messages
                }
            };
            match (&mut all, group.boolean_op) {
                (_, BooleanOp::And) if found.is_empty() => return Ok(self.no_messages()),
                (None, _) => all = Some(found),
                (Some(all), BooleanOp::And) => all.intersect(&found),
                (Some(all), BooleanOp::Or | BooleanOp::OrMax) => all.unite(found),
            }
        }
        let mut all = all.unwrap_or_else(|| self.no_messages());
        finish(&mut all, group);
        Ok(all)
    }

    fn no_messages(&self) -> Matches {
        Matches::new(self.columns.message_end())
    }
}

/// Adds up the scores, and keeps the matches with enough hits for the group's operator.
fn finish(matches: &mut Matches, group: &Group) {
    matches.total();
    let hits_min = match group.boolean_op {
        BooleanOp::Or => return,
        BooleanOp::And => group.terms.len() as u32,
        BooleanOp::OrMax => matches.hits_max(),
    };
    if hits_min > 1 {
        matches.retain(|found| found.hits >= hits_min);
    }
}

/// Lists the term and its related terms, each with the weight of a match, and whether it is the term itself.
fn terms_of(search: &SearchTerm) -> impl Iterator<Item = (&str, f64, bool)> {
    let own = search.term.weight.unwrap_or(1.0);
    let related = search
        .related()
        .iter()
        .map(move |Term { text, weight }| (text.as_str(), weight.unwrap_or(own), false));
    std::iter::once((search.term.text.as_str(), own, true)).chain(related)
}

fn check_depth(depth: usize) -> Result<(), MemoryError> {
    if depth < GROUP_DEPTH_MAX {
        return Ok(());
    }
    Err(MemoryError::invalid(
        "the search query",
        format!("its groups are nested more than {GROUP_DEPTH_MAX} deep"),
    ))
}

/// A set of ordinals.
struct BitSet(Vec<u64>);

impl BitSet {
    fn new(end: u32) -> BitSet {
        BitSet(vec![0; (end as usize).div_ceil(64)])
    }

    fn insert(&mut self, ordinal: u32) {
        self.0[ordinal as usize / 64] |= 1 << (ordinal % 64);
    }

    fn contains(&self, ordinal: u32) -> bool {
        self.0[ordinal as usize / 64] & (1 << (ordinal % 64)) != 0
    }
}
