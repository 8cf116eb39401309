//! What a provider calls us for, where that is one thing of an account with a name: whoever of the tenants has the account,
//! it is asked for once. Of what the provider says with each call only the hash is kept.

use std::time::Duration;

use domain::{Provider, Sha256};
use jiff::Timestamp;

use super::any;
use super::jobs::later;
use super::mailboxes::ACCOUNT;
use super::pushes::Look;
use super::sync::millis;
use crate::failpoint::{self, Effect};
use crate::{Row, StoreError, SystemStore, TenantUnit, Unit, params};

/// What who asked is told when somebody else does by now.
pub const CLAIMED_BY_ANOTHER: &str = "somebody else asks for this subscription now";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Nothing: it was begun, and nobody knows what came of that, or it has ended.
    pub name: Option<String>,
    pub expires_at: Option<Timestamp>,
    /// When it was asked for what it agreed to last.
    pub renewed_at: Option<Timestamp>,
    /// Whose mailbox it is of, as their directory calls them: an address may pass to somebody else. Nothing: it is not known.
    pub owner: Option<String>,
}

/// The right to ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedSubscription {
    pub subscription: Subscription,
    pub claimed_at: Timestamp,
}

/// Whose it is, and how whoever calls for it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownSubscription {
    pub address: String,
    pub name: Option<String>,
    pub password: Sha256,
}

/// Which, and by which right.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    pub provider: Provider,
    pub address: &'a str,
    /// A random word.
    pub word: &'a str,
}

impl SystemStore {
    pub async fn find_subscription(
        &self,
        provider: Provider,
        address: &str,
    ) -> Result<Option<Subscription>, StoreError> {
        let sql = "select name, expires_at, renewed_at, owner from push_subscriptions
                   where provider = $1 and address = $2";
        self.query_one(sql, params![provider, address]).await?.as_ref().map(subscription).transpose()
    }

    /// Those that are called so, or that say this.
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

    /// `None`: somebody else asks for it at this moment.
    pub async fn claim_subscription(
        &self,
        claim: Claim<'_>,
        hold: Duration,
    ) -> Result<Option<ClaimedSubscription>, StoreError> {
        let until = later(self.store.dialect(), "$4");
        let mut unit = Unit::default();
        let taken = unit.op_returning(
            format!(
                "insert into push_subscriptions (provider, address, claim, held_until) values ($1, $2, $3, {until})
                 on conflict (provider, address) do update set claim = excluded.claim, held_until = excluded.held_until
                 where push_subscriptions.held_until <= mailroom_now()
                 returning name, expires_at, renewed_at, owner, mailroom_now()"
            ),
            params![claim.provider, claim.address, claim.word, millis(hold)],
        );
        failpoint::before(Effect::ClaimSubscription);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::ClaimSubscription);
        let claimed = |row: &Row| Ok(ClaimedSubscription { subscription: subscription(row)?, claimed_at: row.get(4)? });
        committed.returned(taken).first().map(claimed).transpose()
    }

    /// From now on whoever says this is believed to call for it, and nobody else. Refused with [`CLAIMED_BY_ANOTHER`].
    pub async fn begin_subscription(
        &self,
        claim: Claim<'_>,
        password: Sha256,
        owner: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op_exactly(
            1,
            CLAIMED_BY_ANOTHER,
            "update push_subscriptions set password_sha256 = $4, name = null, expires_at = null, owner = $5
             where provider = $1 and address = $2 and claim = $3",
            params![claim.provider, claim.address, claim.word, password, owner],
        );
        failpoint::before(Effect::BeginSubscription);
        self.commit(unit).await?;
        failpoint::after(Effect::BeginSubscription);
        Ok(())
    }

    /// What the provider agreed to, with the looks at mailboxes that follow. Others may ask from now on. Refused with
    /// [`CLAIMED_BY_ANOTHER`].
    pub async fn record_subscription(
        &self,
        claim: Claim<'_>,
        agreed: Subscription,
        looks: Vec<Look>,
    ) -> Result<(), StoreError> {
        let mut whole = self.write_for(domain::TenantId::SYSTEM);
        whole.unit.op_exactly(
            1,
            CLAIMED_BY_ANOTHER,
            "update push_subscriptions set name = $4, expires_at = $5, renewed_at = $6, owner = coalesce($7, owner),
                 held_until = mailroom_now()
             where provider = $1 and address = $2 and claim = $3",
            params![
                claim.provider,
                claim.address,
                claim.word,
                agreed.name,
                agreed.expires_at,
                agreed.renewed_at,
                agreed.owner,
            ],
        );
        whole.look(looks);
        failpoint::before(Effect::RecordSubscription);
        whole.commit().await?;
        failpoint::after(Effect::RecordSubscription);
        Ok(())
    }

    /// The provider agreed to nothing: others may ask.
    pub async fn release_subscription(&self, claim: Claim<'_>) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "update push_subscriptions set held_until = mailroom_now()
             where provider = $1 and address = $2 and claim = $3",
            params![claim.provider, claim.address, claim.word],
        );
        failpoint::before(Effect::ReleaseSubscription);
        self.commit(unit).await?;
        failpoint::after(Effect::ReleaseSubscription);
        Ok(())
    }

    /// It was ended, and there is nobody to ask for it again.
    pub async fn forget_subscription(&self, claim: Claim<'_>) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "delete from push_subscriptions where provider = $1 and address = $2 and claim = $3",
            params![claim.provider, claim.address, claim.word],
        );
        failpoint::before(Effect::ForgetSubscription);
        self.commit(unit).await?;
        failpoint::after(Effect::ForgetSubscription);
        Ok(())
    }

    /// Forgets some that ended before that moment and are of nobody's account: those that nobody could end in time.
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
    /// What a provider calls those of which nobody heard that they began, by what it says for them.
    pub(super) fn name_subscriptions(&mut self, provider: Provider, named: &[(Sha256, String)]) {
        for (password, name) in named {
            self.unit.op(
                "update push_subscriptions set name = $3
                 where provider = $1 and password_sha256 = $2 and name is null",
                params![provider, *password, name],
            );
        }
    }

    /// The provider has ended those of these accounts. What it says goes on to be believed: it may be late.
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

/// What providers were told to say was signed by a master key that is not in force any more: all are begun anew.
pub(super) fn disown_subscriptions(unit: &mut Unit) {
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
