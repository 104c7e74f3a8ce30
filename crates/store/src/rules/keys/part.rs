//! Parts of a batch whose jobs have keys.

use gristmill_model::{
    KeyedBatch, NewBatch, PackedArray, PackedBuilder, PackedError, Positions, Rejected, Tag,
};

use crate::StoreError;
use crate::rules::pack::indexes_of;

/// Selects some jobs of a batch, with their keys. Rejected jobs have no keys.
pub fn part_of(batch: &KeyedBatch, jobs: &Positions) -> Result<KeyedBatch, StoreError> {
    let NewBatch {
        payloads, rejected, ..
    } = &batch.batch;
    assert!(
        rejected.iter().all(|rejected| jobs.contains(rejected.position)),
        "rejected jobs have no keys, so they are always stored"
    );
    let kept = |rejected: &Rejected| Rejected {
        position: place_of(jobs, rejected.position),
        ..rejected.clone()
    };
    let rejected: Vec<Rejected> = rejected.iter().map(kept).collect();
    let mut keys = batch.keys.select(jobs);
    if !rejected.is_empty() {
        let dead: Positions = rejected.iter().map(|rejected| rejected.position).collect();
        keys = without(&keys, &dead)?;
    }
    assert_eq!(keys.count(), jobs.len(), "each stored job has a key or null");
    Ok(KeyedBatch {
        batch: NewBatch {
            payloads: payloads.select(jobs),
            rejected,
            tags: tags_of(&batch.batch.tags, jobs),
            ..batch.batch.clone()
        },
        keys,
    })
}

/// Selects the tags of the remaining jobs of a batch.
pub(crate) fn tags_of(tags: &[Tag], left: &Positions) -> Vec<Tag> {
    let tags = tags.iter().filter_map(|tag| {
        let positions = match &tag.positions {
            None => None,
            Some(positions) => match indexes_of(positions, left) {
                positions if positions.is_empty() => return None,
                positions => Some(positions),
            },
        };
        Some(Tag {
            positions,
            ..tag.clone()
        })
    });
    tags.collect()
}

/// Number of `positions` before `position`.
pub(crate) fn place_of(positions: &Positions, position: u32) -> u32 {
    let before = positions
        .ranges()
        .iter()
        .take_while(|range| range.start < position);
    before.map(|range| range.end.min(position) - range.start).sum()
}

/// Removes the keys at some positions.
fn without(keys: &PackedArray, positions: &Positions) -> Result<PackedArray, PackedError> {
    let mut builder = PackedBuilder::new();
    for (key, index) in keys.items().zip(0..) {
        builder.push(if positions.contains(index) { "null" } else { key })?;
    }
    Ok(builder.finish())
}
