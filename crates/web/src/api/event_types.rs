//! Event types as the API takes them: in `/openapi.json`, and as a filter in a query.

use std::borrow::Cow;

use domain::EventType;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::problem::Problem;

/// The schema `EventType`: a string that is one of [`EventType::ALL`]. Only requests use it. Responses have plain
/// strings, so that a client which was generated from this description can read types that are added later.
#[derive(Debug)]
pub struct EventTypeSchema;

impl PartialSchema for EventTypeSchema {
    fn schema() -> RefOr<Schema> {
        let types = EventType::ALL;
        let lines: Vec<String> = types.iter().map(|known| format!("- `{known}`: {}", known.description())).collect();
        let schema = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(types.iter().map(|known| known.as_str())))
            .description(Some(format!("Type of an event.\n\n{}", lines.join("\n"))))
            .build();
        RefOr::T(Schema::Object(schema))
    }
}

impl ToSchema for EventTypeSchema {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("EventType")
    }
}

/// Reads the parameter `types`, names separated by commas; without one, all types are meant.
pub fn read_filter(types: Option<&str>) -> Result<Vec<String>, Problem> {
    let names = types.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| match EventType::parse(name) {
            Ok(known) => Ok(known.as_str().to_owned()),
            Err(unknown) => Err(Problem::invalid("types", unknown.to_string())),
        })
        .collect()
}
