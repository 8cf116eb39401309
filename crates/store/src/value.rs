//! Values on their way into and out of SQL, one set for both databases.
//!
//! PostgreSQL keeps its native types; SQLite holds the same things as text that a person can read and compare.

use domain::Sha256;
use jiff::Timestamp;
use uuid::Uuid;

use crate::StoreError;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    Uuid(Uuid),
    /// Kept to the millisecond on both databases.
    Time(Timestamp),
    /// Hex text on SQLite, `bytea` on PostgreSQL.
    Hash(Sha256),
    /// Serialized JSON.
    Json(String),
    /// Search tokens separated by spaces: text for FTS5, a `tsvector` for PostgreSQL.
    Tokens(String),
    /// The right side of [`crate::sql::any`]: an array on PostgreSQL, a JSON list on SQLite.
    List(Vec<Value>),
}

/// The type of a column in a bulk insert; PostgreSQL needs it to unnest an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    Bool,
    Int,
    Text,
    Uuid,
    Time,
    Hash,
    Json,
    Tokens,
}

impl ColumnType {
    pub(crate) fn postgres(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int8",
            Self::Text => "text",
            Self::Uuid => "uuid",
            Self::Time => "timestamptz",
            Self::Hash => "bytea",
            Self::Json => "jsonb",
            Self::Tokens => "tsvector",
        }
    }
}

/// `params![tenant, name]`: values in the order of `$1, $2, …`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$($crate::Value::from($value)),*] };
}

macro_rules! into_value {
    ($($from:ty => |$v:ident| $make:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($v: $from) -> Self {
                $make
            }
        }
    )*};
}

into_value! {
    bool => |v| Self::Bool(v);
    i64 => |v| Self::Int(v);
    u32 => |v| Self::Int(i64::from(v));
    u64 => |v| Self::Int(i64::try_from(v).unwrap_or(i64::MAX));
    usize => |v| Self::Int(i64::try_from(v).unwrap_or(i64::MAX));
    String => |v| Self::Text(v);
    &str => |v| Self::Text(v.to_owned());
    &String => |v| Self::Text(v.clone());
    Uuid => |v| Self::Uuid(v);
    Timestamp => |v| Self::Time(v);
    Sha256 => |v| Self::Hash(v);
    serde_json::Value => |v| Self::Json(v.to_string());
    domain::MailboxSettings => |v| serde_json::Value::from(v).into();
    domain::TenantSettings => |v| serde_json::Value::from(v).into();
    domain::TenantId => |v| Self::Uuid(v.0);
    domain::MailboxId => |v| Self::Uuid(v.0);
    domain::FolderId => |v| Self::Uuid(v.0);
    domain::EmailId => |v| Self::Uuid(v.0);
    domain::AttachmentId => |v| Self::Uuid(v.0);
    domain::PackId => |v| Self::Uuid(v.0);
    domain::ApiKeyId => |v| Self::Uuid(v.0);
    domain::JobId => |v| Self::Uuid(v.0);
    domain::WorkerId => |v| Self::Uuid(v.0);
    domain::SecretId => |v| Self::Uuid(v.0);
    domain::WebhookId => |v| Self::Uuid(v.0);
    domain::DeliveryId => |v| Self::Uuid(v.0);
    domain::UserId => |v| Self::Uuid(v.0);
    &[u8] => |v| Self::Bytes(v.to_owned());
    domain::Lane => |v| Self::Int(v.number());
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

/// One row of a query's result; columns are read by position.
#[derive(Debug, Clone)]
pub struct Row(pub(crate) Vec<Value>);

impl Row {
    pub fn get<T: FromValue>(&self, column: usize) -> Result<T, StoreError> {
        let value = self.0.get(column).ok_or_else(|| StoreError::corrupt(format!("column {column} is missing")))?;
        T::from_value(value).ok_or_else(|| {
            StoreError::corrupt(format!("column {column} holds {value:?}, not {}", std::any::type_name::<T>()))
        })
    }
}

/// A type that a column can be read as.
pub trait FromValue: Sized {
    /// Returns `None` if the column holds something else.
    fn from_value(value: &Value) -> Option<Self>;
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        if *value == Value::Null { Some(None) } else { T::from_value(value).map(Some) }
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) | Value::Json(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }
}

impl FromValue for u64 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value).and_then(|number| u64::try_from(number).ok())
    }
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(truth) => Some(*truth),
            Value::Int(number) => Some(*number != 0),
            _ => None,
        }
    }
}

impl FromValue for Uuid {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Uuid(id) => Some(*id),
            Value::Text(text) => Uuid::try_parse(text).ok(),
            _ => None,
        }
    }
}

impl FromValue for Timestamp {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Time(time) => Some(*time),
            Value::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl FromValue for Sha256 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Hash(hash) => Some(*hash),
            Value::Bytes(bytes) => bytes.as_slice().try_into().ok().map(Sha256),
            Value::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bytes(bytes) => Some(bytes.clone()),
            // PostgreSQL does not tell a hash from other 32 bytes.
            Value::Hash(hash) => Some(hash.0.to_vec()),
            _ => None,
        }
    }
}

impl FromValue for serde_json::Value {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) | Value::Json(text) => serde_json::from_str(text).ok(),
            _ => None,
        }
    }
}

macro_rules! from_value_by {
    (ids $($id:ty),*) => {$(
        impl FromValue for $id {
            fn from_value(value: &Value) -> Option<Self> {
                Uuid::from_value(value).map(Self)
            }
        }
    )*};
    (words $($word:ty),*) => {$(
        impl FromValue for $word {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::Text(text) => Self::parse(text),
                    _ => None,
                }
            }
        }

        impl From<$word> for Value {
            fn from(word: $word) -> Self {
                Self::Text(word.as_str().to_owned())
            }
        }
    )*};
}

from_value_by!(ids domain::TenantId, domain::MailboxId, domain::FolderId, domain::EmailId, domain::AttachmentId,
    domain::PackId, domain::ApiKeyId, domain::JobId, domain::WorkerId, domain::SecretId,
    domain::WebhookId, domain::DeliveryId, domain::UserId);
from_value_by!(words domain::PlanTier, domain::Provider, domain::MailboxState, domain::LedgerState,
    domain::ProcessingStatus, domain::AttachmentStatus, domain::PackState, domain::JobState,
    domain::SecretKind, domain::WebhookState, domain::DeliveryState, domain::ExclusionReason);

impl FromValue for domain::Lane {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value).and_then(Self::from_number)
    }
}

/// Returns a time as SQLite holds it: fixed width, so that text order is time order.
pub(crate) fn time_text(time: Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_text_sort_like_times() {
        let early: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let late: Timestamp = "2026-01-02T03:04:05.120Z".parse().unwrap();

        assert_eq!(time_text(early), "2026-01-02T03:04:05.000Z");
        assert!(time_text(early) < time_text(late));
    }
}
