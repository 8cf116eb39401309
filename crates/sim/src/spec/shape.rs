//! The types of a discovery document's schemas.

use std::collections::HashMap;

use serde_json::Value;

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    Any,
    Text(StringFormat),
    /// With minimum and maximum.
    Integer(i64, i64),
    Number,
    Boolean,
    List(Box<Shape>),
    Object(HashMap<String, Shape>),
    /// Arbitrary names with values of one type.
    Map(Box<Shape>),
    /// A schema of the same document.
    Named(String),
    /// The type or null.
    Nullable(Box<Shape>),
}

/// The format of a string.
#[derive(Debug, Clone, PartialEq)]
pub enum StringFormat {
    Any,
    OneOf(Vec<String>),
    /// 64-bit numbers are strings, because JavaScript has no such numbers.
    Int64,
    Uint64,
    Base64,
    Instant,
}

impl Shape {
    /// Parses a schema or parameter: both have the same format.
    pub fn read(schema: &Value) -> Result<Self, String> {
        let shape = Self::read_inner(schema)?;
        Ok(if schema["nullable"] == true { Self::Nullable(Box::new(shape)) } else { shape })
    }

    fn read_inner(schema: &Value) -> Result<Self, String> {
        if let Some(name) = schema["$ref"].as_str() {
            return Ok(Self::Named(name.to_owned()));
        }
        match schema["type"].as_str() {
            Some("any") => Ok(Self::Any),
            Some("string") => StringFormat::read(schema).map(Self::Text),
            Some("integer") => Ok(match schema["format"].as_str() {
                Some("uint32") => Self::Integer(0, i64::from(u32::MAX)),
                _ => Self::Integer(i64::from(i32::MIN), i64::from(i32::MAX)),
            }),
            Some("number") => Ok(Self::Number),
            Some("boolean") => Ok(Self::Boolean),
            Some("array") => Ok(Self::List(Box::new(Self::read(&schema["items"])?))),
            Some("object") if schema["additionalProperties"].is_object() => {
                Ok(Self::Map(Box::new(Self::read(&schema["additionalProperties"])?)))
            }
            Some("object") => {
                let properties = schema["properties"].as_object().into_iter().flatten();
                properties
                    .map(|(name, inner)| Ok((name.clone(), Self::read(inner)?)))
                    .collect::<Result<_, _>>()
                    .map(Self::Object)
            }
            other => Err(format!("a type that is not known: {other:?}")),
        }
    }

    /// Collects the names of schemas that the type refers to.
    pub fn named(&self, found: &mut Vec<String>) {
        match self {
            Self::Named(name) => found.push(name.clone()),
            Self::List(inner) | Self::Map(inner) | Self::Nullable(inner) => inner.named(found),
            Self::Object(properties) => properties.values().for_each(|inner| inner.named(found)),
            Self::Any | Self::Text(_) | Self::Integer(..) | Self::Number | Self::Boolean => {}
        }
    }
}

impl StringFormat {
    fn read(schema: &Value) -> Result<Self, String> {
        if let Some(values) = schema["enum"].as_array() {
            return Ok(Self::OneOf(values.iter().filter_map(Value::as_str).map(str::to_owned).collect()));
        }
        match schema["format"].as_str() {
            None => Ok(Self::Any),
            Some("int64") => Ok(Self::Int64),
            Some("uint64") => Ok(Self::Uint64),
            Some("byte") => Ok(Self::Base64),
            Some("google-datetime" | "date-time") => Ok(Self::Instant),
            Some(other) => Err(format!("a format that is not known: {other}")),
        }
    }

    pub fn check(&self, text: &str) -> Result<(), String> {
        let is_fine = match self {
            // Not decoded: an encoder writes them, thousands a second.
            Self::Any | Self::Base64 => true,
            Self::OneOf(values) => values.iter().any(|value| value == text),
            Self::Int64 => text.parse::<i64>().is_ok(),
            Self::Uint64 => !text.starts_with('+') && text.parse::<u64>().is_ok(),
            Self::Instant => text.parse::<jiff::Timestamp>().is_ok(),
        };
        if is_fine { Ok(()) } else { Err(format!("{text:?} is not {self:?}")) }
    }
}
