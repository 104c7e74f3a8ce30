//! Recalled knowledge without repetitions, for people and models.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::extract::local::UNTYPED_NAME;
use crate::knowledge::{Entity, Knowledge};
use crate::recall::Recalled;

impl Recalled {
    /// The recalled knowledge without repetitions. Each piece stands at the place of its best ref. Entities with the
    /// same name, in any case, become one entity with all their types and facets.
    pub fn distinct_knowledge(&self) -> Vec<Knowledge> {
        let mut distinct: Vec<Knowledge> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut others: HashSet<String> = HashSet::new();
        for found in &self.knowledge {
            let knowledge = &found.reference.knowledge;
            let Knowledge::Entity(entity) = knowledge else {
                let text = serde_json::to_string(knowledge).unwrap_or_default();
                if others.insert(text) {
                    distinct.push(knowledge.clone());
                }
                continue;
            };
            match places.entry(entity.name.to_lowercase()) {
                Entry::Vacant(place) => {
                    place.insert(distinct.len());
                    distinct.push(knowledge.clone());
                }
                Entry::Occupied(place) => {
                    if let Knowledge::Entity(known) = &mut distinct[*place.get()] {
                        merge(known, entity);
                    }
                }
            }
        }
        distinct
    }
}

/// Adds the types and facets of another entity with the same name. The type [`UNTYPED_NAME`] goes if there is another type.
fn merge(known: &mut Entity, other: &Entity) {
    for kind in &other.types {
        if !known.types.contains(kind) {
            known.types.push(kind.clone());
        }
    }
    if known.types.len() > 1 {
        known.types.retain(|kind| kind != UNTYPED_NAME);
    }
    for facet in &other.facets {
        if !known.facets.contains(facet) {
            known.facets.push(facet.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::{Facet, FacetValue, RefOrdinal, SemanticRef, Topic};
    use crate::message::TextRange;
    use crate::recall::RecalledRef;

    fn entity(name: &str, types: &[&str], address: Option<&str>) -> Knowledge {
        Knowledge::Entity(Entity {
            name: name.to_owned(),
            types: types.iter().map(|&kind| kind.to_owned()).collect(),
            facets: address
                .map(|address| Facet {
                    name: "email address".to_owned(),
                    value: Some(FacetValue::Text(address.to_owned())),
                })
                .into_iter()
                .collect(),
        })
    }

    #[test]
    fn entities_of_one_name_are_merged_and_nothing_is_repeated() {
        let bees = Knowledge::Topic(Topic {
            text: "bees".to_owned(),
        });
        let refs = [
            entity("Anna", &[UNTYPED_NAME], None),
            bees.clone(),
            entity("anna", &["person"], Some("anna@bees.example")),
            entity("Hive", &["project"], None),
            bees.clone(),
            entity("Anna", &["person", "keeper"], Some("anna@bees.example")),
        ];
        let recalled = Recalled {
            knowledge: (0..)
                .zip(refs)
                .map(|(ordinal, knowledge)| RecalledRef {
                    score: 1.0,
                    reference: SemanticRef {
                        ordinal: RefOrdinal(ordinal),
                        range: TextRange::default(),
                        knowledge,
                    },
                })
                .collect(),
            ..Recalled::default()
        };
        assert_eq!(
            recalled.distinct_knowledge(),
            [
                entity("Anna", &["person", "keeper"], Some("anna@bees.example")),
                bees,
                entity("Hive", &["project"], None),
            ]
        );
    }
}
