//! Failures of commands: one sentence and an exit code.

use std::fmt;
use std::process::ExitCode;

use engine::credentials::secrets::VaultError;
use store::StoreError;

/// What a command that did not succeed says, and how it exits.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage or configuration: exit code 2.
    Usage(String),
    /// The command failed: exit code 1.
    Problem(anyhow::Error),
}

impl Failure {
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self::Usage(sentence.into())
    }

    pub fn problem(sentence: impl Into<String>) -> Self {
        Self::Problem(anyhow::anyhow!(sentence.into()))
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Problem(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) => f.write_str(sentence),
            Self::Problem(e) => match e.downcast_ref::<StoreError>() {
                // What we were doing matters less than what is wrong and how to fix it.
                Some(store) => write!(f, "{store}"),
                None => f.write_str(&sentence(e)),
            },
        }
    }
}

/// Joins the chain of causes; a cause that an error repeats itself is shown once.
fn sentence(e: &anyhow::Error) -> String {
    e.chain()
        .skip(1)
        .map(ToString::to_string)
        .fold(e.to_string(), |text, cause| if text.contains(&cause) { text } else { format!("{text}: {cause}") })
}

impl From<anyhow::Error> for Failure {
    fn from(e: anyhow::Error) -> Self {
        match e.downcast_ref::<StoreError>() {
            Some(StoreError::Misconfigured(sentence)) => Self::Usage(sentence.to_string()),
            _ => Self::Problem(e),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Self {
        anyhow::Error::from(e).into()
    }
}

impl From<VaultError> for Failure {
    fn from(e: VaultError) -> Self {
        match e {
            VaultError::Key(sentence) => Self::Usage(sentence),
            VaultError::Store(e) => e.into(),
            VaultError::Other(e) => e.into(),
            damaged @ VaultError::Damaged(_) => Self::problem(damaged.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Self::Problem(e.into())
    }
}
