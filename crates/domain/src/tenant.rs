//! Rules about tenants.

use serde::{Deserialize, Serialize};

/// A tenant's plan; a higher tier gets a larger share of the workers when there is more work than they can do.
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

/// Returns whether a text can be a tenant's name: short, on one line, and not an id.
pub fn is_valid_name(name: &str) -> bool {
    (1..=100).contains(&name.chars().count())
        && !name.chars().any(char::is_control)
        && name.trim() == name
        && name.parse::<crate::TenantId>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_name_is_a_short_line_and_no_id() {
        assert!(is_valid_name("acme") && is_valid_name("Acme & Söhne, Köln"));
        assert!(
            !is_valid_name("") && !is_valid_name(" acme") && !is_valid_name("a\nb") && !is_valid_name(&"x".repeat(101))
        );
        assert!(!is_valid_name("0190a8c0-0000-7000-8000-000000000000"));
    }
}
