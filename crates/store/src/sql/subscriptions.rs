//! Push subscriptions at providers that have one named subscription per account: it is requested once, whichever tenants
//! have the account. Of the password that the provider sends with each push only the hash is stored.

use std::time::Duration;

use domain::{Provider, Sha256};
use jiff::Timestamp;

use super::jobs::later;
use super::mailbox_settings::ACCOUNT;
use super::pushes::MailboxPush;
use super::sync::millis;
use super::{any, column_count};
use crate::failpoint::Effect;
use crate::{Precondition, Row, StoreError, SystemStore, TenantUnit, Unit, params};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// `None`: it was begun with an unknown result, or it has ended.
    pub name: Option<String>,
    pub expires_at: Option<Timestamp>,
    /// When it was last granted.
    pub renewed_at: Option<Timestamp>,
    /// The owner of the account by their id in the directory, because an address may pass to somebody else. `None`: it is
    /// not known.
    pub owner: Option<String>,
}

/// A subscription with the claim on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedSubscription {
    pub subscription: Subscription,
    pub claimed_at: Timestamp,
}

/// A subscription's account, and the password by which its pushes are recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownSubscription {
    pub address: String,
    pub name: Option<String>,
    pub password: Sha256,
}

/// The claim of one process on a subscription.
#[derive(Debug, Clone, Copy)]
pub struct SubscriptionClaim<'a> {
    pub provider: Provider,
    pub address: &'a str,
    /// A random text that identifies the claim.
    pub nonce: &'a str,
}

const COLUMNS: &str = "name, expires_at, renewed_at, owner";

impl SystemStore {
    pub async fn find_subscription(
        &self,
        provider: Provider,
        address: &str,
    ) -> Result<Option<Subscription>, StoreError> {
        let sql = format!("select {COLUMNS} from push_subscriptions where provider = $1 and address = $2");
        self.query_one(sql, params![provider, address]).await?.as_ref().map(subscription).transpose()
    }

    /// Lists the subscriptions with these names or passwords.
    pub async fn list_subscriptions(
        &self,
        provider: Provider,
        names: Vec<String>,
        passwords: Vec<Sha256>,
    ) -> Result<Vec<KnownSubscription>, StoreError> {
        let dialect = self.store.dialect();
        let columns = "select address, name, password_sha256 from push_subscriptions
                       where provider = $1 and password_sha256 is not null";
        // Not one with `or`, for which there is no index.
        let sql = format!(
            "{columns} and {} union {columns} and {}",
            any(dialect, "name", 2),
            any(dialect, "password_sha256", 3)
        );
        let known =
            |row: &Row| Ok(KnownSubscription { address: row.get(0)?, name: row.get(1)?, password: row.get(2)? });
        self.query(sql, params![provider, names, passwords]).await?.iter().map(known).collect()
    }

    /// Claims the subscription of an account. Returns `None` if another process holds the claim.
    pub async fn claim_subscription(
        &self,
        claim: SubscriptionClaim<'_>,
        hold: Duration,
    ) -> Result<Option<ClaimedSubscription>, StoreError> {
        let until = later(self.store.dialect(), "$4");
        let mut unit = Unit::default();
        let taken = unit.op_returning(
            format!(
                "insert into push_subscriptions (provider, address, claim, held_until) values ($1, $2, $3, {until})
                 on conflict (provider, address) do update set claim = excluded.claim, held_until = excluded.held_until
                 where push_subscriptions.held_until <= mailroom_now()
                 returning {COLUMNS}, mailroom_now()"
            ),
            params![claim.provider, claim.address, claim.nonce, millis(hold)],
        );
        let committed = self.commit_at(Effect::ClaimSubscription, unit).await?;
        committed
            .returned(taken)
            .first()
            .map(|row: &Row| {
                Ok(ClaimedSubscription {
                    subscription: subscription(row)?,
                    claimed_at: row.get(column_count(COLUMNS))?,
                })
            })
            .transpose()
    }

    /// Stores the password of a new subscription: from now on only pushes with it are accepted. Refused with
    /// [`Precondition::SubscriptionClaimed`].
    pub async fn begin_subscription(
        &self,
        claim: SubscriptionClaim<'_>,
        password: Sha256,
        owner: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op_exactly(
            1,
            Precondition::SubscriptionClaimed,
            "update push_subscriptions set password_sha256 = $4, name = null, expires_at = null, owner = $5
             where provider = $1 and address = $2 and claim = $3",
            params![claim.provider, claim.address, claim.nonce, password, owner],
        );
        self.commit_at(Effect::BeginSubscription, unit).await?;
        Ok(())
    }

    /// Records the granted subscription, with the syncs that follow, and releases the claim. Refused with
    /// [`Precondition::SubscriptionClaimed`].
    pub async fn record_subscription(
        &self,
        claim: SubscriptionClaim<'_>,
        agreed: Subscription,
        pushes: Vec<MailboxPush>,
    ) -> Result<(), StoreError> {
        let mut whole = self.write_for(domain::TenantId::SYSTEM);
        whole.unit.op_exactly(
            1,
            Precondition::SubscriptionClaimed,
            "update push_subscriptions set name = $4, expires_at = $5, renewed_at = $6, owner = coalesce($7, owner),
                 held_until = mailroom_now()
             where provider = $1 and address = $2 and claim = $3",
            params![
                claim.provider,
                claim.address,
                claim.nonce,
                agreed.name,
                agreed.expires_at,
                agreed.renewed_at,
                agreed.owner,
            ],
        );
        whole.apply_pushes(pushes);
        whole.commit_at(Effect::RecordSubscription).await?;
        Ok(())
    }

    /// Releases the claim without a subscription.
    pub async fn release_subscription(&self, claim: SubscriptionClaim<'_>) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "update push_subscriptions set held_until = mailroom_now()
             where provider = $1 and address = $2 and claim = $3",
            params![claim.provider, claim.address, claim.nonce],
        );
        self.commit_at(Effect::ReleaseSubscription, unit).await?;
        Ok(())
    }

    /// Deletes a subscription that was ended and is not needed any more.
    pub async fn forget_subscription(&self, claim: SubscriptionClaim<'_>) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "delete from push_subscriptions where provider = $1 and address = $2 and claim = $3",
            params![claim.provider, claim.address, claim.nonce],
        );
        self.commit_at(Effect::ForgetSubscription, unit).await?;
        Ok(())
    }

    /// Deletes subscriptions that ended before that moment and have no connected mailbox: those that could not be ended in
    /// time.
    pub async fn prune_subscriptions(&self, before: Timestamp, limit: u64) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let pruned = unit.op(
            format!(
                "delete from push_subscriptions where (provider, address) in (
                     select s.provider, s.address from push_subscriptions s
                     where (s.expires_at is null or s.expires_at < $1) and s.held_until < $1 and not exists (
                         select 1 from mailboxes m where {ACCOUNT} = s.address and m.provider = s.provider
                           and m.state <> 'disconnected')
                     limit $2)"
            ),
            params![before, limit],
        );
        Ok(self.commit(unit).await?.changed(pruned) >= limit)
    }
}

impl TenantUnit {
    /// Records the names of subscriptions whose creation was not confirmed, found by their passwords.
    pub(super) fn name_subscriptions(&mut self, provider: Provider, named: &[(Sha256, String)]) {
        for (password, name) in named {
            self.unit.op(
                "update push_subscriptions set name = $3
                 where provider = $1 and password_sha256 = $2 and name is null",
                params![provider, *password, name],
            );
        }
    }

    /// Records that the provider has ended the subscriptions of these accounts. Their passwords stay valid, for late pushes.
    pub(super) fn end_subscriptions(&mut self, provider: Provider, addresses: &[String]) {
        if !addresses.is_empty() {
            self.unit.op(
                format!(
                    "update push_subscriptions set name = null, expires_at = null where provider = $1 and {}",
                    any(self.store.dialect(), "address", 2)
                ),
                params![provider, addresses.to_vec()],
            );
        }
    }
}

/// Resets all subscriptions, because their passwords were signed by a master key that is not current any more.
pub(super) fn invalidate_subscriptions(unit: &mut Unit) {
    unit.op(
        format!(
            "update push_watches set next_at = mailroom_now(), version = version + 1 where (tenant_id, mailbox_id) in (
                 select m.tenant_id, m.id from push_subscriptions s
                 join mailboxes m on {ACCOUNT} = s.address and m.provider = s.provider)"
        ),
        params![],
    );
    unit.op("update push_subscriptions set password_sha256 = null, name = null, expires_at = null", params![]);
}

fn subscription(row: &Row) -> Result<Subscription, StoreError> {
    Ok(Subscription { name: row.get(0)?, expires_at: row.get(1)?, renewed_at: row.get(2)?, owner: row.get(3)? })
}
