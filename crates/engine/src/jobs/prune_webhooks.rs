//! The log of what was delivered to webhooks has an end.

use std::time::Duration;

use domain::Lane;
use jobs::{Job, Kind, Verdict};
use serde::{Deserialize, Serialize};

/// Forgets deliveries that are over for long enough, and webhooks that were removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PruneWebhooks {}

impl Job for PruneWebhooks {
    const KIND: &'static str = "prune_webhooks";
    const LANE: Lane = Lane::Low;
}

pub(super) fn kind(keep: Duration) -> Kind {
    Kind::new(move |held: jobs::Held, _: PruneWebhooks| async move {
        while held.store.system().prune_deliveries(keep).await? {
            held.progress();
        }
        Ok(Verdict::Done)
    })
}
