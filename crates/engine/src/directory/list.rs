//! Who there is, page by page. Each page is one commit with where the listing stands, so whoever follows goes on there.

use domain::connector::Cursors;
use domain::{ConnectorError, PeoplePage};
use jiff::SignedDuration;
use store::TenantStore;
use store::failpoint::{self, Effect};
use store::sql::directories::{Begun, By};

use super::DiscoveryError;
use super::view::View;

/// A listing that was broken off is gone on with for so long; what it told is old then.
const GOES_ON_FOR: SignedDuration = SignedDuration::from_hours(12);

/// However well changes are told, everybody is listed again after so long.
const WHOLE_EVERY: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Who forgets again and again where we were is left for the next time.
const TRIES: usize = 3;

#[derive(Debug)]
pub struct Listed {
    pub people: u64,
    pub is_whole: bool,
}

/// To its last page.
pub async fn everybody(
    view: &View,
    store: &TenantStore,
    begun: &Begun,
    by: By,
    progress: &(dyn Fn() + Send + Sync),
) -> Result<Listed, DiscoveryError> {
    let mut listing = Listing::of(begun);
    if !listing.goes_on {
        listing.begin(store, by).await?;
    }
    let (mut people, mut forgotten) = (0, 0);
    loop {
        let page = match view.page(&listing.cursors).await {
            // Where we were is forgotten: once more, from the beginning.
            Err(ConnectorError::CursorExpired) if !listing.cursors.is_empty() && forgotten < TRIES => {
                forgotten += 1;
                listing = Listing { run: listing.run + 1, is_whole: true, goes_on: false, cursors: Cursors::new() };
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
            return Ok(Listed { people, is_whole: listing.is_whole });
        }
        listing.cursors = page.cursors;
    }
}

#[derive(Debug)]
struct Listing {
    run: u64,
    is_whole: bool,
    goes_on: bool,
    cursors: Cursors,
}

impl Listing {
    /// What is to be done next.
    fn of(begun: &Begun) -> Self {
        let directory = &begun.directory;
        let is_within = |since: Option<jiff::Timestamp>, most: SignedDuration| {
            since.is_some_and(|since| begun.now.duration_since(since) < most)
        };
        let cursors = directory.cursors.clone();
        if directory.is_listing && is_within(directory.begun_at, GOES_ON_FOR) {
            return Self { run: directory.run, is_whole: directory.is_whole, goes_on: true, cursors };
        }
        let tells_changes = !directory.is_listing && !cursors.is_empty() && is_within(directory.whole_at, WHOLE_EVERY);
        let cursors = if tells_changes { cursors } else { Cursors::new() };
        Self { run: directory.run + 1, is_whole: !tells_changes, goes_on: false, cursors }
    }

    async fn begin(&self, store: &TenantStore, by: By) -> Result<(), DiscoveryError> {
        let mut unit = store.write();
        unit.begin_listing(by, self.run, self.is_whole, &self.cursors);
        unit.commit().await?;
        Ok(())
    }

    async fn record(&self, store: &TenantStore, by: By, page: &PeoplePage) -> Result<(), DiscoveryError> {
        let mut unit = store.write();
        unit.move_listing(by, &page.cursors, page.is_last);
        unit.record_people(by.provider, self.run, &page.people, self.is_whole);
        unit.record_gone(by.provider, self.run, &page.gone);
        // Only a listing that came to its end says who is not there.
        if page.is_last && self.is_whole {
            unit.forget_unlisted(by.provider, self.run);
        }
        failpoint::before(Effect::RecordPeople);
        unit.commit().await?;
        failpoint::after(Effect::RecordPeople);
        Ok(())
    }
}
