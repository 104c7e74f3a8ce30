//! Checks a value by a JSON schema: the keywords that providers take for the form of an answer.
//!
//! Checked are `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `prefixItems`, `anyOf`, `oneOf`,
//! `allOf`, `not`, `$ref` within the schema, and the limits of numbers, texts, arrays and objects. `pattern` and `format`, and
//! words that describe, are for the model alone. Other keywords that limit a value are refused, because an answer of another form
//! would pass.

use std::cell::Cell;

use serde_json::{Map, Value};

use crate::limits::{SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX};

/// The types of JSON schema.
const TYPES: [&str; 7] = [
    "null", "boolean", "object", "array", "number", "integer", "string",
];

/// Keywords that limit a value and are not checked.
const UNCHECKED: [&str; 7] = [
    "patternProperties",
    "if",
    "contains",
    "dependentSchemas",
    "dependentRequired",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// A schema.
#[derive(Debug)]
pub struct Schema<'s> {
    root: &'s Value,
    /// Parts that the present check has compared.
    steps: Cell<u32>,
}

impl<'s> Schema<'s> {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// The place and the problem, as text.
    pub fn new(root: &'s Value) -> Result<Schema<'s>, String> {
        if !root.is_object() {
            return Err("a schema is an object, such as {\"type\": \"object\"}".to_owned());
        }
        let schema = Schema {
            root,
            steps: Cell::new(0),
        };
        schema.check_form(root, "schema", 0)?;
        Ok(schema)
    }

    /// Checks a value.
    ///
    /// # Errors
    ///
    /// The place in the value and the problem, as text.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        self.steps.set(0);
        let checked = self.check_by(self.root, value, "the answer", 0);
        match self.steps.get() > SCHEMA_STEPS_MAX {
            // A `not` or `oneOf` around it may have made something else of the error.
            true => Err(too_much("the answer")),
            false => checked,
        }
    }

    /// Checks that a part of the schema has the right form, and that its references exist.
    fn check_form(&self, schema: &Value, at: &str, depth: usize) -> Result<(), String> {
        if depth > SCHEMA_DEPTH_MAX {
            return Err(format!("{at} has more than {SCHEMA_DEPTH_MAX} levels"));
        }
        let fields = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(fields) => fields,
            _ => return Err(format!("{at} is no schema: a schema is an object, true or false")),
        };
        if let Some(name) = UNCHECKED.into_iter().find(|name| fields.contains_key(*name)) {
            return Err(format!(
                "{at}.{name} is not checked here, so answers of another form would pass: leave it out, or say it by `properties`, \
                 `additionalProperties`, `anyOf` or `items`"
            ));
        }
        for name in types(fields.get("type")) {
            if !name.as_str().is_some_and(|name| TYPES.contains(&name)) {
                return Err(format!("{at}.type is {name}: the types are {}", TYPES.join(", ")));
            }
        }
        if let Some(reference) = fields.get("$ref") {
            self.referred(reference)
                .map_err(|reason| format!("{at}.$ref: {reason}"))?;
        }
        for name in ["items", "additionalProperties", "not"] {
            if let Some(part) = fields.get(name) {
                self.check_form(part, &format!("{at}.{name}"), depth + 1)?;
            }
        }
        for name in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            match fields.get(name) {
                None => {}
                Some(Value::Array(parts)) if !parts.is_empty() => {
                    for (index, part) in parts.iter().enumerate() {
                        self.check_form(part, &format!("{at}.{name}[{index}]"), depth + 1)?;
                    }
                }
                Some(_) => return Err(format!("{at}.{name} is no list of schemas")),
            }
        }
        for name in ["properties", "$defs", "definitions"] {
            match fields.get(name) {
                None => {}
                Some(Value::Object(parts)) => {
                    for (key, part) in parts {
                        self.check_form(part, &format!("{at}.{name}.{key}"), depth + 1)?;
                    }
                }
                Some(_) => return Err(format!("{at}.{name} is no object of schemas")),
            }
        }
        match fields.get("required") {
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => Ok(()),
            None => Ok(()),
            Some(_) => Err(format!("{at}.required is no list of names")),
        }
    }

    fn referred(&self, reference: &Value) -> Result<&'s Value, String> {
        let text = reference.as_str().ok_or("it is no text")?;
        let pointer = text
            .strip_prefix('#')
            .ok_or_else(|| format!("`{text}` is outside of the schema: copy it into `$defs`"))?;
        let found = self.root.pointer(pointer);
        found.ok_or_else(|| format!("the schema has no `{text}`"))
    }

    fn check_by(&self, schema: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
        self.steps.set(self.steps.get() + 1);
        if depth > SCHEMA_DEPTH_MAX || self.steps.get() > SCHEMA_STEPS_MAX {
            self.steps.set(SCHEMA_STEPS_MAX + 1);
            return Err(too_much(at));
        }
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(false) => return Err(format!("{at} must not be there")),
            _ => return Ok(()),
        };
        if let Some(reference) = fields.get("$ref") {
            self.check_by(self.referred(reference)?, value, at, depth + 1)?;
        }
        let types = types(fields.get("type"));
        if !types.is_empty()
            && !types
                .iter()
                .any(|name| is_of_type(value, name.as_str().unwrap_or_default()))
        {
            let names: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
            return Err(format!("{at} is {}, not {}", type_of(value), names.join(" or ")));
        }
        if let Some(Value::Array(values)) = fields.get("enum")
            && !values.iter().any(|one| is_equal(one, value))
        {
            return Err(format!("{at} is none of {}", Value::Array(values.clone())));
        }
        if let Some(only) = fields.get("const")
            && !is_equal(only, value)
        {
            return Err(format!("{at} is not {only}"));
        }
        check_limits(fields, value, at)?;
        match value {
            Value::Object(object) => self.check_object(fields, object, at, depth)?,
            Value::Array(items) => self.check_items(fields, items, at, depth)?,
            _ => {}
        }
        self.check_combined(fields, value, at, depth)
    }

    fn check_object(
        &self,
        fields: &Map<String, Value>,
        object: &Map<String, Value>,
        at: &str,
        depth: usize,
    ) -> Result<(), String> {
        let required = fields.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                return Err(format!("{at} has no `{name}`"));
            }
        }
        let properties = fields.get("properties").and_then(Value::as_object);
        for (name, value) in object {
            let at = format!("{at}.{name}");
            match (
                properties.and_then(|properties| properties.get(name)),
                fields.get("additionalProperties"),
            ) {
                (Some(schema), _) | (None, Some(schema)) => self.check_by(schema, value, &at, depth + 1)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn check_items(
        &self,
        fields: &Map<String, Value>,
        items: &[Value],
        at: &str,
        depth: usize,
    ) -> Result<(), String> {
        let first = fields.get("prefixItems").and_then(Value::as_array);
        for (index, item) in items.iter().enumerate() {
            let schema = first
                .and_then(|first| first.get(index))
                .or_else(|| fields.get("items"));
            if let Some(schema) = schema {
                self.check_by(schema, item, &format!("{at}[{index}]"), depth + 1)?;
            }
        }
        Ok(())
    }

    fn check_combined(
        &self,
        fields: &Map<String, Value>,
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Result<(), String> {
        let parts = |name: &str| fields.get(name).and_then(Value::as_array);
        for part in parts("allOf").into_iter().flatten() {
            self.check_by(part, value, at, depth + 1)?;
        }
        let checked = |parts: &Vec<Value>| -> Vec<Result<(), String>> {
            parts
                .iter()
                .map(|part| self.check_by(part, value, at, depth + 1))
                .collect()
        };
        if let Some(any) = parts("anyOf").map(checked)
            && any.iter().all(Result::is_err)
        {
            let reason = any.into_iter().find_map(Result::err).unwrap_or_default();
            return Err(format!(
                "{at} has none of the allowed forms; of the first, {reason}"
            ));
        }
        if let Some(one) = parts("oneOf").map(checked)
            && one.iter().filter(|part| part.is_ok()).count() != 1
        {
            return Err(format!("{at} does not have exactly one of the allowed forms"));
        }
        if let Some(not) = fields.get("not")
            && self.check_by(not, value, at, depth + 1).is_ok()
        {
            return Err(format!("{at} has a form that is excluded"));
        }
        Ok(())
    }
}

/// The error of a check without an end.
fn too_much(at: &str) -> String {
    format!("{at} needs more than {SCHEMA_DEPTH_MAX} levels or {SCHEMA_STEPS_MAX} comparisons of the schema")
}

/// The limits of numbers, texts, arrays and objects.
fn check_limits(fields: &Map<String, Value>, value: &Value, at: &str) -> Result<(), String> {
    let limit = |name: &str| fields.get(name).and_then(Value::as_f64);
    let within = |size: f64, least: &str, most: &str, unit: &str| {
        if let Some(least) = limit(least).filter(|least| size < *least) {
            return Err(format!("{at} has {size}{unit}, less than {least}"));
        }
        match limit(most).filter(|most| size > *most) {
            Some(most) => Err(format!("{at} has {size}{unit}, more than {most}")),
            None => Ok(()),
        }
    };
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if limit("minimum").is_some_and(|least| number < least)
                || limit("exclusiveMinimum").is_some_and(|least| number <= least)
                || limit("maximum").is_some_and(|most| number > most)
                || limit("exclusiveMaximum").is_some_and(|most| number >= most)
            {
                return Err(format!("{at} is {value}, outside of its limits"));
            }
            match limit("multipleOf").filter(|step| *step > 0.0) {
                Some(step)
                    if (number / step).fract().abs() > 1e-9 && (number / step).fract().abs() < 1.0 - 1e-9 =>
                {
                    Err(format!("{at} is {value}, no multiple of {step}"))
                }
                _ => Ok(()),
            }
        }
        Value::String(text) => within(
            text.chars().count() as f64,
            "minLength",
            "maxLength",
            " characters",
        ),
        Value::Array(items) => within(items.len() as f64, "minItems", "maxItems", " items"),
        Value::Object(object) => within(object.len() as f64, "minProperties", "maxProperties", " fields"),
        _ => Ok(()),
    }
}

/// The names in a `type`: one or several.
fn types(field: Option<&Value>) -> &[Value] {
    match field {
        None => &[],
        Some(Value::Array(names)) => names,
        Some(name) => std::slice::from_ref(name),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "string" => value.is_string(),
        _ => false,
    }
}

/// Compares as JSON schema does: 1 and 1.0 are one number.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_keyword_that_is_not_checked_is_refused() {
        for name in UNCHECKED {
            let schema = json!({"anyOf": [{"type": "object", name: {}}]});
            let refused = Schema::new(&schema).expect_err(name);
            assert!(
                refused.starts_with(&format!("schema.anyOf[0].{name} is not checked")),
                "{refused}"
            );
        }
        // These are names of fields.
        let schema = json!({"type": "object", "properties": {"if": {}, "contains": {}}});
        assert!(Schema::new(&schema).is_ok());
    }

    #[test]
    fn checks_values() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "description": "words"},
                "age": {"type": ["integer", "null"], "minimum": 0},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
                "next": {"$ref": "#"},
                "size": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/span"}]},
            },
            "required": ["name"],
            "additionalProperties": false,
            "$defs": {"span": {"type": "array", "prefixItems": [{"type": "number"}], "minItems": 1}},
        });
        let schema = Schema::new(&schema).expect("a schema");
        for good in [
            json!({"name": "x"}),
            json!({"name": "x", "age": 3.0, "tags": ["a", "b"], "next": {"name": "y"}, "size": [1, "any"]}),
            json!({"name": "x", "age": null, "size": 1.5}),
        ] {
            assert_eq!(schema.check(&good), Ok(()), "{good}");
        }
        for (wrong, reason) in [
            (json!([]), "the answer is an array, not object"),
            (json!({}), "the answer has no `name`"),
            (
                json!({"name": ""}),
                "the answer.name has 0 characters, less than 1",
            ),
            (
                json!({"name": "x", "age": 1.5}),
                "the answer.age is a number, not integer or null",
            ),
            (
                json!({"name": "x", "age": -1}),
                "the answer.age is -1, outside of its limits",
            ),
            (
                json!({"name": "x", "tags": ["c"]}),
                "the answer.tags[0] is none of [\"a\",\"b\"]",
            ),
            (
                json!({"name": "x", "more": 1}),
                "the answer.more must not be there",
            ),
            (json!({"name": "x", "next": {}}), "the answer.next has no `name`"),
            (
                json!({"name": "x", "size": []}),
                "the answer.size has none of the allowed forms",
            ),
        ] {
            let found = schema.check(&wrong).expect_err(&wrong.to_string());
            assert!(found.starts_with(reason), "{wrong}: {found}");
        }
    }

    #[test]
    fn refuses_a_schema_without_the_right_form() {
        for (wrong, reason) in [
            (json!("object"), "a schema is an object"),
            (json!({"type": "text"}), "schema.type is \"text\""),
            (json!({"properties": []}), "schema.properties"),
            (
                json!({"items": {"$ref": "#/$defs/x"}}),
                "schema.items.$ref: the schema has no",
            ),
            (json!({"$ref": "https://x.example/y"}), "outside of the schema"),
            (json!({"anyOf": []}), "schema.anyOf"),
            (json!({"required": "name"}), "schema.required"),
        ] {
            let found = Schema::new(&wrong).expect_err(&wrong.to_string());
            assert!(found.contains(reason), "{wrong}: {found}");
        }
    }

    #[test]
    fn a_reference_to_itself_ends() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}),
            json!({"oneOf": [{"$ref": "#"}, {"$ref": "#"}, {"not": {"$ref": "#"}}]}),
        ] {
            // The second one has 2^64 ways to its end.
            let schema = Schema::new(&schema).expect("a schema");
            assert!(schema.check(&json!(1)).is_err());
        }
    }
}
