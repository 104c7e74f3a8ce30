//! A window in which items arrive in any order and leave in order.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

/// Puts items numbered from 0 back into order. They arrive in any order and leave in order. Items that wait for earlier
/// ones are held within bounds.
///
/// The window reaches over `items_max` indexes from the next item to leave, and holds at most `weight_max`. The next
/// item to leave is always accepted, whatever it weighs, so the window never locks up. A caller whose item is refused
/// takes the ready items out ([`pop_ready`](OrderedWindow::pop_ready)), waits for earlier items, and tries again.
///
/// ```
/// use gristmill_batching::OrderedWindow;
///
/// let mut window = OrderedWindow::new(100, 1 << 20);
/// window.try_insert(1, "second", 6).unwrap();
/// assert_eq!(window.pop_ready(), None);
/// window.try_insert(0, "first", 5).unwrap();
/// assert_eq!(window.pop_ready(), Some((0, "first")));
/// assert_eq!(window.pop_ready(), Some((1, "second")));
/// ```
#[derive(Debug, Clone)]
pub struct OrderedWindow<T> {
    items_max: usize,
    weight_max: usize,
    next_index: u64,
    /// The items and their weights, from index `next_index` on; `None` for an item that has not arrived. The last slot
    /// is never empty.
    slots: VecDeque<Option<(T, usize)>>,
    items: usize,
    /// The weight of all items. It has 128 bits, because the next item to leave may have any weight on top of the others.
    weight: u128,
}

/// The reason why an item was not inserted. The item is returned.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InsertError<T> {
    /// The item is beyond the window, or too heavy for the remaining room.
    #[error("no space in the window for item {index} while item {next_index} is still to leave")]
    Full {
        /// The index of the refused item.
        index: u64,
        /// The index of the next item to leave.
        next_index: u64,
        /// The refused item.
        item: T,
    },
    /// An item with this index is in the window, or has left it.
    #[error("item {index} has arrived before; each index may be inserted once")]
    Duplicate {
        /// The index of both items.
        index: u64,
        /// The refused item.
        item: T,
    },
}

impl<T> InsertError<T> {
    /// Returns the refused item.
    pub fn into_item(self) -> T {
        match self {
            InsertError::Full { item, .. } | InsertError::Duplicate { item, .. } => item,
        }
    }

    /// Whether the insertion may be tried again later.
    pub fn is_full(&self) -> bool {
        matches!(self, InsertError::Full { .. })
    }
}

/// Prints the error without the item, which may not be printable.
impl<T> fmt::Debug for InsertError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InsertError::Full {
                index, next_index, ..
            } => formatter
                .debug_struct("Full")
                .field("index", index)
                .field("next_index", next_index)
                .finish_non_exhaustive(),
            InsertError::Duplicate { index, .. } => formatter
                .debug_struct("Duplicate")
                .field("index", index)
                .finish_non_exhaustive(),
        }
    }
}

impl<T> OrderedWindow<T> {
    /// Makes an empty window that expects item 0. `items_max` bounds the distance of an item to the next one to leave,
    /// and so the number of held items. `weight_max` (usually bytes) bounds their total weight, except that the next
    /// item to leave may exceed it.
    ///
    /// # Panics
    ///
    /// If `items_max` is 0: nothing could ever be inserted.
    pub fn new(items_max: usize, weight_max: usize) -> OrderedWindow<T> {
        OrderedWindow::starting_at(0, items_max, weight_max)
    }

    /// Makes an empty window that expects item `next_index`, for work that resumes there.
    ///
    /// # Panics
    ///
    /// If `items_max` is 0.
    pub fn starting_at(next_index: u64, items_max: usize, weight_max: usize) -> OrderedWindow<T> {
        assert!(
            items_max > 0,
            "the items_max of an OrderedWindow must be at least 1"
        );
        OrderedWindow {
            items_max,
            weight_max,
            next_index,
            slots: VecDeque::new(),
            items: 0,
            weight: 0,
        }
    }

    /// Inserts `item` of `weight` at `index`.
    ///
    /// # Errors
    ///
    /// [`InsertError::Full`] if the item has to wait outside, [`InsertError::Duplicate`] if the index has occurred
    /// before. Both return the item, and leave the window unchanged.
    pub fn try_insert(&mut self, index: u64, item: T, weight: usize) -> Result<(), InsertError<T>> {
        let next_index = self.next_index;
        let Some(ahead) = index.checked_sub(next_index) else {
            return Err(InsertError::Duplicate { index, item });
        };
        let Some(position) = usize::try_from(ahead)
            .ok()
            .filter(|&position| position < self.items_max)
        else {
            return Err(InsertError::Full {
                index,
                next_index,
                item,
            });
        };
        if self.slots.get(position).is_some_and(Option::is_some) {
            return Err(InsertError::Duplicate { index, item });
        }
        if position > 0 && self.weight + weight as u128 > self.weight_max as u128 {
            return Err(InsertError::Full {
                index,
                next_index,
                item,
            });
        }
        if position >= self.slots.len() {
            self.slots.resize_with(position + 1, || None);
        }
        assert!(self.slots[position].is_none(), "an item keeps its slot");
        self.slots[position] = Some((item, weight));
        self.items += 1;
        self.weight += weight as u128;
        assert!(
            self.slots.len() <= self.items_max,
            "the window keeps to its limit of items"
        );
        self.check();
        Ok(())
    }

    /// Checks the counts against the slots.
    fn check(&self) {
        assert!(self.items <= self.slots.len(), "each item has a slot");
        assert!(
            self.items > 0 || (self.weight == 0 && self.slots.is_empty()),
            "an empty window weighs nothing"
        );
        assert!(
            self.slots.back().is_none_or(Option::is_some),
            "the last slot holds an item"
        );
    }

    /// Takes the next item in order, with its index, if it has arrived.
    pub fn pop_ready(&mut self) -> Option<(u64, T)> {
        let (item, weight) = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        let index = self.next_index;
        self.next_index += 1;
        self.items -= 1;
        self.weight -= weight as u128;
        assert!(self.slots.len() < self.items_max, "a slot is free again");
        self.check();
        Some((index, item))
    }

    /// The index of the next item to leave.
    pub fn next_index(&self) -> u64 {
        self.next_index
    }

    /// Number of held items.
    pub fn len(&self) -> usize {
        self.items
    }

    /// Whether no items are held.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// The weight of the held items.
    pub fn weight(&self) -> u128 {
        self.weight
    }

    /// The missing indexes before the last held item, as ascending ranges. Empty if all held items can leave.
    pub fn gaps(&self) -> impl Iterator<Item = Range<u64>> {
        let mut position = 0;
        std::iter::from_fn(move || {
            while self.slots.get(position)?.is_some() {
                position += 1;
            }
            let start = position;
            while self.slots.get(position).is_some_and(Option::is_none) {
                position += 1;
            }
            Some(self.next_index + start as u64..self.next_index + position as u64)
        })
    }
}

#[cfg(all(test, not(loom)))]
#[path = "ordered_window/tests.rs"]
mod tests;
