//! Checks JSON values against schemas.

use serde_json::Value;

use super::document::Document;
use super::shape::Shape;

impl Document {
    /// Checks a value against a schema. The error names the mismatch.
    pub fn check(&self, schema: &str, value: &Value) -> Result<(), String> {
        self.check_shape(&Shape::Named(schema.to_owned()), value).map_err(|why| format!("{schema}{why}"))
    }

    pub(super) fn check_shape(&self, shape: &Shape, value: &Value) -> Result<(), String> {
        match (shape, value) {
            (Shape::Any, _) | (Shape::Boolean, Value::Bool(_)) | (Shape::Number, Value::Number(_)) => Ok(()),
            (Shape::Text(text), Value::String(given)) => text.check(given).map_err(|why| format!(": {why}")),
            (Shape::Integer(least, most), Value::Number(number)) => match number.as_i64() {
                Some(given) if (*least..=*most).contains(&given) => Ok(()),
                _ => Err(format!(": {number} is not between {least} and {most}")),
            },
            (Shape::List(inner), Value::Array(items)) => items
                .iter()
                .enumerate()
                .try_for_each(|(at, item)| self.check_shape(inner, item).map_err(|why| format!("[{at}]{why}"))),
            (Shape::Object(properties), Value::Object(fields)) => {
                for (name, value) in fields {
                    let inner = properties.get(name).ok_or_else(|| format!(".{name} is not known"))?;
                    self.check_shape(inner, value).map_err(|why| format!(".{name}{why}"))?;
                }
                Ok(())
            }
            (Shape::Map(inner), Value::Object(fields)) => fields
                .iter()
                .try_for_each(|(name, value)| self.check_shape(inner, value).map_err(|why| format!(".{name}{why}"))),
            (Shape::Named(name), value) => {
                // A value with `@odata.type` is checked against that type.
                let own = value["@odata.type"].as_str().and_then(|kind| self.schema(kind.trim_start_matches('#')));
                let inner = own.or_else(|| self.schema(name)).ok_or_else(|| format!(": there is no schema {name}"))?;
                self.check_shape(inner, value)
            }
            (Shape::Nullable(_), Value::Null) => Ok(()),
            (Shape::Nullable(inner), value) => self.check_shape(inner, value),
            (shape, value) => Err(format!(": {} is not {}", kind(value), expected_type(shape))),
        }
    }

    /// Checks a response, which must not contain an empty list: Google leaves it out, and clients have to cope.
    pub fn check_answer(&self, schema: &str, value: &Value) -> Result<(), String> {
        if has_empty_list(value) {
            return Err(format!("{schema} has an empty list in it"));
        }
        self.check(schema, value)
    }
}

fn has_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty_list),
        Value::Object(fields) => fields.values().any(has_empty_list),
        _ => false,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn expected_type(shape: &Shape) -> &'static str {
    match shape {
        Shape::Any => "anything",
        Shape::Text(_) => "a string",
        Shape::Integer(..) => "an integer",
        Shape::Number => "a number",
        Shape::Boolean => "a boolean",
        Shape::List(_) => "a list",
        Shape::Object(_) | Shape::Map(_) | Shape::Named(_) => "an object",
        Shape::Nullable(inner) => expected_type(inner),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::google::spec::gmail;

    #[test]
    fn value_that_violates_its_schema_is_refused() {
        let good = json!({
            "id": "1", "historyId": "7", "internalDate": "-1", "sizeEstimate": 3, "labelIds": ["INBOX"],
            "payload": {"parts": [{"body": {"size": 1}}]},
        });
        assert_eq!(gmail().check_answer("Message", &good), Ok(()));

        for (field, doctored, told) in [
            ("historyId", json!(7), "Message.historyId: a number is not a string"),
            ("historyId", json!("-7"), "Message.historyId: \"-7\" is not Uint64"),
            ("sizeEstimate", json!("3"), "Message.sizeEstimate: a string is not an integer"),
            ("labelIds", json!([1]), "Message.labelIds[0]: a number is not a string"),
            ("labelIds", json!([]), "Message has an empty list in it"),
            ("labels", json!(["INBOX"]), "Message.labels is not known"),
            ("payload", json!({"parts": [{"boddy": {}}]}), "Message.payload.parts[0].boddy is not known"),
        ] {
            let mut value = good.clone();
            value[field] = doctored;

            assert_eq!(gmail().check_answer("Message", &value), Err(told.to_owned()));
        }
    }

    #[test]
    fn enum_accepts_only_its_values() {
        assert!(gmail().check("WatchRequest", &json!({"labelFilterBehavior": "include"})).is_ok());
        assert!(gmail().check("WatchRequest", &json!({"labelFilterBehavior": "INCLUDE"})).is_err());
    }
}
