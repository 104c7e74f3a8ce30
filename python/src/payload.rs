//! Python objects as the JSON of payloads.

use std::cell::RefCell;
use std::collections::HashSet;

use gristmill_model::limits::JSON_DEPTH_MAX;
use gristmill_model::{BatchLimits, PackedArray, PackedBuilder, PackedCutter, PackedError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde::ser::{Error, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::limits::PAYLOAD_DEPTH_MAX;

/// Writes Python objects as JSON.
pub struct Encoder<'c, 'py> {
    /// A function that converts an object of another type to one that JSON has.
    pub to_plain: &'c Bound<'py, PyAny>,
}

impl<'py> Encoder<'_, 'py> {
    /// Packs one object.
    pub fn packed(&self, value: &Bound<'py, PyAny>) -> PyResult<PackedArray> {
        let mut cutter = PackedCutter::new(BatchLimits::default());
        let full = self.cut(&mut cutter, value)?;
        Ok(full
            .or_else(|| cutter.rest())
            .unwrap_or_else(|| PackedBuilder::new().finish()))
    }

    /// Adds an object to a cutter of batches. Returns a batch if it is full now.
    pub fn cut(&self, cutter: &mut PackedCutter, value: &Bound<'py, PyAny>) -> PyResult<Option<PackedArray>> {
        let raised = RefCell::new(None);
        let item = Item {
            value,
            to_plain: self.to_plain,
            raised: &raised,
            depth: 0,
        };
        let pushed = cutter.push_value(&item);
        pushed.map_err(|error| match (raised.take(), error) {
            (Some(raised), _) => raised,
            (None, PackedError::NotJson { reason, .. }) => PyTypeError::new_err(reason),
            (None, PackedError::ItemTooLarge { bytes, bytes_max, .. }) => PyValueError::new_err(format!(
                "a payload is {bytes} bytes long, and the limit is {bytes_max}: give a reference to it, such as a path"
            )),
            (None, PackedError::TooDeep { .. }) => {
                PyValueError::new_err(format!("a payload nests deeper than {JSON_DEPTH_MAX} levels"))
            }
            (None, other) => PyValueError::new_err(other.to_string()),
        })
    }

    /// Adds one of many items. An error names it by its number, from 0.
    pub fn cut_item(
        &self,
        cutter: &mut PackedCutter,
        value: &Bound<'py, PyAny>,
        number: u64,
    ) -> PyResult<Option<PackedArray>> {
        self.cut(cutter, value).map_err(|error| {
            let py = value.py();
            let text = format!("item {number}: {}", error.value(py));
            let kind = error.get_type(py);
            if kind.is(py.get_type::<PyTypeError>()) {
                PyTypeError::new_err(text)
            } else if kind.is(py.get_type::<PyValueError>()) {
                PyValueError::new_err(text)
            } else {
                error
            }
        })
    }
}

struct Item<'a, 'py> {
    value: &'a Bound<'py, PyAny>,
    to_plain: &'a Bound<'py, PyAny>,
    /// The exception that Python raised, which serde's errors cannot carry.
    raised: &'a RefCell<Option<PyErr>>,
    depth: u32,
}

impl<'a, 'py> Item<'a, 'py> {
    fn inner<'b>(&'b self, value: &'b Bound<'py, PyAny>) -> Item<'b, 'py> {
        Item {
            value,
            to_plain: self.to_plain,
            raised: self.raised,
            depth: self.depth + 1,
        }
    }

    fn or_raise<T, E: Error>(&self, result: PyResult<T>) -> Result<T, E> {
        result.map_err(|raised| {
            let error = E::custom(&raised);
            *self.raised.borrow_mut() = Some(raised);
            error
        })
    }

    /// A key as in `json.dumps`: text, or a number, a bool or None as text.
    fn key<E: Error>(&self, key: &Bound<'py, PyAny>) -> Result<String, E> {
        if let Ok(text) = key.cast::<PyString>() {
            return self.or_raise(text.to_str().map(str::to_owned));
        }
        if key.is_none() {
            return Ok("null".to_owned());
        }
        if let Ok(truth) = key.cast::<PyBool>() {
            return Ok(truth.is_true().to_string());
        }
        if key.is_instance_of::<PyInt>() || key.is_instance_of::<PyFloat>() {
            // The text of an enumeration of numbers is a name.
            let kind = key.py().get_type::<PyInt>();
            let kind = if key.is_instance_of::<PyInt>() {
                kind
            } else {
                key.py().get_type::<PyFloat>()
            };
            let text = kind.call_method1("__repr__", (key,));
            return self.or_raise(text.and_then(|text| text.extract()));
        }
        if !key.is_instance_of::<PyTuple>() {
            // A converted key has another type: a moment of numpy becomes a date, and then text.
            let plain = self.or_raise(self.to_plain.call1((key,)))?;
            if !plain.get_type().is(key.get_type())
                && !plain.is_instance_of::<PyList>()
                && !plain.is_instance_of::<PyDict>()
            {
                return self.key(&plain);
            }
        }
        Err(E::custom(format!(
            "a key of type {} in a payload; JSON's keys are text",
            type_name(key)
        )))
    }

    /// The keys of a dict as text, if some have other types. Two keys with the same text are refused, because a value
    /// would be lost.
    fn keys<E: Error>(&self, dict: &Bound<'py, PyDict>) -> Result<Option<Vec<String>>, E> {
        if dict.iter().all(|(key, _)| key.is_instance_of::<PyString>()) {
            return Ok(None);
        }
        let mut keys = Vec::with_capacity(dict.len());
        let mut known = HashSet::with_capacity(dict.len());
        for (key, _) in dict.iter() {
            let text: String = self.key(&key)?;
            if !known.insert(text.clone()) {
                return Err(E::custom(format!(
                    "two keys of a dict in a payload are {text:?} in JSON: give a list of pairs"
                )));
            }
            keys.push(text);
        }
        Ok(Some(keys))
    }
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value
        .get_type()
        .qualname()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

impl Serialize for Item<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = self.value;
        if self.depth > PAYLOAD_DEPTH_MAX {
            return Err(S::Error::custom(format!(
                "a payload nests more than {PAYLOAD_DEPTH_MAX} deep, or contains itself"
            )));
        }
        if let Ok(text) = value.cast::<PyString>() {
            return serializer.serialize_str(self.or_raise(text.to_str())?);
        }
        if let Ok(truth) = value.cast::<PyBool>() {
            return serializer.serialize_bool(truth.is_true());
        }
        if value.is_instance_of::<PyInt>() {
            return match value.extract::<i64>() {
                Ok(number) => serializer.serialize_i64(number),
                Err(_) => {
                    let number = value.py().get_type::<PyInt>().call_method1("__repr__", (value,));
                    let digits: String = self.or_raise(number.and_then(|digits| digits.extract()))?;
                    RawValue::from_string(digits)
                        .map_err(S::Error::custom)?
                        .serialize(serializer)
                }
            };
        }
        if let Ok(number) = value.cast::<PyFloat>() {
            let number = number.value();
            if !number.is_finite() {
                return Err(S::Error::custom(format!(
                    "{number} in a payload, which JSON cannot hold: give None or text instead"
                )));
            }
            return serializer.serialize_f64(number);
        }
        if value.is_none() {
            return serializer.serialize_unit();
        }
        if let Ok(dict) = value.cast::<PyDict>() {
            let keys = self.keys::<S::Error>(dict)?;
            let mut map = serializer.serialize_map(Some(dict.len()))?;
            for (at, (key, value)) in dict.iter().enumerate() {
                match &keys {
                    None => map.serialize_key(
                        self.or_raise(
                            key.cast::<PyString>()
                                .map_err(PyErr::from)
                                .and_then(|text| text.to_str()),
                        )?,
                    )?,
                    Some(keys) => map.serialize_key(
                        keys.get(at)
                            .ok_or_else(|| S::Error::custom("a dict changed while it was read"))?,
                    )?,
                }
                map.serialize_value(&self.inner(&value))?;
            }
            return map.end();
        }
        if let Ok(list) = value.cast::<PyList>() {
            let mut items = serializer.serialize_seq(Some(list.len()))?;
            for value in list.iter() {
                items.serialize_element(&self.inner(&value))?;
            }
            return items.end();
        }
        if let Ok(tuple) = value.cast::<PyTuple>() {
            let mut items = serializer.serialize_seq(Some(tuple.len()))?;
            for value in tuple.iter() {
                items.serialize_element(&self.inner(&value))?;
            }
            return items.end();
        }
        let plain = self.or_raise(self.to_plain.call1((value,)))?;
        self.inner(&plain).serialize(serializer)
    }
}
