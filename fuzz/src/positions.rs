//! Sets of positions.

use std::collections::BTreeSet;

use gristmill_model::Positions;

/// The first byte tells where the second set begins; each further byte is a position.
pub fn compute(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(read) = text.parse::<Positions>()
    {
        let again: Positions = read.to_string().parse().expect("reads its own text");
        assert_eq!(again, read);
        assert_eq!(read.is_empty(), read.first().is_none());
    }
    let Some((cut, bytes)) = data.split_first() else {
        return;
    };
    let (left, right) = bytes.split_at(bytes.len().min(usize::from(*cut)));
    let known = |bytes: &[u8]| -> BTreeSet<u32> { bytes.iter().map(|byte| u32::from(*byte)).collect() };
    let (left, right) = (known(left), known(right));
    let set = |known: &BTreeSet<u32>| -> Positions { known.iter().copied().collect() };
    let (one, other) = (set(&left), set(&right));
    let same = |positions: &Positions, expected: BTreeSet<u32>| {
        assert_eq!(positions.len() as usize, expected.len());
        assert!(positions.iter().eq(expected));
    };
    same(&one.union(&other), &left | &right);
    same(&one.intersection(&other), &left & &right);
    same(&one.difference(&other), &left - &right);
    assert_eq!(one.contains_all(&other), right.is_subset(&left));
    let picked = right
        .iter()
        .filter_map(|index| left.iter().nth(*index as usize).copied());
    let indexes: Positions = right.iter().copied().filter(|index| *index < one.len()).collect();
    same(&one.select(&indexes), picked.collect());
    let common = one.intersection(&other);
    assert_eq!(one.select(&one.indexes_of(&common)), common);
    let mut rest = one.clone();
    let taken = rest.take_first(u32::from(*cut));
    assert_eq!(
        (taken.union(&rest), taken.intersection(&rest)),
        (one, Positions::new())
    );
}
