//! The target of the calls for a mailbox: everything that limits them is keyed by it.

use domain::Sha256;
use outbound::{CallSettings, Endpoint, Service, Target, TargetAccount};
use store::sql::mailboxes::Mailbox;

/// Returns the target of calls for a mailbox.
pub fn target_of(mailbox: &Mailbox, settings: &CallSettings) -> Target {
    let name = format!("{} {}", mailbox.provider.as_str(), mailbox.account());
    let account = TargetAccount {
        mailbox: mailbox.id,
        credential: mailbox.secret_ref.as_ref().and_then(|secret| secret.parse().ok()),
        name: Sha256::of(name.as_bytes()),
        bytes_per_day: bytes_per_day(mailbox, settings),
    };
    Target {
        service: Service::Provider(mailbox.provider),
        endpoint: endpoint(mailbox),
        tenant: mailbox.tenant_id,
        account: Some(account),
    }
}

/// Returns the server of a mailbox whose connection names one.
fn endpoint(mailbox: &Mailbox) -> Option<Endpoint> {
    let connection = &mailbox.settings.connection;
    let port = connection["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
    Some(Endpoint::new(connection["host"].as_str()?, port))
}

/// Returns the quota of a mailbox: its own setting or its tenant's, else the setting for all mailboxes at its provider,
/// else what its server is known to allow. 0: unlimited; `None`: not set.
pub fn bytes_per_day(mailbox: &Mailbox, settings: &CallSettings) -> Option<u64> {
    let set = mailbox.settings_in_force().bytes_per_day;
    set.or_else(|| settings.mailbox_bytes_per_day.get(&mailbox.provider).copied()).or_else(|| known_quota(mailbox))
}

fn known_quota(mailbox: &Mailbox) -> Option<u64> {
    let known = mailbox.provider.capabilities().bytes_per_day_of_hosts;
    let endpoint = endpoint(mailbox).filter(|_| !known.is_empty())?;
    known.iter().find(|(host, _)| *host == endpoint.host()).map(|(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use domain::{Clock, MailboxId, MailboxState, Provider, SystemClock, TenantId, TenantSettings};
    use serde_json::{Value, json};

    use super::*;

    fn mailbox(provider: Provider, settings: Value) -> Mailbox {
        let now = SystemClock.now();
        Mailbox {
            id: MailboxId::new(&SystemClock),
            tenant_id: TenantId::new(&SystemClock),
            provider,
            address: "me@acme.test".into(),
            state: MailboxState::Active,
            state_reason: None,
            state_since: now,
            settings: settings.into(),
            tenant_settings: TenantSettings::default(),
            secret_ref: None,
            is_active: true,
            created_at: now,
            updated_at: now,
            version: 1,
        }
    }

    fn target(provider: Provider, settings: Value, imap_bytes_per_day: Option<u64>) -> Target {
        target_of(&mailbox(provider, settings), &with_imap_quota(imap_bytes_per_day))
    }

    fn with_imap_quota(bytes: Option<u64>) -> CallSettings {
        let mailbox_bytes_per_day: HashMap<_, _> = bytes.map(|bytes| (Provider::Imap, bytes)).into_iter().collect();
        CallSettings { mailbox_bytes_per_day, ..CallSettings::default() }
    }

    fn at_host(host: &str) -> Value {
        json!({"connection": {"host": host, "port": 993}})
    }

    fn own_quota(bytes: u64) -> Value {
        json!({"connection": {"host": "imap.gmail.com"}, "bytes_per_day": bytes})
    }

    #[test]
    fn byte_quota_is_own_configured_or_known() {
        for (provider, settings, configured, quota) in [
            (Provider::Imap, at_host("imap.acme.test"), None, None),
            (Provider::Imap, at_host("imap.acme.test"), Some(5_000_000), Some(5_000_000)),
            (Provider::Imap, at_host("imap.gmail.com"), None, Some(2_000_000_000)),
            (Provider::Imap, at_host("IMAP.GoogleMail.com."), None, Some(2_000_000_000)),
            (Provider::Imap, at_host("imap.gmail.com"), Some(0), Some(0)),
            (Provider::Imap, own_quota(7_000), Some(5_000_000), Some(7_000)),
            (Provider::Imap, own_quota(0), Some(5_000_000), Some(0)),
            (Provider::Outlook, at_host("imap.gmail.com"), Some(5_000_000), None),
            (Provider::Outlook, own_quota(7_000), None, Some(7_000)),
        ] {
            let account = target(provider, settings.clone(), configured).account.unwrap();
            assert_eq!(account.bytes_per_day, quota, "{provider:?} {settings}");
        }
    }

    #[test]
    fn byte_quota_is_inherited_from_the_tenant() {
        let tenant_settings = TenantSettings { bytes_per_day: Some(5_000), ..TenantSettings::default() };
        let inherits = Mailbox { tenant_settings, ..mailbox(Provider::Imap, at_host("imap.acme.test")) };
        let own = Mailbox { settings: own_quota(7_000).into(), ..inherits.clone() };

        assert_eq!(bytes_per_day(&inherits, &with_imap_quota(Some(9_000))), Some(5_000));
        assert_eq!(bytes_per_day(&own, &with_imap_quota(Some(9_000))), Some(7_000));
    }

    #[test]
    fn target_names_the_server_of_the_mailbox() {
        let endpoint = target(Provider::Imap, at_host("Imap.acme.test"), None).endpoint;
        assert_eq!(endpoint, Some(Endpoint::new("imap.acme.test", 993)));
        assert_eq!(target(Provider::Gmail, json!({}), None).endpoint, None);
    }
}
