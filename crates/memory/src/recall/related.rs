//! Related terms: terms that may stand for a search term.

use std::collections::{HashMap, HashSet};

use crate::embed::Embedder;
use crate::error::MemoryError;
use crate::limits::RELATED_TERMS_MAX;
use crate::query::compile::TERM_WEIGHT;
use crate::query::expression::{BooleanOp, Expression, Group, SearchTerm, Select, Term};
use crate::store::{KnowledgeStore, RelatedTerm};

/// A related term with at least this weight counts as much as the term itself.
const SAME_WEIGHT_MIN: f64 = 0.95;

/// The source of related terms.
#[derive(Debug, Clone, Copy)]
pub enum Relations<'a> {
    /// The store: a term's aliases, or else terms with a similar spelling.
    Stored,
    /// The store. A term without aliases also gets terms with a near vector.
    Embedded(&'a dyn Embedder),
    /// A recorded query with the related terms from its embeddings. The store gives the related terms of other terms.
    Recorded(&'a RecordedRelations),
    /// None: terms have no related terms.
    None,
}

impl<'a> Relations<'a> {
    /// Replaces an embedder by the store if there are no vectors.
    ///
    /// # Errors
    ///
    /// [`MemoryError::OtherEmbedder`] if another embedder made the vectors, and errors of the store.
    pub(super) async fn fitting(&self, store: &dyn KnowledgeStore) -> Result<Relations<'a>, MemoryError> {
        let Relations::Embedded(embedder) = self else {
            return Ok(*self);
        };
        match store.embedder().await? {
            None => Ok(Relations::Stored),
            Some(stored) => stored.check(&embedder.identity()).map(|()| *self),
        }
    }
}

/// The related terms of a recorded query, by the place and the text of their search terms.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedRelations {
    by_term: HashMap<(Place, String), Vec<Term>>,
}

/// The place of a term in a query. Where several terms of a group had the same related term, the recording gave it to
/// one of them, so related terms differ by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Required,
    Free,
    Scope,
}

impl RecordedRelations {
    /// Gathers the related terms of recorded compiled expressions.
    pub fn of(expressions: &[Expression]) -> RecordedRelations {
        let mut relations = RecordedRelations::default();
        for select in expressions
            .iter()
            .flat_map(|expression| &expression.select_expressions)
        {
            relations.add(&select.search_term_group, false);
            if let Some(scope) = select
                .when
                .as_ref()
                .and_then(|when| when.scope_defining_terms.as_ref())
            {
                relations.add(scope, true);
            }
        }
        relations
    }

    fn add(&mut self, group: &Group, is_scope: bool) {
        group.for_each_term(&mut |term| {
            let key = (place(term, is_scope), term.term.text.to_lowercase());
            self.by_term.entry(key).or_insert_with(|| term.related().to_vec());
        });
    }

    fn get(&self, term: &SearchTerm, is_scope: bool) -> Option<&Vec<Term>> {
        self.by_term.get(&(place(term, is_scope), term.term.text.clone()))
    }
}

fn place(term: &SearchTerm, is_scope: bool) -> Place {
    match (is_scope, term.related_terms_required) {
        (true, _) => Place::Scope,
        (false, true) => Place::Required,
        (false, false) => Place::Free,
    }
}

/// Fills in the related terms of all terms in a select expression that have none yet.
///
/// # Errors
///
/// Errors of the store.
pub async fn expand(
    store: &dyn KnowledgeStore,
    select: &mut Select,
    relations: &Relations<'_>,
) -> Result<(), MemoryError> {
    let mut groups = vec![(&mut select.search_term_group, false)];
    if let Some(scope) = select
        .when
        .as_mut()
        .and_then(|when| when.scope_defining_terms.as_mut())
    {
        groups.push((scope, true));
    }
    if let Relations::Recorded(recorded) = relations {
        for (group, is_scope) in &mut groups {
            fill(group, |term| recorded.get(term, *is_scope).cloned());
        }
    }
    if !matches!(relations, Relations::None) {
        let mut missing = HashSet::new();
        for (group, _) in &groups {
            group.for_each_term(&mut |term| {
                if term.related_terms.is_none() && !term.is_wildcard() {
                    missing.insert(term.term.text.clone());
                }
            });
        }
        let embedder = match relations {
            Relations::Embedded(embedder) => Some(*embedder),
            _ => None,
        };
        let stored = look_up(store, missing.into_iter().collect(), embedder).await?;
        for (group, is_scope) in &mut groups {
            fill(group, |term| stored.get(&term.term.text).cloned());
            group.for_each_group_mut(&mut |operator, terms| {
                let is_once = !*is_scope && operator != BooleanOp::And;
                dedupe(terms, is_once);
            });
        }
    }
    Ok(())
}

/// Sets the related terms of all terms that have none yet.
fn fill(group: &mut Group, related: impl Fn(&SearchTerm) -> Option<Vec<Term>>) {
    group.for_each_group_mut(&mut |_, terms| {
        for term in terms {
            if term.related_terms.is_none() && !term.is_wildcard() {
                term.related_terms = related(term);
            }
        }
    });
}

/// Looks up aliases. A term without aliases gets terms with a similar spelling or a near meaning.
async fn look_up(
    store: &dyn KnowledgeStore,
    terms: Vec<String>,
    embedder: Option<&dyn Embedder>,
) -> Result<HashMap<String, Vec<Term>>, MemoryError> {
    let aliases = store.aliases(terms.clone()).await?;
    assert_eq!(aliases.len(), terms.len(), "the store answers each term");
    let mut found = HashMap::new();
    let mut without = Vec::new();
    for (term, aliases) in terms.into_iter().zip(aliases) {
        match aliases {
            Some(aliases) => {
                found.insert(term, aliases.into_iter().map(weighed).collect());
            }
            None => without.push(term),
        }
    }
    let mut similar = store.similar_terms(without.clone()).await?;
    assert_eq!(
        similar.len(),
        without.len(),
        "the store answers each term without aliases"
    );
    if let Some(embedder) = embedder
        && !without.is_empty()
    {
        let vectors = embedder.embed(without.clone()).await?;
        let nearest = store
            .nearest_terms(vectors, RELATED_TERMS_MAX, embedder.related_cosine_min())
            .await?;
        assert_eq!(nearest.len(), without.len(), "the store answers each vector");
        for ((similar, nearest), term) in similar.iter_mut().zip(nearest).zip(&without) {
            merge(similar, nearest, term);
        }
    }
    for (term, similar) in without.into_iter().zip(similar) {
        found.insert(term, similar.into_iter().map(weighed).collect());
    }
    Ok(found)
}

/// Adds terms with a near meaning to terms with a similar spelling. A term that is both gets the better weight.
fn merge(similar: &mut Vec<RelatedTerm>, nearest: Vec<RelatedTerm>, term: &str) {
    for near in nearest.into_iter().filter(|near| near.text != term) {
        match similar.iter_mut().find(|known| known.text == near.text) {
            Some(known) if known.weight.is_some() && known.weight < near.weight => known.weight = near.weight,
            Some(_) => {}
            None => similar.push(near),
        }
    }
    similar.sort_by(|left, right| {
        let weight = |term: &RelatedTerm| term.weight.unwrap_or(1.0);
        weight(right)
            .total_cmp(&weight(left))
            .then_with(|| left.text.cmp(&right.text))
    });
    similar.truncate(RELATED_TERMS_MAX);
}

fn weighed(related: RelatedTerm) -> Term {
    let weight = related.weight.map(|weight| match weight {
        near if near >= SAME_WEIGHT_MIN => TERM_WEIGHT,
        far => far,
    });
    Term {
        text: related.text,
        weight,
    }
}

/// Removes related terms of a group that are search terms themselves. With `is_once`, a related term of several search
/// terms stays with the nearest one only.
fn dedupe(mut terms: Vec<&mut SearchTerm>, is_once: bool) {
    let searched: HashSet<String> = terms.iter().map(|term| term.term.text.clone()).collect();
    let mut nearest: HashMap<String, Option<f64>> = HashMap::new();
    for related in terms.iter().flat_map(|term| term.related()) {
        let known = nearest.entry(related.text.clone()).or_insert(related.weight);
        if related.weight.unwrap_or(0.0) > known.unwrap_or(0.0) {
            *known = related.weight;
        }
    }
    for term in &mut terms {
        if term.related_terms_required {
            continue;
        }
        if let Some(related) = &mut term.related_terms {
            related.retain(|candidate| {
                if searched.contains(&candidate.text) {
                    return false;
                }
                // The first search term with the best weight keeps the related term.
                !is_once
                    || match nearest.get(&candidate.text) {
                        Some(weight) if *weight == candidate.weight => {
                            nearest.remove(&candidate.text);
                            true
                        }
                        _ => false,
                    }
            });
        }
    }
}
