//! Lists the users of a directory page by page. Each page is one commit with the cursor, so an interrupted listing
//! resumes.

use domain::connector::Cursors;
use domain::{ConnectorError, DirectoryPeoplePage};
use jiff::SignedDuration;
use store::TenantStore;
use store::failpoint::Effect;
use store::sql::directories::{DiscoveryClaim, DiscoveryToken};

use super::DiscoveryError;
use super::client::DirectoryClient;

/// How long an interrupted listing may be resumed; after that its pages are too old.
const MAX_RESUME_AGE: SignedDuration = SignedDuration::from_hours(12);

/// The interval of full listings, beside listings of changes.
const FULL_LISTING_INTERVAL: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Restarts after an expired cursor before the discovery is left for the next time.
const MAX_RESTARTS: usize = 3;

#[derive(Debug)]
pub struct ListingSummary {
    pub people: u64,
    pub is_whole: bool,
}

/// Lists to the last page.
pub async fn list_users(
    view: &DirectoryClient,
    store: &TenantStore,
    begun: &DiscoveryClaim,
    by: DiscoveryToken,
    progress: &(dyn Fn() + Send + Sync),
) -> Result<ListingSummary, DiscoveryError> {
    let mut listing = DirectoryListing::of(begun);
    if !listing.is_resumed {
        listing.begin(store, by).await?;
    }
    let (mut people, mut restarts) = (0, 0);
    loop {
        let page = match view.page(&listing.cursors).await {
            // The cursor has expired: once more, from the beginning.
            Err(ConnectorError::CursorExpired) if !listing.cursors.is_empty() && restarts < MAX_RESTARTS => {
                restarts += 1;
                listing = DirectoryListing {
                    run: listing.run + 1,
                    is_whole: true,
                    is_resumed: false,
                    cursors: Cursors::new(),
                };
                listing.begin(store, by).await?;
                people = 0;
                continue;
            }
            page => page?,
        };
        progress();
        people += page.people.len() as u64;
        listing.record(store, by, &page).await?;
        if page.is_last {
            return Ok(ListingSummary { people, is_whole: listing.is_whole });
        }
        listing.cursors = page.cursors;
    }
}

#[derive(Debug)]
struct DirectoryListing {
    run: u64,
    is_whole: bool,
    is_resumed: bool,
    cursors: Cursors,
}

impl DirectoryListing {
    /// Decides how to continue: resume, list changes, or list everything.
    fn of(begun: &DiscoveryClaim) -> Self {
        let directory = &begun.directory;
        let cursors = directory.cursors.clone();
        if directory.is_listing && is_within(begun.now, directory.begun_at, MAX_RESUME_AGE) {
            return Self { run: directory.run, is_whole: directory.is_whole, is_resumed: true, cursors };
        }
        let tells_changes = !directory.is_listing
            && !cursors.is_empty()
            && is_within(begun.now, directory.whole_at, FULL_LISTING_INTERVAL);
        let cursors = if tells_changes { cursors } else { Cursors::new() };
        Self { run: directory.run + 1, is_whole: !tells_changes, is_resumed: false, cursors }
    }

    async fn begin(&self, store: &TenantStore, by: DiscoveryToken) -> Result<(), DiscoveryError> {
        let mut unit = store.write();
        unit.begin_listing(by, self.run, self.is_whole, &self.cursors);
        unit.commit().await?;
        Ok(())
    }

    async fn record(
        &self,
        store: &TenantStore,
        by: DiscoveryToken,
        page: &DirectoryPeoplePage,
    ) -> Result<(), DiscoveryError> {
        let mut unit = store.write();
        unit.advance_listing(by, &page.cursors, page.is_last);
        unit.record_people(by.provider, self.run, &page.people, self.is_whole);
        unit.record_departures(by.provider, self.run, &page.removed);
        // Only a complete listing tells who is no longer there.
        if page.is_last && self.is_whole {
            unit.mark_unlisted_departed(by.provider, self.run);
        }
        unit.commit_at(Effect::RecordPeople).await?;
        Ok(())
    }
}

fn is_within(now: jiff::Timestamp, since: Option<jiff::Timestamp>, max: SignedDuration) -> bool {
    since.is_some_and(|since| now.duration_since(since) < max)
}
