//! A few mailboxes a day are compared with their providers.

use domain::Lane;
use jobs::{Held, Job, JobError, Kind, Verdict};
use serde::{Deserialize, Serialize};

use crate::sync::Syncer;

/// Compares a sample of all mailboxes; the sum of what differs is a metric.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckCompleteness {}

impl Job for CheckCompleteness {
    const KIND: &'static str = "check_completeness";
    const LANE: Lane = Lane::Low;
}

/// Mailboxes that are compared each time, those first that were not for longest.
const SAMPLE: u64 = 20;

pub(super) fn kind(syncer: Syncer) -> Kind {
    Kind::new(move |held, _: CheckCompleteness| {
        let syncer = syncer.clone();
        async move { run(&syncer, &held).await }
    })
}

async fn run(syncer: &Syncer, held: &Held) -> Result<Verdict, JobError> {
    let mut difference = 0;
    for (tenant, id) in held.store.system().sample_mailboxes(SAMPLE).await? {
        held.progress();
        let store = held.store.tenant(tenant);
        let Some(mailbox) = store.find_mailbox(&id.to_string()).await? else { continue };
        match syncer.compare(&mailbox).await {
            Ok(Some(compared)) if compared.difference() > 0 => {
                // Its changes may be on their way; what is still there tomorrow is not.
                tracing::warn!(mailbox = %id, difference = compared.difference(), "a mailbox differs from its provider");
                difference += compared.difference();
            }
            Ok(_) => {}
            Err(e) => tracing::warn!(mailbox = %id, "cannot compare a mailbox with its provider: {e:#}"),
        }
    }
    metrics::gauge!("mailroom_completeness_difference").set(difference as f64);
    Ok(Verdict::Done)
}
