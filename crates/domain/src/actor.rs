//! Who asks for an operation, as the audit log names them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ApiKeyId;

/// The one who asks for an operation. Its text is what audit entries show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Actor {
    /// The operator of this installation, by the operator's key.
    Operator,
    /// The holder of a tenant's API key.
    Key(ApiKeyId),
    /// A person whom the operator's issuer vouches for. The subject is unique only at its issuer.
    Person { issuer: String, subject: String },
    /// A user of this machine, who runs a command.
    Command { user: u32 },
    /// A recurring job, by its name.
    Schedule(String),
    /// A program that acts for somebody, by its name.
    Agent(String),
}

/// A text that names no actor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an actor")]
pub struct UnknownActor(String);

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("operator"),
            Self::Key(id) => write!(f, "key:{id}"),
            Self::Person { issuer, subject } => write!(f, "jwt:{issuer} {subject}"),
            Self::Command { user } => write!(f, "command:{user}"),
            Self::Schedule(name) => write!(f, "schedule:{name}"),
            Self::Agent(name) => write!(f, "agent:{name}"),
        }
    }
}

impl FromStr for Actor {
    type Err = UnknownActor;

    fn from_str(text: &str) -> Result<Self, UnknownActor> {
        let unknown = || UnknownActor(text.to_owned());
        if text == "operator" {
            return Ok(Self::Operator);
        }
        let (kind, name) = text.split_once(':').ok_or_else(unknown)?;
        match kind {
            "key" => name.parse().map(Self::Key).map_err(|_| unknown()),
            "jwt" => {
                // An issuer is a URL, which has no blank; a subject may have some.
                let (issuer, subject) = name.split_once(' ').ok_or_else(unknown)?;
                Ok(Self::Person { issuer: issuer.to_owned(), subject: subject.to_owned() })
            }
            "command" => name.parse().map(|user| Self::Command { user }).map_err(|_| unknown()),
            "schedule" => Ok(Self::Schedule(name.to_owned())),
            "agent" => Ok(Self::Agent(name.to_owned())),
            _ => Err(unknown()),
        }
    }
}

impl TryFrom<String> for Actor {
    type Error = UnknownActor;

    fn try_from(text: String) -> Result<Self, UnknownActor> {
        text.parse()
    }
}

impl From<Actor> for String {
    fn from(actor: Actor) -> Self {
        actor.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;

    #[test]
    fn text_of_an_actor_is_read_back() {
        let person = Actor::Person { issuer: "https://id.acme.test".into(), subject: "ann smith".into() };
        for actor in [
            Actor::Operator,
            Actor::Key(ApiKeyId::new(&SystemClock)),
            person,
            Actor::Command { user: 1000 },
            Actor::Schedule("upkeep".into()),
            Actor::Agent("assistant".into()),
        ] {
            assert_eq!(actor.to_string().parse(), Ok(actor));
        }
        for text in ["", "somebody", "key:1", "jwt:https://id.acme.test", "command:root", "robot:x"] {
            assert!(text.parse::<Actor>().is_err(), "{text}");
        }
    }
}
