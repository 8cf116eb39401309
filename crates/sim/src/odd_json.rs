//! JSON as a provider may answer one day: with fields that no document names, or with a value of another type.

use serde_json::{Value, json};

/// The name of a field that no provider's document has.
pub const UNKNOWN_FIELD: &str = "addedLater";

/// Adds a field to every object, whose value is an object, too.
pub fn add_unknown_fields(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(add_unknown_fields),
        Value::Object(members) => {
            members.values_mut().for_each(add_unknown_fields);
            members.insert(UNKNOWN_FIELD.to_owned(), json!({"kind": "unknown", "items": [1, null, "x"]}));
        }
        _ => {}
    }
}

/// Gives one member another type. The choice depends on the value alone, so a run is repeatable.
pub fn change_a_type(value: &mut Value) {
    let count = member_count(value);
    if count > 0 {
        let mut left = checksum(&value.to_string()) as usize % count;
        change_nth_member(value, &mut left);
    }
}

fn member_count(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(member_count).sum(),
        Value::Object(members) => members.len() + members.values().map(member_count).sum::<usize>(),
        _ => 0,
    }
}

/// Returns whether the member was found; `left` counts those before it down.
fn change_nth_member(value: &mut Value, left: &mut usize) -> bool {
    match value {
        Value::Array(items) => items.iter_mut().any(|item| change_nth_member(item, left)),
        Value::Object(members) => members.values_mut().any(|member| {
            if *left == 0 {
                *member = of_another_type(member.take());
                return true;
            }
            *left -= 1;
            change_nth_member(member, left)
        }),
        _ => false,
    }
}

fn of_another_type(value: Value) -> Value {
    match value {
        Value::Number(_) | Value::Bool(_) => json!(value.to_string()),
        Value::Array(_) => json!({"items": value}),
        Value::Null | Value::String(_) | Value::Object(_) => json!([value]),
    }
}

/// FNV-1a: short, and the same on every machine.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_gets_an_unknown_field() {
        let mut value = json!({"messages": [{"id": "1"}, {"id": "2"}]});

        add_unknown_fields(&mut value);

        assert_eq!(value.to_string().matches(UNKNOWN_FIELD).count(), 3, "{value}");
        assert_eq!(value["messages"][1]["id"], "2");
    }

    #[test]
    fn one_member_gets_another_type() {
        for before in [json!({"n": 1}), json!({"a": [{"s": "x"}, {"s": "y"}]}), json!({"o": {"b": true}, "z": null})] {
            let mut after = before.clone();

            change_a_type(&mut after);

            assert_ne!(after, before);
        }
        let mut empty = json!([1, "x"]);
        change_a_type(&mut empty);
        assert_eq!(empty, json!([1, "x"]), "no member, no change");
    }
}
