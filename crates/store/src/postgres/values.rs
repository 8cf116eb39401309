//! Conversion of values to and from PostgreSQL's binary formats.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use domain::Sha256;
use jiff::Timestamp;
use postgres_types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::tsvector;
use crate::StoreError;
use crate::value::{ColumnType, Row, Value};

/// PostgreSQL counts microseconds from here.
const EPOCH_2000_SECONDS: i64 = 946_684_800;

/// The version byte in front of a binary `jsonb`.
const JSONB_VERSION: u8 = 1;

type SqlError = Box<dyn Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, SqlError> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Bool(truth) => return truth.to_sql(ty, out),
            Self::Int(number) => match *ty {
                Type::INT4 => out.put_i32(i32::try_from(*number)?),
                Type::INT2 => out.put_i16(i16::try_from(*number)?),
                _ => out.put_i64(*number),
            },
            Self::Text(text) | Self::Json(text) | Self::Tokens(text) => match *ty {
                Type::JSONB => {
                    out.put_u8(JSONB_VERSION);
                    out.put_slice(text.as_bytes());
                }
                Type::TS_VECTOR => tsvector::write(text, out),
                _ => out.put_slice(text.as_bytes()),
            },
            Self::Bytes(bytes) => out.put_slice(bytes),
            Self::Uuid(id) => out.put_slice(id.as_bytes()),
            Self::Time(time) => out.put_i64(time.as_millisecond() * 1000 - EPOCH_2000_SECONDS * 1_000_000),
            Self::Hash(hash) => out.put_slice(&hash.0),
            // `= any(null)` holds for nothing, like `= any` of an empty list, whose type nothing would tell.
            Self::List(values) if values.is_empty() => return Ok(IsNull::Yes),
            Self::List(values) => return values.to_sql(ty, out),
        }
        Ok(IsNull::No)
    }

    /// The statements are ours and the tests run all of them, so a mismatch shows there.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, SqlError> {
        Ok(match *ty {
            Type::BOOL => Self::Bool(bool::from_sql(ty, raw)?),
            Type::INT8 => Self::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Self::Int(i32::from_sql(ty, raw)?.into()),
            Type::INT2 => Self::Int(i16::from_sql(ty, raw)?.into()),
            Type::UUID => Self::Uuid(Uuid::from_sql(ty, raw)?),
            Type::TIMESTAMPTZ => {
                let micros = i64::from_sql(&Type::INT8, raw)?;
                Self::Time(Timestamp::from_microsecond(micros + EPOCH_2000_SECONDS * 1_000_000)?)
            }
            Type::BYTEA => match raw.try_into() {
                Ok(hash) => Self::Hash(Sha256(hash)),
                Err(_) => Self::Bytes(raw.to_vec()),
            },
            Type::JSONB => Self::Text(String::from_utf8(raw.get(1..).unwrap_or_default().to_vec())?),
            _ => Self::Text(String::from_utf8(raw.to_vec())?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, SqlError> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Returns the type of a value for a statement that is not prepared.
pub(super) fn type_of(value: &Value) -> Type {
    match value {
        Value::Bool(_) => Type::BOOL,
        Value::Int(_) => Type::INT8,
        Value::Text(_) => Type::TEXT,
        Value::Uuid(_) => Type::UUID,
        Value::Time(_) => Type::TIMESTAMPTZ,
        Value::Bytes(_) | Value::Hash(_) => Type::BYTEA,
        Value::Json(_) => Type::JSONB,
        Value::Tokens(_) => Type::TS_VECTOR,
        Value::List(values) => match values.first() {
            Some(Value::Uuid(_)) => Type::UUID_ARRAY,
            Some(Value::Int(_)) => Type::INT8_ARRAY,
            Some(Value::Time(_)) => Type::TIMESTAMPTZ_ARRAY,
            Some(Value::Bytes(_) | Value::Hash(_)) => Type::BYTEA_ARRAY,
            // As text, the server would read them without their positions.
            Some(Value::Tokens(_)) => Type::TS_VECTOR_ARRAY,
            Some(_) => Type::TEXT_ARRAY,
            None => Type::UNKNOWN,
        },
        // The server takes it for what the statement needs at that place.
        Value::Null => Type::UNKNOWN,
    }
}

/// Returns the array type of a column of a bulk insert.
pub(super) fn array_of(kind: ColumnType) -> Type {
    match kind {
        ColumnType::Bool => Type::BOOL_ARRAY,
        ColumnType::Int => Type::INT8_ARRAY,
        ColumnType::Text => Type::TEXT_ARRAY,
        ColumnType::Uuid => Type::UUID_ARRAY,
        ColumnType::Time => Type::TIMESTAMPTZ_ARRAY,
        ColumnType::Hash => Type::BYTEA_ARRAY,
        ColumnType::Json => Type::JSONB_ARRAY,
        ColumnType::Tokens => Type::TS_VECTOR_ARRAY,
    }
}

pub(super) fn row(row: &tokio_postgres::Row) -> Result<Row, StoreError> {
    let columns = (0..row.len()).map(|column| row.try_get(column).map_err(super::error));
    Ok(Row(columns.collect::<Result<_, _>>()?))
}
