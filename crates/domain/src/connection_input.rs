//! What somebody says of a mailbox's connection, and what its provider makes of it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::connection_field::{ConnectionField, FieldValue};
use crate::{InvalidField, Secret};

/// The fields that were given, each valid by itself.
#[derive(Debug, Clone, Default)]
pub struct ConnectionInput(BTreeMap<&'static str, FieldValue>);

/// A connection that can be stored.
#[derive(Debug, Clone)]
pub struct NewConnection {
    /// As the connector reads it.
    pub settings: Value,
    /// The secret that was given, to be stored with it.
    pub secret: Option<Secret<String>>,
    /// What is missing to open the mailbox, unless a person is asked for it.
    pub missing: Option<InvalidField>,
}

/// How a provider's connections are made and described.
#[derive(Debug)]
pub struct ConnectionDeclaration {
    pub fields: &'static [&'static ConnectionField],
    /// Whether a mailbox may have a quota of bytes per day.
    pub has_byte_quota: bool,
    /// What is connected, for the help of commands.
    pub about: &'static str,
    /// Examples of `mailbox add`, and what else to know.
    pub add_help: &'static str,
    /// Makes the connection of a new mailbox with this address.
    pub connect: fn(&ConnectionInput, &str) -> Result<NewConnection, InvalidField>,
    /// Applies fields to the connection of a mailbox.
    pub change: fn(&Value, &ConnectionInput) -> Result<NewConnection, InvalidField>,
    /// Returns the name of the field whose secret opens a mailbox with this connection.
    pub secret_field: fn(&Value) -> &'static str,
    /// Asks a person for that secret. `None`: it cannot be typed.
    pub prompt: Option<fn(&Value) -> String>,
}

impl ConnectionInput {
    pub fn insert(&mut self, field: &ConnectionField, value: FieldValue) {
        self.0.insert(field.name, value);
    }

    pub fn is_given(&self, field: &ConnectionField) -> bool {
        self.0.contains_key(field.name)
    }

    pub fn text(&self, field: &ConnectionField) -> Option<&str> {
        match self.0.get(field.name) {
            Some(FieldValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub fn number(&self, field: &ConnectionField) -> Option<u64> {
        match self.0.get(field.name) {
            Some(FieldValue::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns whether the field is given as true.
    pub fn is_set(&self, field: &ConnectionField) -> bool {
        self.0.get(field.name) == Some(&FieldValue::Bool(true))
    }

    pub fn secret(&self, field: &ConnectionField) -> Option<&Secret<String>> {
        match self.0.get(field.name) {
            Some(FieldValue::Secret(secret)) => Some(secret),
            _ => None,
        }
    }
}

impl ConnectionDeclaration {
    pub fn field(&self, name: &str) -> Option<&'static ConnectionField> {
        self.fields.iter().copied().find(|field| field.name == name)
    }
}
