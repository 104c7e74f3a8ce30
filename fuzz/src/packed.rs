//! Packed text.

use gristmill_model::{PackedArray, Positions};
use serde_json::Value;

/// The items of a packed array are those of the JSON array, however it is cut.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(packed) = PackedArray::parse(text) else {
        return;
    };
    let items: Vec<&str> = packed.items().collect();
    assert_eq!(items.len(), packed.count() as usize);
    assert!(items.iter().all(|item| !item.contains('\n')));
    if let Ok(Value::Array(values)) = serde_json::from_str(text) {
        let read = items
            .iter()
            .map(|item| serde_json::from_str::<Value>(item).expect("an item is JSON"));
        assert!(read.eq(values), "items of {text:?}");
    }
    let odd: Positions = (0..packed.count()).filter(|position| position % 2 == 1).collect();
    let selected = packed.select(&odd);
    assert_eq!(selected, packed.select_indexed(&odd, &packed.index()));
    assert!(selected.items().eq(items.iter().skip(1).step_by(2).copied()));
    let half = packed.count() / 2;
    let parts = packed.cut([half, packed.count() - half]);
    assert_eq!(PackedArray::concat(&parts), packed);
    assert_eq!(
        PackedArray::parse(packed.as_str()).expect("reads its own text"),
        packed
    );
}
