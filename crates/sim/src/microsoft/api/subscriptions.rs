//! Subscriptions: create, read, renew, reauthorize, delete.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::account::OutlookAccount;
use super::super::error::GraphError;
use super::super::message_view::instant;
use super::super::subscriptions::{Subscription, validate};
use super::super::world::MicrosoftMailbox;
use super::call::{GraphCallContext, READ_MAIL, allows, denied, named};
use crate::response::{ResponseBody, SimResponse};
use crate::spec::Side;

/// The maximum lifetime of a subscription; the minimum follows.
const MAX_LIFETIME_MS: i64 = 10_080 * 60_000;
const MIN_LIFETIME_MS: i64 = 45 * 60_000;

const MAX_CLIENT_STATE_CHARS: usize = 128;

fn validation_error(message: impl Into<String>) -> GraphError {
    GraphError::new(400, "ValidationError", message)
}

fn not_found(id: &str) -> GraphError {
    GraphError::new(404, "ResourceNotFound", format!("The object was not found. Subscription {id} does not exist."))
}

fn unsupported_resource(resource: &str) -> GraphError {
    validation_error(format!("The resource {resource:?} is not supported."))
}

fn find_text(body: &Value, field: &str) -> Option<String> {
    body[field].as_str().map(str::to_owned)
}

fn required_text(body: &Value, field: &str) -> Result<String, GraphError> {
    find_text(body, field).ok_or_else(|| validation_error(format!("{field} is required.")))
}

fn find_folder(account: &OutlookAccount, id: &str) -> Result<u32, GraphError> {
    account.find_folder(id).map_err(|_| validation_error("There is no such folder."))
}

pub async fn create(context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    let (world, body) = (context.world, context.body.unwrap_or(&Value::Null));
    let (resource, notification_url) = (required_text(body, "resource")?, required_text(body, "notificationUrl")?);
    let change_type = change_types(&required_text(body, "changeType")?)?;
    let expires_ms = expiration(context, &required_text(body, "expirationDateTime")?)?;
    let (mailbox, folder) = resolve_resource(context, &resource)?;
    if !allows(context, &READ_MAIL) && !allows(context, &["Mail.ReadBasic"]) {
        return Err(denied());
    }
    let client_state = find_text(body, "clientState");
    if client_state.as_ref().is_some_and(|state| state.len() > MAX_CLIENT_STATE_CHARS) {
        return Err(validation_error("clientState is longer than 128 characters."));
    }
    if body["includeResourceData"] == true {
        return Err(validation_error("includeResourceData needs an encryption certificate, which is not simulated."));
    }
    let lifecycle_url = find_text(body, "lifecycleNotificationUrl");
    for url in [Some(&notification_url), lifecycle_url.as_ref()].into_iter().flatten() {
        if world.provider.subscriptions.settings().require_https && !url.starts_with("https://") {
            return Err(validation_error("Notification URLs must use https."));
        }
        validate(world, url).await.map_err(validation_error)?;
    }
    let subscription = Subscription {
        id: world.provider.subscriptions.guid(),
        client: context.access.grant.client.clone(),
        account: mailbox.address.clone(),
        directory: mailbox.state.directory.clone(),
        resource,
        folder,
        change_type,
        notification_url,
        lifecycle_url,
        client_state,
        expires_ms,
        is_immutable: context.prefer.is_immutable,
        is_paused: false,
    };
    let mut shown = show(&subscription, true);
    shown["@odata.context"] = json!(format!("{}/v1.0/$metadata#subscriptions/$entity", world.url()));
    if world.provider.subscriptions.add(subscription, world.now_ms()) {
        Ok(SimResponse::new(201, ResponseBody::Json(shown)))
    } else {
        let message = "A subscription of this application for the same resource and change type exists.";
        Err(GraphError::new(409, "ExtensionError", message))
    }
}

fn change_types(given: &str) -> Result<String, GraphError> {
    let mut kinds: Vec<&str> = given.split(',').map(str::trim).collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.iter().all(|kind| ["created", "updated", "deleted"].contains(kind)) {
        Ok(kinds.join(","))
    } else {
        Err(validation_error(format!("changeType {given:?} is not made of created, updated and deleted.")))
    }
}

/// Checks the requested expiration and raises it to the minimum lifetime.
fn expiration(context: &GraphCallContext<'_>, given: &str) -> Result<i64, GraphError> {
    let given: Timestamp = given.parse().map_err(|_| validation_error("expirationDateTime is no time in UTC."))?;
    let (now_ms, given_ms) = (context.world.now_ms(), given.as_millisecond());
    if given_ms <= now_ms {
        return Err(validation_error("Subscription expiration must be in the future."));
    }
    if given_ms - now_ms > MAX_LIFETIME_MS {
        return Err(validation_error("Subscription expiration can only be 10080 minutes in the future."));
    }
    Ok(given_ms.max(now_ms + MIN_LIFETIME_MS))
}

/// Finds the mailbox and folder of a resource, as in `/users/{id}/mailFolders/{id}/messages`.
fn resolve_resource(
    context: &GraphCallContext<'_>,
    resource: &str,
) -> Result<(Arc<MicrosoftMailbox>, Option<u32>), GraphError> {
    let parts: Vec<&str> = resource.trim_start_matches('/').split('/').collect();
    let (user, rest) = match parts[..] {
        ["me", ref rest @ ..] => ("", rest),
        ["users" | "Users", user, ref rest @ ..] => (user, rest),
        _ => return Err(unsupported_resource(resource)),
    };
    let mailbox = named(context, user)?;
    let folder = match rest {
        ["messages" | "Messages"] => None,
        ["mailFolders" | "MailFolders", id, "messages" | "Messages"] => Some(find_folder(&mailbox.account(), id)?),
        [quoted, "messages" | "Messages"] => {
            let id = quoted
                .strip_prefix("mailFolders('")
                .and_then(|rest| rest.strip_suffix("')"))
                .ok_or_else(|| unsupported_resource(resource))?;
            Some(find_folder(&mailbox.account(), id)?)
        }
        _ => return Err(unsupported_resource(resource)),
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

/// Returns whether the token's client and account created the subscription.
fn is_own(context: &GraphCallContext<'_>, subscription: &Subscription) -> bool {
    let grant = &context.access.grant;
    let is_of = match &grant.account {
        Some(account) => *account == subscription.account,
        None => grant.directory == subscription.directory,
    };
    is_of && grant.client == subscription.client
}

fn own(context: &GraphCallContext<'_>) -> Result<Subscription, GraphError> {
    let id = context.call.path("subscription-id");
    let found = context.world.provider.subscriptions.find(id, context.world.now_ms());
    found.filter(|subscription| is_own(context, subscription)).ok_or_else(|| not_found(id))
}

pub fn list(context: &GraphCallContext<'_>) -> SimResponse {
    let all = context.world.provider.subscriptions.list(context.world.now_ms());
    let value: Vec<Value> =
        all.iter().filter(|subscription| is_own(context, subscription)).map(|one| show(one, false)).collect();
    let context = format!("{}/v1.0/$metadata#subscriptions", context.world.url());
    SimResponse::json(json!({"@odata.context": context, "value": value}))
}

pub fn get(context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    own(context).map(|subscription| SimResponse::json(show(&subscription, false)))
}

/// Renews a subscription. Only its expiration can be changed.
pub fn renew(context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    let subscription = own(context)?;
    let body = context.body.unwrap_or(&Value::Null);
    let names: Vec<&String> = body.as_object().into_iter().flatten().map(|(name, _)| name).collect();
    if names != ["expirationDateTime"] {
        let why = format!("a subscription is renewed with expirationDateTime and nothing else, not {names:?}");
        context.world.violations.add(Side::Request, &context.call.method.id, &why);
        return Err(validation_error(why));
    }
    let expires_ms = expiration(context, body["expirationDateTime"].as_str().unwrap_or_default())?;
    let renewed = context.world.provider.subscriptions.renew(&subscription.id, Some(expires_ms));
    renewed.map(|subscription| SimResponse::json(show(&subscription, true))).ok_or_else(|| not_found(&subscription.id))
}

pub fn reauthorize(context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    let subscription = own(context)?;
    context.world.provider.subscriptions.renew(&subscription.id, None);
    Ok(SimResponse::new(204, ResponseBody::Empty))
}

pub fn delete(context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    let subscription = own(context)?;
    context.world.provider.subscriptions.remove(&subscription.id);
    Ok(SimResponse::new(204, ResponseBody::Empty))
}
