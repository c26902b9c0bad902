//! The JSON schema of a record, generated from the types. Doc comments become descriptions.
//!
//! The output is docs/record.schema.json; a test compares the two.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::Record;
use crate::kinds::BODIES;

/// Returns the schema, in draft 2020-12. Objects must not have properties that the schema does not list.
pub fn schema() -> Value {
    let mut schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Record>()
        .to_value();
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        for (name, definition) in definitions {
            if !BODIES.contains(&name.as_str()) {
                close(definition);
            } else if let Some(inner) = definition.get_mut("properties") {
                close(inner);
            }
        }
    }
    schema["unevaluatedProperties"] = Value::Bool(false);
    schema
}

/// Forbids unlisted properties in this schema and all nested ones.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(close);
            if map.get("properties").is_some_and(Value::is_object) && map.contains_key("type") {
                // Only objects with listed properties are closed: maps, such as an engine's own facts, may have any
                // keys.
                map.entry("additionalProperties")
                    .or_insert(Value::Bool(false));
            }
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/record.schema.json");

    #[test]
    fn the_committed_schema_is_that_of_the_types() {
        let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("TONNAGE_BLESS").is_some() {
            std::fs::write(COMMITTED, &text).unwrap();
        }
        let committed = std::fs::read_to_string(COMMITTED).unwrap();
        assert!(
            committed == text,
            "docs/record.schema.json does not match the types: update it with \
             TONNAGE_BLESS=1 cargo test -p tonnage-record schema"
        );
    }
}
