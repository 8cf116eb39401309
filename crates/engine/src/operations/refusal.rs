//! Why an operation was not done.

use domain::InvalidSetting;
use store::{Precondition, StoreError};

/// Why an operation was not done. Nothing of it was written, unless it is one of many commits.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// What it is on does not exist, or belongs to another tenant.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// It has another version than the caller expects.
    #[error("the resource was changed since it was read; read it again")]
    OtherVersion,
    /// A field is not valid; the text completes the sentence that begins with its name.
    #[error("{field}: {why}")]
    Invalid { field: String, why: String },
    /// The state of a resource does not allow it.
    #[error("{0}")]
    Conflict(String),
    #[error("this tenant is deactivated; activate it first")]
    TenantInactive,
    #[error("this tenant is on legal hold ({reason}); lift the hold first")]
    TenantHeld { reason: String },
    /// A reply is kept under the idempotency key: it was done before.
    #[error("this was done before under the same idempotency key")]
    DoneBefore,
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Other(anyhow::Error),
}

impl Refusal {
    pub(super) fn invalid(field: &str, why: impl Into<String>) -> Self {
        Self::Invalid { field: field.to_owned(), why: why.into() }
    }

    /// Returns whether this precondition failed when the change was to be committed.
    pub fn is(&self, failed: Precondition) -> bool {
        matches!(self, Self::Store(StoreError::Precondition(other)) if *other == failed)
    }
}

impl From<StoreError> for Refusal {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

impl From<Precondition> for Refusal {
    fn from(failed: Precondition) -> Self {
        Self::Store(StoreError::Precondition(failed))
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(e: anyhow::Error) -> Self {
        match e.downcast() {
            Ok(e) => Self::Store(e),
            Err(e) => Self::Other(e),
        }
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(e: serde_json::Error) -> Self {
        Self::Other(e.into())
    }
}

impl From<InvalidSetting> for Refusal {
    fn from(InvalidSetting { field, expected }: InvalidSetting) -> Self {
        Self::invalid(field, format!("must be {expected}"))
    }
}
