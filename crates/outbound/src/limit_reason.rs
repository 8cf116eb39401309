//! Why calls have to wait, in words for people.

use std::collections::HashMap;
use std::time::Duration;

use domain::MailboxId;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::breaker::PROBE_INTERVAL;
use crate::target::{Endpoint, Service};

/// The limit that calls to a target have to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitReason {
    /// The circuit breaker of the server, or of the service where there is one server, is open.
    BreakerOpen {
        service: Service,
        endpoint: Option<Endpoint>,
        since: Duration,
    },
    /// The provider asked to wait.
    RetryAfter,
    /// As many calls are in flight as there may be.
    CallsInFlight,
    /// The mailbox has used up its bytes of the day.
    ByteQuota,
    /// The quota that the provider gives is used up.
    UnitQuota(Service),
    CallBudget,
}

impl LimitReason {
    /// Returns the reason as the end of a sentence, by a clock that shows `now`.
    pub fn sentence(&self, now: Timestamp) -> String {
        match self {
            Self::BreakerOpen { service, endpoint, since } => {
                let of = endpoint.as_ref().map_or_else(|| service.as_str().to_owned(), ToString::to_string);
                let opened = SignedDuration::try_from(*since).ok().and_then(|since| now.checked_sub(since).ok());
                let since = opened.map(|at| format!(" since {at:.0}")).unwrap_or_default();
                let seconds = PROBE_INTERVAL.as_secs();
                format!("the circuit breaker of {of} is open{since}, with a probe every {seconds} s")
            }
            Self::RetryAfter => "the provider asked to wait".to_owned(),
            Self::CallsInFlight => "as many calls are in flight as there may be".to_owned(),
            Self::ByteQuota => "the mailbox's daily byte quota is used up".to_owned(),
            Self::UnitQuota(service) => format!("the quota of {} for this account is used up", service.as_str()),
            Self::CallBudget => "the call budget is used up".to_owned(),
        }
    }
}

/// The budgets that have refused a call lately, by mailbox.
#[derive(Debug, Default)]
pub struct RefusedBudgets(HashMap<MailboxId, (LimitReason, Instant)>);

impl RefusedBudgets {
    pub fn record(&mut self, mailbox: MailboxId, reason: LimitReason, until: Instant) {
        self.0.insert(mailbox, (reason, until));
    }

    /// Returns the budget that a mailbox waits for.
    pub fn find(&self, mailbox: MailboxId, now: Instant) -> Option<LimitReason> {
        self.0.get(&mailbox).filter(|(_, until)| *until > now).map(|(reason, _)| reason.clone())
    }

    pub fn evict_past(&mut self, now: Instant) {
        self.0.retain(|_, (_, until)| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use domain::Provider;

    use super::*;

    #[test]
    fn open_breaker_is_named_with_its_beginning() {
        let now: Timestamp = "2026-11-19T03:30:00Z".parse().unwrap();
        let since = Duration::from_secs(90);
        let (service, endpoint) = (Service::Provider(Provider::Imap), Some(Endpoint::new("imap.acme.test", 993)));

        let of_server = LimitReason::BreakerOpen { service, endpoint, since }.sentence(now);
        assert_eq!(
            of_server,
            "the circuit breaker of imap.acme.test:993 is open since 2026-11-19T03:28:30Z, with a probe every 30 s"
        );
        let service = Service::Provider(Provider::Gmail);
        let of_provider = LimitReason::BreakerOpen { service, endpoint: None, since }.sentence(now);
        assert!(of_provider.starts_with("the circuit breaker of gmail is open since"), "{of_provider}");
    }
}
