//! Subscriptions: made, renewed and ended.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::account::Account;
use super::super::error::Refusal;
use super::super::face::instant;
use super::super::subscriptions::{Subscription, validate};
use super::super::world::Mailbox;
use super::call::{Entered, READS_MAIL, allows, denied, named};
use crate::answer::{Answer, Body};
use crate::spec::Side;

/// How long a subscription to messages lives at most, and at least.
const LONGEST_MS: i64 = 10_080 * 60_000;
const SHORTEST_MS: i64 = 45 * 60_000;

const LONGEST_STATE: usize = 128;

fn wrong(message: impl Into<String>) -> Refusal {
    Refusal::new(400, "ValidationError", message)
}

fn gone(id: &str) -> Refusal {
    Refusal::new(404, "ResourceNotFound", format!("The object was not found. Subscription {id} does not exist."))
}

pub async fn create(entered: &Entered<'_>) -> Result<Answer, Refusal> {
    let (world, body) = (entered.world, entered.body.unwrap_or(&Value::Null));
    let text = |field: &str| body[field].as_str().map(str::to_owned);
    let required = |field: &str| text(field).ok_or_else(|| wrong(format!("{field} is required.")));
    let (resource, notification_url) = (required("resource")?, required("notificationUrl")?);
    let change_type = change_types(&required("changeType")?)?;
    let expires_ms = expiration(entered, &required("expirationDateTime")?)?;
    let (mailbox, folder) = watched(entered, &resource)?;
    if !allows(entered, &READS_MAIL) && !allows(entered, &["Mail.ReadBasic"]) {
        return Err(denied());
    }
    let client_state = text("clientState");
    if client_state.as_ref().is_some_and(|state| state.len() > LONGEST_STATE) {
        return Err(wrong("clientState is longer than 128 characters."));
    }
    if body["includeResourceData"] == true {
        return Err(wrong("includeResourceData needs an encryption certificate, which is not simulated."));
    }
    let lifecycle_url = text("lifecycleNotificationUrl");
    for url in [Some(&notification_url), lifecycle_url.as_ref()].into_iter().flatten() {
        if world.subscriptions.settings().require_https && !url.starts_with("https://") {
            return Err(wrong("Notification URLs must use https."));
        }
        validate(world, url).await.map_err(wrong)?;
    }
    let subscription = Subscription {
        id: world.subscriptions.guid(),
        client: entered.access.asked.client.clone(),
        account: mailbox.address.clone(),
        directory: mailbox.directory.clone(),
        resource,
        folder,
        change_type,
        notification_url,
        lifecycle_url,
        client_state,
        expires_ms,
        is_immutable: entered.prefer.is_immutable,
        is_paused: false,
    };
    let mut shown = show(&subscription, true);
    shown["@odata.context"] = json!(format!("{}/v1.0/$metadata#subscriptions/$entity", world.url()));
    match world.subscriptions.add(subscription, world.now_ms()) {
        true => Ok(Answer::new(201, Body::Json(shown))),
        false => {
            let message = "A subscription of this application for the same resource and change type exists.";
            Err(Refusal::new(409, "ExtensionError", message))
        }
    }
}

fn change_types(given: &str) -> Result<String, Refusal> {
    let mut kinds: Vec<&str> = given.split(',').map(str::trim).collect();
    kinds.sort_unstable();
    kinds.dedup();
    match kinds.iter().all(|kind| ["created", "updated", "deleted"].contains(kind)) {
        true => Ok(kinds.join(",")),
        false => Err(wrong(format!("changeType {given:?} is not made of created, updated and deleted."))),
    }
}

/// Not too far away; what is too near becomes the least there is.
fn expiration(entered: &Entered<'_>, given: &str) -> Result<i64, Refusal> {
    let given: Timestamp = given.parse().map_err(|_| wrong("expirationDateTime is no time in UTC."))?;
    let (now_ms, given_ms) = (entered.world.now_ms(), given.as_millisecond());
    if given_ms <= now_ms {
        return Err(wrong("Subscription expiration must be in the future."));
    }
    if given_ms - now_ms > LONGEST_MS {
        return Err(wrong("Subscription expiration can only be 10080 minutes in the future."));
    }
    Ok(given_ms.max(now_ms + SHORTEST_MS))
}

/// The mailbox and the folder of a resource, as in `/users/{id}/mailFolders/{id}/messages`.
fn watched(entered: &Entered<'_>, resource: &str) -> Result<(Arc<Mailbox>, Option<u32>), Refusal> {
    let unknown = || wrong(format!("The resource {resource:?} is not supported."));
    let parts: Vec<&str> = resource.trim_start_matches('/').split('/').collect();
    let (user, rest) = match parts[..] {
        ["me", ref rest @ ..] => ("", rest),
        ["users" | "Users", user, ref rest @ ..] => (user, rest),
        _ => return Err(unknown()),
    };
    let mailbox = named(entered, user)?;
    let folder_of =
        |account: &Account, id: &str| account.find_folder(id).map_err(|_| wrong("There is no such folder."));
    let folder = match rest {
        ["messages" | "Messages"] => None,
        ["mailFolders" | "MailFolders", id, "messages" | "Messages"] => Some(folder_of(&mailbox.account(), id)?),
        [quoted, "messages" | "Messages"] => {
            let id =
                quoted.strip_prefix("mailFolders('").and_then(|rest| rest.strip_suffix("')")).ok_or_else(unknown)?;
            Some(folder_of(&mailbox.account(), id)?)
        }
        _ => return Err(unknown()),
    };
    Ok((mailbox, folder))
}

fn show(subscription: &Subscription, with_state: bool) -> Value {
    json!({
        "id": subscription.id,
        "applicationId": subscription.client,
        "changeType": subscription.change_type,
        "clientState": subscription.client_state.as_ref().filter(|_| with_state),
        "creatorId": null,
        "expirationDateTime": instant(subscription.expires_ms / 1_000),
        "includeResourceData": null,
        "latestSupportedTlsVersion": "v1_2",
        "lifecycleNotificationUrl": subscription.lifecycle_url,
        "notificationUrl": subscription.notification_url,
        "resource": subscription.resource,
    })
}

/// Whether it was made by whoever asks: the same program, and for a person, in that person's name.
fn is_own(entered: &Entered<'_>, subscription: &Subscription) -> bool {
    let asked = &entered.access.asked;
    let is_of = match &asked.account {
        Some(account) => *account == subscription.account,
        None => asked.directory == subscription.directory,
    };
    is_of && asked.client == subscription.client
}

fn own(entered: &Entered<'_>) -> Result<Subscription, Refusal> {
    let id = entered.call.path("subscription-id");
    let found = entered.world.subscriptions.find(id, entered.world.now_ms());
    found.filter(|subscription| is_own(entered, subscription)).ok_or_else(|| gone(id))
}

pub fn list(entered: &Entered<'_>) -> Answer {
    let all = entered.world.subscriptions.list(entered.world.now_ms());
    let value: Vec<Value> =
        all.iter().filter(|subscription| is_own(entered, subscription)).map(|one| show(one, false)).collect();
    let context = format!("{}/v1.0/$metadata#subscriptions", entered.world.url());
    Answer::json(json!({"@odata.context": context, "value": value}))
}

pub fn get(entered: &Entered<'_>) -> Result<Answer, Refusal> {
    own(entered).map(|subscription| Answer::json(show(&subscription, false)))
}

/// Only how long it lives can be changed.
pub fn renew(entered: &Entered<'_>) -> Result<Answer, Refusal> {
    let subscription = own(entered)?;
    let body = entered.body.unwrap_or(&Value::Null);
    let names: Vec<&String> = body.as_object().into_iter().flatten().map(|(name, _)| name).collect();
    if names != ["expirationDateTime"] {
        let why = format!("a subscription is renewed with expirationDateTime and nothing else, not {names:?}");
        entered.world.violations.add(Side::Request, &entered.call.method.id, &why);
        return Err(wrong(why));
    }
    let expires_ms = expiration(entered, body["expirationDateTime"].as_str().unwrap_or_default())?;
    let renewed = entered.world.subscriptions.renew(&subscription.id, Some(expires_ms));
    renewed.map(|subscription| Answer::json(show(&subscription, true))).ok_or_else(|| gone(&subscription.id))
}

pub fn reauthorize(entered: &Entered<'_>) -> Result<Answer, Refusal> {
    let subscription = own(entered)?;
    entered.world.subscriptions.renew(&subscription.id, None);
    Ok(Answer::new(204, Body::Empty))
}

pub fn delete(entered: &Entered<'_>) -> Result<Answer, Refusal> {
    let subscription = own(entered)?;
    entered.world.subscriptions.remove(&subscription.id);
    Ok(Answer::new(204, Body::Empty))
}
