//! Names for the variants of the description's unions. Client generators name a type after its schema. For a schema
//! without a name they invent one, or fail.

use std::collections::BTreeMap;

use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::{OpenApi, Ref, RefOr};

/// Makes each variant of a union a schema of its own: `Rule` becomes one of `RuleCron` and `RuleEvery`. The schema
/// below the only field of such a variant becomes `RuleCronFields`.
pub fn name_all(description: &mut OpenApi) {
    let Some(components) = &mut description.components else {
        return;
    };
    let mut named = BTreeMap::new();
    for (name, schema) in &mut components.schemas {
        let RefOr::T(Schema::OneOf(union)) = schema else {
            continue;
        };
        for variant in &mut union.items {
            match variant {
                // Some generators ignore a reference with a description beside it.
                RefOr::Ref(reference) => reference.description.clear(),
                RefOr::T(inline) => {
                    let (suffix, fields) = part(inline);
                    let variant_name = format!("{name}{suffix}");
                    if let Some(fields) = fields {
                        let fields_name = format!("{variant_name}Fields");
                        let reference = RefOr::Ref(Ref::from_schema_name(&fields_name));
                        named.insert(fields_name, std::mem::replace(fields, reference));
                    }
                    let reference = RefOr::Ref(Ref::from_schema_name(&variant_name));
                    named.insert(variant_name, std::mem::replace(variant, reference));
                }
            }
        }
    }
    components.schemas.extend(named);
}

/// The suffix of a variant's name, and the schema below its only field, if it has no name.
fn part(variant: &mut Schema) -> (String, Option<&mut RefOr<Schema>>) {
    match variant {
        Schema::Object(object) => match &object.required[..] {
            [field] if object.properties.len() == 1 => {
                let words = field.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
                let suffix = words.collect();
                let inner = object.properties.values_mut().next();
                let is_inline = |inner: &&mut RefOr<Schema>| matches!(inner, RefOr::T(Schema::Object(_)));
                (suffix, inner.filter(is_inline))
            }
            _ => {
                let suffix = match &object.schema_type {
                    SchemaType::Type(Type::String) => "Text",
                    SchemaType::Type(Type::Integer | Type::Number) => "Number",
                    _ => "Map",
                };
                (suffix.to_owned(), None)
            }
        },
        Schema::Array(_) => ("List".to_owned(), None),
        _ => ("Other".to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    #[test]
    fn each_variant_of_a_union_has_a_name() {
        let description = serde_json::to_value(crate::openapi::router().1).unwrap();
        let schemas = description["components"]["schemas"].as_object().unwrap();
        let mut unions = 0;
        for (name, schema) in schemas {
            for variant in schema["oneOf"].as_array().into_iter().flatten() {
                unions += 1;
                let keys: Vec<&String> = variant.as_object().unwrap().keys().collect();
                assert_eq!(keys, ["$ref"], "{name}");
                let target = variant["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
                assert_ne!(schemas.get(target), None, "{name}: {target}");
            }
        }
        assert!(unions >= 13, "{unions}");
        let cron = &schemas["RuleCron"]["properties"]["cron"]["$ref"];
        assert_eq!(cron, "#/components/schemas/RuleCronFields");
        assert_eq!(
            schemas["RuleCronFields"]["required"],
            Value::from(vec!["expression"])
        );
    }
}
