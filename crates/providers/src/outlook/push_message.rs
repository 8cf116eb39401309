//! Parses the calls of Microsoft Graph: notifications of several subscriptions, each authenticated by its own
//! clientState. Each is parsed on its own: a malformed one does not affect the others.

use std::fmt;

use domain::{PushBatch, PushKind, PushNotification, PushSubject, Secret, Sha256};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;

/// The longest accepted id; Microsoft's are UUIDs.
const MAX_ID_BYTES: usize = 255;

/// The longest clientState that Graph keeps.
const MAX_CLIENT_STATE_BYTES: usize = 128;

/// The longest accepted resource path; real ones are far shorter.
const MAX_RESOURCE_BYTES: usize = 4096;

/// The most notifications of one call: far more than Graph sends, at some hundred bytes each.
const MAX_NOTIFICATIONS: usize = 5000;

struct GraphNotifications(PushBatch);

#[derive(Deserialize)]
struct GraphEnvelope {
    value: GraphNotifications,
}

/// Parses the body of a call. The error says nothing of the content.
pub fn read(body: &[u8]) -> Result<PushBatch, &'static str> {
    let envelope: GraphEnvelope =
        serde_json::from_slice(body).map_err(|_| "the body is not a Microsoft Graph notification")?;
    Ok(envelope.value.0)
}

/// Parses one by one, so that a hostile body does not become many times as large in memory.
impl<'de> Deserialize<'de> for GraphNotifications {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NotificationVisitor;
        impl<'de> Visitor<'de> for NotificationVisitor {
            type Value = GraphNotifications;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of notifications")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<GraphNotifications, A::Error> {
                let mut items = Vec::new();
                while let Some(value) = all.next_element::<Value>()? {
                    if items.len() == MAX_NOTIFICATIONS {
                        return Err(A::Error::custom("too many notifications"));
                    }
                    items.push(parse_notification(&value));
                }
                Ok(GraphNotifications(items))
            }
        }
        from.deserialize_seq(NotificationVisitor)
    }
}

fn parse_notification(value: &Value) -> Result<PushNotification, &'static str> {
    let subscription = text(value, "subscriptionId")
        .filter(|notification_id| is_id(notification_id))
        .ok_or("subscriptionId is missing or not valid")?;
    let client_state = text(value, "clientState").filter(|said| !said.is_empty()).ok_or("clientState is missing")?;
    if client_state.len() > MAX_CLIENT_STATE_BYTES {
        return Err("clientState is too long");
    }
    let kind = match value.get("lifecycleEvent") {
        None | Some(Value::Null) => match text(value, "changeType").ok_or("changeType is missing")? {
            "deleted" => PushKind::Deleted,
            _ => PushKind::Changed,
        },
        Some(event) => match event.as_str() {
            Some("reauthorizationRequired") => PushKind::WatchExpiring,
            Some("subscriptionRemoved") => PushKind::WatchEnded,
            Some("missed") => PushKind::Missed,
            _ => return Err("lifecycleEvent is not known"),
        },
    };
    let id = match kind {
        PushKind::Changed | PushKind::Deleted => notification_id(value, subscription),
        // Lifecycle events have no id, and the same one may come again next week.
        PushKind::WatchExpiring | PushKind::WatchEnded | PushKind::Missed => None,
    };
    let subject =
        PushSubject::Subscription { id: subscription.to_owned(), client_state: Secret::new(client_state.to_owned()) };
    Ok(PushNotification { id, subject, kind })
}

/// Derives the id of a notification from its own id, else from the change, as long as that is one state of one message.
fn notification_id(value: &Value, subscription: &str) -> Option<String> {
    let parts = match text(value, "id").filter(|id| is_id(id)) {
        Some(id) => vec!["id", id],
        None => {
            let etag = text(value.get("resourceData")?, "@odata.etag")?;
            vec![text(value, "changeType")?, text(value, "resource")?, etag]
        }
    };
    if parts.iter().any(|part| part.len() > MAX_RESOURCE_BYTES) {
        return None;
    }
    Some(Sha256::of(format!("{subscription}\n{}", parts.join("\n")).as_bytes()).hex())
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}

fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_ID_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
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
        let mut notification = good();
        for (field, value) in changes {
            notification[field] = value.clone();
        }
        notification
    }

    fn read_all(items: &[Value]) -> PushBatch {
        read(json!({"value": items, "validationTokens": null}).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn each_notification_maps_to_its_push_kind() {
        for (changes, kind) in [
            (vec![("changeType", json!("created"))], PushKind::Changed),
            (vec![("changeType", json!("deleted"))], PushKind::Deleted),
            (vec![("changeType", json!("somethingNew"))], PushKind::Changed),
            (vec![("lifecycleEvent", json!(null))], PushKind::Changed),
            (vec![("lifecycleEvent", json!("missed")), ("changeType", json!(null))], PushKind::Missed),
            (vec![("lifecycleEvent", json!("subscriptionRemoved"))], PushKind::WatchEnded),
            (vec![("lifecycleEvent", json!("reauthorizationRequired"))], PushKind::WatchExpiring),
        ] {
            let notification = read_all(&[changed(&changes)]).remove(0).unwrap();
            let subject =
                PushSubject::Subscription { id: "s1".to_owned(), client_state: Secret::new("secret".to_owned()) };
            assert_eq!((&notification.subject, notification.kind), (&subject, kind), "{changes:?}");
            assert_eq!(notification.id.is_some(), matches!(kind, PushKind::Changed | PushKind::Deleted), "{changes:?}");
        }
    }

    #[test]
    fn notification_ids_are_stable_and_distinct() {
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
            twice[0].clone().unwrap().id
        })
        .collect();
        let distinct: std::collections::HashSet<_> = names.iter().flatten().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        // Without its state, a later change of the same message would be taken for this one.
        for data in [json!(null), json!({}), json!({"@odata.etag": 7})] {
            let nameless = changed(&[("id", json!(null)), ("resourceData", data)]);
            assert_eq!(read_all(&[nameless]).remove(0).unwrap().id, None);
        }
    }

    #[test]
    fn malformed_notification_does_not_affect_others() {
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
        for notification in [json!(null), json!(7), json!([]), json!("x"), json!({})] {
            assert!(read_all(&[notification])[0].is_err());
        }
        for body in
            [&b""[..], b"{", b"null", b"[]", b"\xff", b"{}", b"{\"value\":null}", b"{\"value\":{}}", b"{\"value\":7}"]
        {
            assert!(read(body).is_err());
        }
        assert!(read(json!({"value": vec![7; MAX_NOTIFICATIONS]}).to_string().as_bytes()).is_ok());
        assert!(read(json!({"value": vec![7; MAX_NOTIFICATIONS + 1]}).to_string().as_bytes()).is_err());
    }
}
