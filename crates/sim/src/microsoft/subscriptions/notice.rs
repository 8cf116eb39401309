//! What a notification says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::account::{Change, Event};
use super::super::face::instant;
use super::super::faults::{Kind, Route};
use super::super::world::{Mailbox, World};
use super::{Due, Subscription};
use crate::push::chaos;

/// What happens to a subscription itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LifecycleEvent {
    /// Nothing is told until it is reauthorized or renewed.
    ReauthorizationRequired,
    SubscriptionRemoved,
    /// Some changes were not told.
    Missed,
}

/// What a change is to this subscription: a move looks different from one folder than from outside.
fn seen_by(subscription: &Subscription, change: Change) -> Option<&'static str> {
    let seen = match (subscription.folder, change) {
        (None, Change::Created { .. }) => "created",
        (None, Change::Updated { .. } | Change::Moved { .. }) => "updated",
        (None, Change::Deleted { .. }) => "deleted",
        (Some(of), Change::Created { folder }) if of == folder => "created",
        (Some(of), Change::Updated { folder }) if of == folder => "updated",
        (Some(of), Change::Deleted { folder }) if of == folder => "deleted",
        (Some(of), Change::Moved { to, .. }) if of == to => "created",
        (Some(of), Change::Moved { from, .. }) if of == from => "deleted",
        _ => return None,
    };
    subscription.wants(seen).then_some(seen)
}

/// A mailbox has changed: whoever wants to know is to be told.
pub fn tell(world: &World, mailbox: &Mailbox, events: &[Event]) {
    if events.is_empty() {
        return;
    }
    let concerned = world.subscriptions.state().of_account(&mailbox.address, world.now_ms());
    if concerned.is_empty() {
        return;
    }
    let mut items: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in events {
        for subscription in &concerned {
            let Some(change) = seen_by(subscription, event.change) else { continue };
            if subscription.is_paused {
                world.subscriptions.state().counts.withheld += 1;
                continue;
            }
            let item = item(world, mailbox, subscription, event, change);
            items.entry(subscription.notification_url.clone()).or_default().push(item);
        }
    }
    for (url, items) in items {
        let most = world.subscriptions.settings().batch.max(1);
        world.subscriptions.state().counts.published += items.len() as u64;
        items.chunks(most).for_each(|items| publish(world, &mailbox.address, &url, items));
    }
}

fn item(world: &World, mailbox: &Mailbox, subscription: &Subscription, event: &Event, change: &str) -> Value {
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

/// What every notification says.
fn head(world: &World, subscription: &Subscription) -> Value {
    let mut head = json!({
        "id": world.subscriptions.guid(), "subscriptionId": subscription.id,
        "subscriptionExpirationDateTime": instant(subscription.expires_ms / 1_000), "tenantId": subscription.directory,
    });
    if let Some(client_state) = &subscription.client_state {
        head["clientState"] = json!(client_state);
    }
    head
}

/// Whether it has somewhere to be told.
pub fn send_lifecycle(world: &World, subscription: &Subscription, event: LifecycleEvent) -> bool {
    let Some(url) = &subscription.lifecycle_url else { return false };
    let mut item = head(world, subscription);
    item["lifecycleEvent"] = json!(event);
    publish(world, &subscription.account, url, &[item]);
    true
}

fn publish(world: &World, account: &str, url: &str, items: &[Value]) {
    let faults = world.faults.draw(account, Route::Notify);
    let mut state = world.subscriptions.state();
    let state = &mut *state;
    let delays = match state.settings.chaos {
        true => chaos(&mut state.rng),
        false => delays(&faults),
    };
    state.counts.lost += u64::from(delays.is_empty());
    state.counts.pending += delays.len() as u64;
    let body = json!({"value": items});
    state.queue.extend(delays.into_iter().map(|delay_ms| Due { url: url.to_owned(), body: body.clone(), delay_ms }));
    world.subscriptions.wake.notify_one();
}

/// One for each time that it is sent.
fn delays(faults: &[Kind]) -> Vec<u64> {
    let (mut times, mut delay) = (1, 0);
    for fault in faults {
        match fault {
            Kind::Lost => return Vec::new(),
            Kind::Duplicated { times: more } => times += more,
            Kind::Delayed { ms } => delay = *ms,
            _ => {}
        }
    }
    (0..times).map(|_| delay).collect()
}
