//! Errors of the configuration.

use std::fmt;

use terminal::Failure;

/// An invalid configuration, as one sentence for the operator. Callers only print it, so there are no variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for Failure {
    fn from(e: ConfigError) -> Self {
        Self::Usage(e.to_string())
    }
}
