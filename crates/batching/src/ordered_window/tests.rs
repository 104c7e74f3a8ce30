use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn drain<T>(window: &mut OrderedWindow<T>) -> Vec<(u64, T)> {
    std::iter::from_fn(|| window.pop_ready()).collect()
}

#[test]
fn the_next_item_is_accepted_with_any_weight() {
    let mut window = OrderedWindow::new(4, 10);
    window.try_insert(1, 'b', 10).unwrap();
    assert!(window.try_insert(2, 'c', 1).unwrap_err().is_full());
    window.try_insert(0, 'a', usize::MAX).unwrap();
    assert_eq!(window.weight(), usize::MAX as u128 + 10);
    assert_eq!(drain(&mut window), [(0, 'a'), (1, 'b')]);
    assert_eq!(window.weight(), 0);
}

#[test]
fn a_refused_item_comes_back_and_changes_nothing() {
    let mut window = OrderedWindow::new(2, 10);
    let error = window.try_insert(2, "c".to_owned(), 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no space in the window for item 2 while item 0 is still to leave"
    );
    assert_eq!(error.into_item(), "c");
    let error = window.try_insert(u64::MAX, "z".to_owned(), 1).unwrap_err();
    assert!(error.is_full());
    assert!(window.is_empty());
}

#[test]
fn an_index_may_arrive_only_once() {
    let mut window = OrderedWindow::new(4, 10);
    window.try_insert(1, 'b', 1).unwrap();
    let error = window.try_insert(1, 'B', 1).unwrap_err();
    assert_eq!(error, InsertError::Duplicate { index: 1, item: 'B' });
    window.try_insert(0, 'a', 1).unwrap();
    assert_eq!(drain(&mut window), [(0, 'a'), (1, 'b')]);
    let error = window.try_insert(0, 'A', 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "item 0 has arrived before; each index may be inserted once"
    );
    assert!(!error.is_full());
}

#[test]
fn gaps_name_the_missing_items() {
    let mut window = OrderedWindow::starting_at(10, 100, 100);
    assert_eq!(window.gaps().count(), 0);
    for index in [12, 13, 17] {
        window.try_insert(index, (), 1).unwrap();
    }
    assert_eq!(window.gaps().collect::<Vec<_>>(), [10..12, 14..17]);
    window.try_insert(10, (), 1).unwrap();
    assert_eq!(window.gaps().collect::<Vec<_>>(), [11..12, 14..17]);
    assert_eq!(drain(&mut window).len(), 1);
    assert_eq!(window.next_index(), 11);
}

proptest! {
    /// Compares the window with a map: the same answers, order and bounds, for any arrivals.
    #[test]
    fn behaves_like_a_bounded_sorted_map(
        items_max in 1_usize..20,
        weight_max in 0_usize..50,
        steps in prop::collection::vec((0_u64..40, 0_usize..20, 0_usize..3), 1..200),
    ) {
        let mut window = OrderedWindow::new(items_max, weight_max);
        let mut model: BTreeMap<u64, usize> = BTreeMap::new();
        let mut next_index = 0;
        for (index, weight, pops) in steps {
            let held: usize = model.values().sum();
            let is_duplicate = index < next_index || model.contains_key(&index);
            let is_full = index >= next_index + items_max as u64
                || (index != next_index && held + weight > weight_max);
            match window.try_insert(index, weight, weight) {
                Ok(()) => {
                    prop_assert!(!is_duplicate && !is_full);
                    model.insert(index, weight);
                }
                Err(InsertError::Duplicate { index: refused, item }) => {
                    prop_assert!(is_duplicate);
                    prop_assert_eq!((refused, item), (index, weight));
                }
                Err(InsertError::Full { item, .. }) => {
                    prop_assert!(is_full && !is_duplicate);
                    prop_assert_eq!(item, weight);
                }
            }
            for _ in 0..pops {
                let expected = model.remove_entry(&next_index);
                next_index += u64::from(expected.is_some());
                prop_assert_eq!(window.pop_ready(), expected);
            }
            prop_assert_eq!(window.len(), model.len());
            prop_assert!(window.len() <= items_max);
            prop_assert_eq!(window.weight(), model.values().sum::<usize>() as u128);
            let missing: Vec<u64> = window.gaps().flatten().collect();
            let last = model.keys().next_back().copied().unwrap_or(next_index);
            let expected: Vec<u64> = (next_index..last).filter(|index| !model.contains_key(index)).collect();
            prop_assert_eq!(missing, expected);
        }
    }

    /// A caller that retries refused items after each pop gets every permutation through in order, and never gets stuck.
    #[test]
    fn every_permutation_leaves_in_order(
        order in Just((0_u64..60).collect::<Vec<_>>()).prop_shuffle(),
        items_max in 1_usize..8,
        weight_max in 0_usize..8,
        weight in 0_usize..4,
    ) {
        let mut window = OrderedWindow::new(items_max, weight_max);
        let mut waiting = order;
        let mut left = Vec::new();
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting.retain(|&index| window.try_insert(index, index, weight).is_err());
            left.extend(drain(&mut window));
            prop_assert!(waiting.len() < before, "stuck before item {}", window.next_index());
        }
        let expected: Vec<_> = (0..60).map(|index| (index, index)).collect();
        prop_assert_eq!(left, expected);
    }
}
