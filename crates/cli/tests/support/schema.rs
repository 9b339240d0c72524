//! Checks values against the part of JSON Schema (draft 2020-12) that this project's schemas use.
//! A keyword that it does not know fails the test. Crates for all of JSON Schema bring some fifty
//! others, for formats that are not used here.

use std::fs;

use serde_json::{Map, Value};

/// A schema from a file.
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn read(path: &str) -> Schema {
        Schema(serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
    }

    /// Says what is wrong with the value, if something is.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        self.against(&self.0, value)
    }

    fn against(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let schema = schema.as_object().expect("a schema is an object");
        for (keyword, wanted) in schema {
            let holds = match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "properties" => true,
                "$ref" => {
                    let pointer = wanted.as_str().unwrap().strip_prefix('#').unwrap();
                    self.against(self.0.pointer(pointer).expect(pointer), value)?;
                    true
                }
                "oneOf" => self.one_of(wanted.as_array().unwrap(), value)?,
                "const" => value == wanted,
                "enum" => wanted.as_array().unwrap().contains(value),
                "type" => match wanted {
                    Value::Array(kinds) => kinds.iter().any(|kind| has_type(kind, value)),
                    kind => has_type(kind, value),
                },
                "minimum" => value.as_f64() >= wanted.as_f64(),
                "pattern" => fits(wanted.as_str().unwrap(), value.as_str().unwrap_or_default()),
                "minItems" => value.as_array().map(Vec::len) >= wanted.as_u64().map(|n| n as usize),
                "maxItems" => value.as_array().map(Vec::len) <= wanted.as_u64().map(|n| n as usize),
                "items" => {
                    let items = value.as_array().into_iter().flatten();
                    items
                        .into_iter()
                        .try_for_each(|item| self.against(wanted, item))?;
                    true
                }
                "required" => {
                    let keys = wanted.as_array().unwrap().iter();
                    keys.into_iter()
                        .all(|key| value.get(key.as_str().unwrap()).is_some())
                }
                "additionalProperties" => self.members(schema, value)?,
                other => panic!("the keyword {other} is not checked"),
            };
            if !holds {
                return Err(format!("{value}: not {keyword} {wanted}"));
            }
        }
        Ok(())
    }

    fn one_of(&self, choices: &[Value], value: &Value) -> Result<bool, String> {
        let results: Vec<_> = choices.iter().map(|one| self.against(one, value)).collect();
        match results.iter().filter(|result| result.is_ok()).count() {
            1 => Ok(true),
            0 => {
                let why: Vec<String> = results.into_iter().filter_map(Result::err).collect();
                Err(format!("none of: {}", why.join("; ")))
            }
            several => Err(format!("{value}: {several} choices fit")),
        }
    }

    /// Checks the members by name; others are not allowed.
    fn members(&self, schema: &Map<String, Value>, value: &Value) -> Result<bool, String> {
        assert_eq!(schema["additionalProperties"], false);
        for (name, member) in value.as_object().into_iter().flatten() {
            match schema["properties"].get(name) {
                Some(schema) => self
                    .against(schema, member)
                    .map_err(|why| format!("{name}: {why}"))?,
                None => return Err(format!("{name}: not in the schema")),
            }
        }
        Ok(true)
    }
}

fn has_type(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("the type {other} is not checked"),
    }
}

/// The patterns of the schemas.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern {
        "^[0-9a-f]{64}$" => {
            text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
        }
        "^whimbrel1[02-9ac-hj-np-z]+$" => text.parse::<whimbrel_node::ticket::Ticket>().is_ok(),
        "^[1-9][0-9]{0,3}(-[a-z]+){4}$" => {
            let code = text.parse::<whimbrel_spoken::Code>();
            code.is_ok_and(|code| code.to_string() == text)
        }
        other => panic!("the pattern {other} is not checked"),
    }
}
