//! The request rate of a tenant's plan, as the headers `RateLimit` and `RateLimit-Policy` of
//! draft-ietf-httpapi-ratelimit-headers report it.

use std::fmt;

use domain::PlanTier;
use outbound::limits::RATE_BURST_SECONDS;
use outbound::rate_limiter::{Rate, RateStatus};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlanQuota {
    pub plan: PlanTier,
    pub rate: Rate,
    pub status: RateStatus,
}

impl PlanQuota {
    /// Formats `RateLimit-Policy`: quota and window.
    pub fn policy(&self) -> String {
        format!("\"{}\";q={};w={RATE_BURST_SECONDS}", self.plan.as_str(), self.rate.burst)
    }
}

/// Formats `RateLimit`: tokens left, and seconds until all are available again.
impl fmt::Display for PlanQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RateStatus { left, reset } = self.status;
        write!(f, "\"{}\";r={left};t={}", self.plan.as_str(), reset.as_secs_f64().ceil())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn headers_report_remaining_quota_and_reset() {
        let status = RateStatus { left: 19, reset: Duration::from_millis(100) };
        let quota = PlanQuota { plan: PlanTier::Standard, rate: Rate { per_second: 10, burst: 20 }, status };

        assert_eq!((&*quota.policy(), &*quota.to_string()), ("\"standard\";q=20;w=2", "\"standard\";r=19;t=1"));
    }
}
