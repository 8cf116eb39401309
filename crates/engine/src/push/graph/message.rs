//! What is in a call of Microsoft Graph: items of several subscriptions, each of which proves by itself who sends it. Each
//! is read on its own: one that makes no sense takes no other along.

use std::fmt;

use domain::{Secret, Sha256};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;

use crate::push::record::About;

/// Theirs are UUIDs.
const LONGEST_NAME: usize = 255;

/// As long as Graph keeps it.
const LONGEST_PASSWORD: usize = 128;

/// Nothing of ours or theirs is as long.
const LONGEST_RESOURCE: usize = 4096;

/// Far more than fit into a call of Graph's, whose items have some hundred bytes each.
pub const MOST_ITEMS: usize = 5000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub subscription: String,
    /// What only Graph and whoever asked it should know.
    pub password: Secret<String>,
    /// The same for the same item, however often it is delivered.
    pub message: Option<String>,
    pub about: About,
}

/// Items in their order, or why one is none.
#[derive(Debug)]
pub struct Items(pub Vec<Result<Item, &'static str>>);

#[derive(Deserialize)]
struct Envelope {
    value: Items,
}

/// An error: it is not what Graph sends. It says nothing of what is in it.
pub fn read(body: &[u8]) -> Result<Items, &'static str> {
    let Envelope { value } = serde_json::from_slice(body).map_err(|_| "it is not what Microsoft Graph sends")?;
    Ok(value)
}

/// One by one, so that what is not theirs does not become many times as large in memory.
impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Items;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Items, A::Error> {
                let mut items = Vec::new();
                while let Some(value) = all.next_element::<Value>()? {
                    if items.len() == MOST_ITEMS {
                        return Err(A::Error::custom("more items than there can be"));
                    }
                    items.push(item(&value));
                }
                Ok(Items(items))
            }
        }
        from.deserialize_seq(Each)
    }
}

fn item(value: &Value) -> Result<Item, &'static str> {
    let text = |field: &str| value.get(field).and_then(Value::as_str);
    let subscription = text("subscriptionId").filter(|name| is_name(name)).ok_or("its subscriptionId is none")?;
    let password = text("clientState").filter(|said| !said.is_empty()).ok_or("it has no clientState")?;
    if password.len() > LONGEST_PASSWORD {
        return Err("its clientState is none");
    }
    let about = match value.get("lifecycleEvent") {
        None | Some(Value::Null) => match text("changeType").ok_or("it has no changeType")? {
            "deleted" => About::Gone,
            _ => About::News,
        },
        Some(event) => match event.as_str() {
            Some("reauthorizationRequired") => About::Ending,
            Some("subscriptionRemoved") => About::Ended,
            Some("missed") => About::Missed,
            _ => return Err("its lifecycleEvent is none that is known"),
        },
    };
    let message = match about {
        About::News | About::Gone => name(value, subscription),
        // They have no names, and the same may be told again next week.
        About::Ending | About::Ended | About::Missed => None,
    };
    Ok(Item { subscription: subscription.to_owned(), password: Secret::new(password.to_owned()), message, about })
}

/// By its id, else by what it tells of, as long as that is one state of one message.
fn name(value: &Value, subscription: &str) -> Option<String> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let parts = match text(value, "id").filter(|id| is_name(id)) {
        Some(id) => vec!["id".to_owned(), id],
        None => {
            let etag = text(value.get("resourceData")?, "@odata.etag")?;
            vec![text(value, "changeType")?, text(value, "resource")?, etag]
        }
    };
    if parts.iter().any(|part| part.len() > LONGEST_RESOURCE) {
        return None;
    }
    Some(Sha256::of(format!("{subscription}\n{}", parts.join("\n")).as_bytes()).hex())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn good() -> Value {
        json!({"id": "n1", "subscriptionId": "s1", "clientState": "secret", "changeType": "updated", "tenantId": "t",
            "resource": "Users/u/Messages/m", "resourceData": {"@odata.etag": "W/\"1\"", "id": "m"}})
    }

    fn changed(changes: &[(&str, Value)]) -> Value {
        let mut item = good();
        for (field, value) in changes {
            item[field] = value.clone();
        }
        item
    }

    fn read_all(items: &[Value]) -> Vec<Result<Item, &'static str>> {
        read(json!({"value": items, "validationTokens": null}).to_string().as_bytes()).unwrap().0
    }

    #[test]
    fn each_kind_of_item_is_known_for_what_it_means() {
        for (changes, about) in [
            (vec![("changeType", json!("created"))], About::News),
            (vec![("changeType", json!("deleted"))], About::Gone),
            (vec![("changeType", json!("somethingNew"))], About::News),
            (vec![("lifecycleEvent", json!(null))], About::News),
            (vec![("lifecycleEvent", json!("missed")), ("changeType", json!(null))], About::Missed),
            (vec![("lifecycleEvent", json!("subscriptionRemoved"))], About::Ended),
            (vec![("lifecycleEvent", json!("reauthorizationRequired"))], About::Ending),
        ] {
            let item = read_all(&[changed(&changes)]).remove(0).unwrap();
            let wanted = ("s1", "secret", about);
            assert_eq!((&*item.subscription, &**item.password.expose(), item.about), wanted, "{changes:?}");
            assert_eq!(item.message.is_some(), matches!(about, About::News | About::Gone), "{changes:?}");
        }
    }

    #[test]
    fn the_same_item_has_the_same_name_and_no_other_has_it() {
        let names: Vec<Option<String>> = [
            vec![],
            vec![("id", json!("n2"))],
            vec![("subscriptionId", json!("s2"))],
            vec![("id", json!(null))],
            vec![("id", json!(null)), ("changeType", json!("created"))],
            vec![("id", json!(null)), ("resource", json!("Users/u/Messages/m2"))],
            vec![("id", json!(null)), ("resourceData", json!({"@odata.etag": "W/\"2\""}))],
        ]
        .iter()
        .map(|changes| {
            let twice = read_all(&[changed(changes), changed(changes)]);
            assert_eq!(twice[0], twice[1]);
            twice[0].clone().unwrap().message
        })
        .collect();
        let distinct: std::collections::HashSet<_> = names.iter().flatten().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        // Without its state, a later change of the same message would be taken for this one.
        for data in [json!(null), json!({}), json!({"@odata.etag": 7})] {
            let nameless = changed(&[("id", json!(null)), ("resourceData", data)]);
            assert_eq!(read_all(&[nameless]).remove(0).unwrap().message, None);
        }
    }

    #[test]
    fn what_makes_no_sense_is_told_without_repeating_it_and_takes_nothing_along() {
        for (field, value, says) in [
            ("subscriptionId", json!(null), "subscriptionId"),
            ("subscriptionId", json!(7), "subscriptionId"),
            ("subscriptionId", json!("a\u{0}b"), "subscriptionId"),
            ("subscriptionId", json!("x".repeat(300)), "subscriptionId"),
            ("clientState", json!(null), "clientState"),
            ("clientState", json!(""), "clientState"),
            ("clientState", json!(["secret"]), "clientState"),
            ("clientState", json!("x".repeat(129)), "clientState"),
            ("changeType", json!(null), "changeType"),
            ("lifecycleEvent", json!("somethingNew"), "lifecycleEvent"),
            ("lifecycleEvent", json!(7), "lifecycleEvent"),
        ] {
            let items = read_all(&[good(), changed(&[(field, value)]), good()]);
            assert!(items[0].is_ok() && items[2].is_ok());
            assert!(items[1].clone().unwrap_err().contains(says), "{field}: {items:?}");
        }
        for item in [json!(null), json!(7), json!([]), json!("x"), json!({})] {
            assert!(read_all(&[item])[0].is_err());
        }
        for body in
            [&b""[..], b"{", b"null", b"[]", b"\xff", b"{}", b"{\"value\":null}", b"{\"value\":{}}", b"{\"value\":7}"]
        {
            assert!(read(body).is_err());
        }
        assert!(read(json!({"value": vec![7; MOST_ITEMS]}).to_string().as_bytes()).is_ok());
        assert!(read(json!({"value": vec![7; MOST_ITEMS + 1]}).to_string().as_bytes()).is_err());
    }
}
