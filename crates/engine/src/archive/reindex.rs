//! Makes the tokens of stored emails once more, from their original messages: after an upgrade that tokenises
//! differently, or for emails that the text index lacks.

use std::collections::HashMap;

use anyhow::Context;
use content::spool::{Spool, SpoolableBytes};
use domain::search::TOKENS_VERSION;
use domain::{Clock, EmailId, Lane, MessageLimits, TenantId};
use jiff::Timestamp;
use jobs::{Job, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{JobRow, NewJob, OnConflict, UniqueKey};
use store::sql::reindex::{IndexEntry, IndexEntryState, OriginalMessage, ReindexRange, TokenReplacement};
use store::{StoreError, TenantStore};

use crate::Engine;
use crate::archive::ingest::parse_and_tokenise;

/// Emails that are examined at a time, and so the most that one unit changes: few enough that no other writer waits for
/// it noticeably.
const BATCH_EMAILS: u64 = 200;

/// Bytes of originals that are read for one unit, unless the first alone has more.
const MAX_BATCH_BYTES: u64 = 16 << 20;

/// Batches without anything to do that are passed over before the progress is recorded.
const MAX_IDLE_BATCHES: u32 = 50;

/// The emails whose tokens are made once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReindexScope {
    /// Those with tokens of another version, or with none.
    Stale,
    All,
}

/// A reindex of one tenant's mail and how far it is, newest emails first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReindexRun {
    pub scope: ReindexScope,
    /// The version of the tokens that was asked for.
    pub version: u32,
    /// Only emails received from then on.
    pub since: Option<Timestamp>,
    /// The cursor: everything from this email on is done.
    pub before: Option<EmailId>,
    /// Emails in all, once they are counted.
    pub total: Option<u64>,
    /// Emails that are done, whether they had to be changed or not.
    pub examined: u64,
    pub reindexed: u64,
    /// Emails whose original is missing or damaged. They stay as they were.
    pub unreadable: u64,
}

/// Reindexes the next emails of a run. The payload is the run, and so shows its progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reindex(pub ReindexRun);

impl Job for Reindex {
    const KIND: &'static str = "reindex";
    const LANE: Lane = Lane::Low;
}

impl Reindex {
    /// The unique key: a tenant has one reindex at a time.
    pub const UNIQUE_KEY: &'static str = "reindex";

    /// Requests a reindex; a live one stays as it is.
    fn request(clock: &dyn Clock, run: ReindexRun) -> Result<NewJob, serde_json::Error> {
        Ok(NewJob { unique: Some(Self::unique(OnConflict::Keep)), ..new_job(&Self(run), clock, None)? })
    }

    pub(crate) fn unique(policy: OnConflict) -> UniqueKey {
        UniqueKey { key: Self::UNIQUE_KEY.to_owned(), policy }
    }
}

/// The next emails of a reindex: their tokens, and the run once these are written.
#[derive(Debug)]
pub struct ReindexBatch {
    pub replacements: Vec<TokenReplacement>,
    pub run: ReindexRun,
}

impl ReindexRun {
    pub fn new(scope: ReindexScope, since: Option<Timestamp>) -> Self {
        Self {
            scope,
            version: TOKENS_VERSION,
            since,
            before: None,
            total: None,
            examined: 0,
            reindexed: 0,
            unreadable: 0,
        }
    }

    fn range(&self) -> ReindexRange {
        ReindexRange { from: self.since.map(EmailId::first_at), before: self.before }
    }

    fn is_due(&self, entry: &IndexEntry) -> bool {
        self.scope == ReindexScope::All || entry.state != IndexEntryState::Current
    }
}

impl Engine {
    /// Requests a reindex of a tenant's mail. Returns `false` if one is live already: then that one goes on as it is.
    pub async fn request_reindex(
        &self,
        tenant: TenantId,
        scope: ReindexScope,
        since: Option<Timestamp>,
    ) -> anyhow::Result<bool> {
        let live = self.find_reindex(tenant).await?.filter(JobRow::is_live);
        let mut unit = self.store.tenant(tenant).write();
        unit.enqueue(vec![Reindex::request(self.store.clock(), ReindexRun::new(scope, since))?]);
        unit.commit().await?;
        self.store.notify_other_processes().await?;
        Ok(live.is_none())
    }

    /// Finds the job of a tenant's reindex: the live one, else the one that ended last.
    pub async fn find_reindex(&self, tenant: TenantId) -> Result<Option<JobRow>, StoreError> {
        self.store.system().find_unique_job(tenant, Reindex::KIND, Reindex::UNIQUE_KEY).await
    }

    /// Prepares the next batch of a reindex. Returns `None` at its end.
    pub(crate) async fn next_reindex_batch(
        &self,
        store: &TenantStore,
        run: &ReindexRun,
        report_progress: impl Fn(),
    ) -> anyhow::Result<Option<ReindexBatch>> {
        let mut run = run.clone();
        if run.total.is_none() {
            run.total = Some(store.count_emails_in(run.range()).await?);
        }
        let mut replacements = Vec::new();
        for idle in 0..MAX_IDLE_BATCHES {
            report_progress();
            let entries = store.list_index_entries(run.range(), TOKENS_VERSION, BATCH_EMAILS).await?;
            let Some(last) = entries.last() else {
                if idle == 0 {
                    return Ok(None);
                }
                break;
            };
            run.before = Some(last.email);
            run.examined += entries.len() as u64;
            if entries.iter().any(|entry| run.is_due(entry)) {
                replacements = self.retokenise(store, &entries, &mut run).await?;
                break;
            }
        }
        Ok(Some(ReindexBatch { replacements, run }))
    }

    /// Makes the tokens of those emails that are due. If their messages are too large for one batch, the run goes back to
    /// where this one ends.
    async fn retokenise(
        &self,
        store: &TenantStore,
        entries: &[IndexEntry],
        run: &mut ReindexRun,
    ) -> anyhow::Result<Vec<TokenReplacement>> {
        let due: HashMap<EmailId, IndexEntryState> =
            entries.iter().filter(|entry| run.is_due(entry)).map(|entry| (entry.email, entry.state)).collect();
        let originals = store.list_originals(due.keys().copied().collect()).await?;
        let (mut raws, mut bytes) = (Vec::with_capacity(originals.len()), 0);
        for original in originals {
            bytes += original.size_bytes;
            if bytes > MAX_BATCH_BYTES && !raws.is_empty() {
                go_back(run, entries, original.email);
                break;
            }
            match self.read_original(store, &original).await? {
                Some(raw) => raws.push((original, raw)),
                None => run.unreadable += 1,
            }
        }
        run.reindexed += raws.len() as u64;
        let tokens = self.tokenise(raws).await?;
        Ok(tokens
            .into_iter()
            .map(|(original, tokens): (OriginalMessage, String)| TokenReplacement {
                email: original.email,
                raw_sha256: original.raw_sha256,
                is_missing: due.get(&original.email) == Some(&IndexEntryState::Missing),
                tokens,
            })
            .collect())
    }

    /// Reads an original message. Returns `None` if it is not stored, missing or damaged.
    async fn read_original(
        &self,
        store: &TenantStore,
        original: &OriginalMessage,
    ) -> anyhow::Result<Option<SpoolableBytes>> {
        let Some(place) = store.find_blob(original.raw_sha256).await? else { return Ok(None) };
        match self.read_data(store, place).await {
            Ok(raw) => Ok(Some(raw)),
            Err(e) => match e.downcast_ref::<StoreError>() {
                Some(StoreError::Corrupt(_) | StoreError::BlobMissing(_)) => Ok(None),
                _ => Err(e),
            },
        }
    }

    /// Tokenises messages on the CPU pool, as ingest does.
    async fn tokenise(
        &self,
        raws: Vec<(OriginalMessage, SpoolableBytes)>,
    ) -> anyhow::Result<Vec<(OriginalMessage, String)>> {
        let (limits, spool) = (self.limits.clone(), self.spool.clone());
        let is_large = raws.iter().any(|(_, raw)| matches!(raw, SpoolableBytes::Spooled(_)));
        let tokens = if is_large {
            self.cpu.run_large(move || tokenise_all(raws, &limits, &spool)).await?
        } else {
            self.cpu.run(move || tokenise_all(raws, &limits, &spool)).await?
        };
        tokens.context("parsing a message that is in the spool of the data folder")
    }
}

fn tokenise_all(
    raws: Vec<(OriginalMessage, SpoolableBytes)>,
    limits: &MessageLimits,
    spool: &Spool,
) -> std::io::Result<Vec<(OriginalMessage, String)>> {
    raws.into_iter()
        .map(|(original, raw): (OriginalMessage, SpoolableBytes)| {
            let (_, tokens) = parse_and_tokenise(&raw, limits, spool)?;
            Ok((original, tokens.text))
        })
        .collect()
}

/// Lets the run go on with this email, which is one of the entries and not the first.
fn go_back(run: &mut ReindexRun, entries: &[IndexEntry], next: EmailId) {
    let done = entries.iter().take_while(|entry| entry.email != next).count();
    run.examined -= (entries.len() - done) as u64;
    run.before = done.checked_sub(1).map(|last| entries[last].email);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_goes_back_to_the_email_before_the_next_one() {
        let entries: Vec<IndexEntry> = [9, 7, 5, 3]
            .map(|id| IndexEntry { email: EmailId(uuid::Uuid::from_u128(id)), state: IndexEntryState::Stale })
            .to_vec();
        let mut run =
            ReindexRun { examined: 104, before: Some(entries[3].email), ..ReindexRun::new(ReindexScope::All, None) };

        go_back(&mut run, &entries, entries[2].email);

        assert_eq!((run.examined, run.before), (102, Some(entries[1].email)));
    }
}
