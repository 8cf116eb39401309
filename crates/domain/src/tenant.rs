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

/// A tenant's name is what people call it: any short text that fits on a line and is never mistaken for an id.
pub fn valid_name(name: &str) -> bool {
    (1..=100).contains(&name.chars().count())
        && !name.chars().any(char::is_control)
        && name.trim() == name
        && name.parse::<crate::TenantId>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_name_is_a_short_line_and_no_id() {
        assert!(valid_name("acme") && valid_name("Acme & Söhne, Köln"));
        assert!(!valid_name("") && !valid_name(" acme") && !valid_name("a\nb") && !valid_name(&"x".repeat(101)));
        assert!(!valid_name("0190a8c0-0000-7000-8000-000000000000"));
    }
}
