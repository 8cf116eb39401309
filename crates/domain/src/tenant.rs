//! Rules about tenants.

use serde::{Deserialize, Serialize};

/// What a tenant pays for; a higher tier gets a larger share when there is more work than workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanTier {
    #[default]
    Standard,
    Vip,
}

impl PlanTier {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Vip => "vip",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Standard, Self::Vip].into_iter().find(|tier| tier.as_str() == text)
    }
}

/// A tenant's name is used on command lines and in URLs: short, no spaces, and never mistaken for an id.
pub fn valid_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    (1..=63).contains(&name.len())
        && name.chars().all(plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.parse::<crate::TenantId>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_name_is_short_plain_and_no_id() {
        assert!(valid_name("acme") && valid_name("acme-2.eu"));
        assert!(!valid_name("") && !valid_name("Acme") && !valid_name("a b") && !valid_name("-x"));
        assert!(!valid_name("0190a8c0-0000-7000-8000-000000000000"));
    }
}
