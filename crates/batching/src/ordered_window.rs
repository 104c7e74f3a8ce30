//! Items that arrive in any order and leave in order.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

/// Puts items numbered from 0 back into order. They arrive in any order and leave in order; what has to wait
/// for an earlier item is held here, within bounds.
///
/// The window reaches from the next item to leave over `items_max` indexes, and holds at most `weight_max`.
/// The next item to leave is accepted always, whatever it weighs, so the window cannot lock itself up: who is
/// refused takes out what is ready ([`pop_ready`](OrderedWindow::pop_ready)), waits for the earlier items,
/// and then tries again.
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
    /// The item with index `next_index + position` and its weight, if it is there. The last position is never
    /// empty.
    slots: VecDeque<Option<(T, usize)>>,
    items: usize,
    /// In 128 bits, because the next item to leave may weigh anything on top of the rest.
    weight: u128,
}

/// Why an item was not inserted. The item comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InsertError<T> {
    /// The item lies beyond the window, or weighs more than there is space for.
    #[error("no space in the window for item {index} while item {next_index} is still to leave")]
    Full {
        /// The index of the item refused.
        index: u64,
        /// The index of the next item to leave.
        next_index: u64,
        /// The item refused.
        item: T,
    },
    /// An item of this index is in the window, or has left it.
    #[error("item {index} has arrived before; each index may be inserted once")]
    Duplicate {
        /// The index of both.
        index: u64,
        /// The item refused.
        item: T,
    },
}

impl<T> InsertError<T> {
    /// The item that was refused.
    pub fn into_item(self) -> T {
        match self {
            InsertError::Full { item, .. } | InsertError::Duplicate { item, .. } => item,
        }
    }

    /// Whether the item may be tried again later.
    pub fn is_full(&self) -> bool {
        matches!(self, InsertError::Full { .. })
    }
}

/// Without the item, which need not be printable.
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
    /// An empty window that expects item 0. `items_max` bounds how far an item may be ahead of the next one
    /// to leave, and so how many are held; `weight_max` (as a rule bytes) bounds their weight together,
    /// except that the next to leave may exceed it.
    ///
    /// # Panics
    ///
    /// If `items_max` is 0: nothing could ever be inserted.
    pub fn new(items_max: usize, weight_max: usize) -> OrderedWindow<T> {
        OrderedWindow::starting_at(0, items_max, weight_max)
    }

    /// As [`new`](OrderedWindow::new), but the first item to leave is `next_index`: for work that goes on
    /// where it stopped.
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
    /// [`InsertError::Full`] if the item has to wait outside, [`InsertError::Duplicate`] if the index has
    /// been there before; both with the item in it. The window is then as it was.
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
        self.slots[position] = Some((item, weight));
        self.items += 1;
        self.weight += weight as u128;
        Ok(())
    }

    /// The next item in order, with its index, if it has arrived.
    pub fn pop_ready(&mut self) -> Option<(u64, T)> {
        let (item, weight) = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        let index = self.next_index;
        self.next_index += 1;
        self.items -= 1;
        self.weight -= weight as u128;
        Some((index, item))
    }

    /// The index of the next item to leave.
    pub fn next_index(&self) -> u64 {
        self.next_index
    }

    /// Items held.
    pub fn len(&self) -> usize {
        self.items
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// The weight of the items held.
    pub fn weight(&self) -> u128 {
        self.weight
    }

    /// The indexes that are missing before the last item held, as ascending ranges. Empty if all that is held
    /// could leave.
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
