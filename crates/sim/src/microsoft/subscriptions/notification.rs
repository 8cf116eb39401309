//! Builds and queues notifications.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::account::{MailboxEvent, MessageChange};
use super::super::faults::MicrosoftRoute;
use super::super::message_view::instant;
use super::super::world::{MicrosoftMailbox, MicrosoftWorld};
use super::{PendingNotification, Subscription};
use crate::push_delivery::{chaos_delays_ms, delays_ms};

/// A lifecycle notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LifecycleEvent {
    /// Notifications are withheld until it is reauthorized or renewed.
    ReauthorizationRequired,
    SubscriptionRemoved,
    /// Some changes were not reported.
    Missed,
}

/// Returns the change type for a subscription: a move is created, deleted or updated, by its folder.
fn change_type_for(subscription: &Subscription, change: MessageChange) -> Option<&'static str> {
    let seen = match (subscription.folder, change) {
        (None, MessageChange::Created { .. }) => "created",
        (None, MessageChange::Updated { .. } | MessageChange::Moved { .. }) => "updated",
        (None, MessageChange::Deleted { .. }) => "deleted",
        (Some(of), MessageChange::Created { folder }) if of == folder => "created",
        (Some(of), MessageChange::Updated { folder }) if of == folder => "updated",
        (Some(of), MessageChange::Deleted { folder }) if of == folder => "deleted",
        (Some(of), MessageChange::Moved { to, .. }) if of == to => "created",
        (Some(of), MessageChange::Moved { from, .. }) if of == from => "deleted",
        _ => return None,
    };
    subscription.wants(seen).then_some(seen)
}

/// Queues notifications of a mailbox's changes.
pub fn publish_events(world: &MicrosoftWorld, mailbox: &MicrosoftMailbox, events: &[MailboxEvent]) {
    if events.is_empty() {
        return;
    }
    let subscriptions = world.provider.subscriptions.state().of_account(&mailbox.address, world.now_ms());
    if subscriptions.is_empty() {
        return;
    }
    let mut items: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in events {
        for subscription in &subscriptions {
            let Some(change) = change_type_for(subscription, event.change) else { continue };
            if subscription.is_paused {
                world.provider.subscriptions.state().counts.withheld += 1;
                continue;
            }
            let item = item(world, mailbox, subscription, event, change);
            items.entry(subscription.notification_url.clone()).or_default().push(item);
        }
    }
    for (url, items) in items {
        let most = world.provider.subscriptions.settings().batch.max(1);
        world.provider.subscriptions.state().counts.published += items.len() as u64;
        items.chunks(most).for_each(|items| publish(world, &mailbox.address, &url, items));
    }
}

fn item(
    world: &MicrosoftWorld,
    mailbox: &MicrosoftMailbox,
    subscription: &Subscription,
    event: &MailboxEvent,
    change: &str,
) -> Value {
    let (id, change_key) = {
        let account = mailbox.account();
        let id = account.id_before(event.number, event.moves, subscription.is_immutable);
        (id, account.change_key(event.number))
    };
    let resource = format!("Users/{}/Messages/{id}", mailbox.id);
    let mut item = head(world, subscription);
    item["changeType"] = json!(change);
    item["resource"] = json!(resource);
    item["resourceData"] = json!({
        "@odata.type": "#Microsoft.Graph.Message", "@odata.id": resource,
        "@odata.etag": format!("W/\"{change_key}\""), "id": id,
    });
    item
}

/// Builds the fields of every notification.
fn head(world: &MicrosoftWorld, subscription: &Subscription) -> Value {
    let mut head = json!({
        "id": world.provider.subscriptions.guid(), "subscriptionId": subscription.id,
        "subscriptionExpirationDateTime": instant(subscription.expires_ms / 1_000), "tenantId": subscription.directory,
    });
    if let Some(client_state) = &subscription.client_state {
        head["clientState"] = json!(client_state);
    }
    head
}

/// Queues a lifecycle notification. Returns `false` if the subscription has no URL for it.
pub fn send_lifecycle(world: &MicrosoftWorld, subscription: &Subscription, event: LifecycleEvent) -> bool {
    let Some(url) = &subscription.lifecycle_url else { return false };
    let mut item = head(world, subscription);
    item["lifecycleEvent"] = json!(event);
    publish(world, &subscription.account, url, &[item]);
    true
}

fn publish(world: &MicrosoftWorld, account: &str, url: &str, items: &[Value]) {
    let faults = world.faults.draw(account, MicrosoftRoute::Notify);
    let mut state = world.provider.subscriptions.state();
    let state = &mut *state;
    let delays = if state.settings.chaos { chaos_delays_ms(&mut state.rng) } else { delays_ms(&faults) };
    state.counts.lost += u64::from(delays.is_empty());
    state.counts.pending += delays.len() as u64;
    let body = json!({"value": items});
    state.queue.extend(delays.into_iter().map(|delay_ms| PendingNotification {
        url: url.to_owned(),
        body: body.clone(),
        delay_ms,
    }));
    world.provider.subscriptions.wake.notify_one();
}
