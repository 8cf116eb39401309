//! `$select`: only what was asked for comes.

use serde_json::{Map, Value};

use super::super::spec;

/// The fields that were asked for, if the entity has them all; nothing: those that come by themselves.
pub fn read(entity: Option<&str>, select: Option<&str>) -> Result<Option<Vec<String>>, String> {
    let Some(select) = select else { return Ok(None) };
    let fields: Vec<String> = select.split(',').map(|field| field.trim().to_owned()).collect();
    let entity = entity.ok_or("nothing can be selected here")?;
    let document = spec::holder(entity).ok_or("nothing can be selected here")?;
    match fields.iter().find(|field| field.starts_with('@') || !document.has_field(entity, field)) {
        Some(field) => Err(format!("Could not find a property named '{field}' on type '{entity}'.")),
        None => Ok(Some(fields)),
    }
}

/// A directory object with nothing but what was asked for: not even its id.
pub fn exactly(entity: Value, fields: Option<&[String]>) -> Value {
    let (Some(fields), Value::Object(mut all)) = (fields, entity.clone()) else { return entity };
    all.retain(|name, _| name.starts_with('@') || fields.contains(name));
    Value::Object(all)
}

/// An entity with the fields that were asked for, its id, and what OData says of it.
pub fn only(entity: Value, fields: Option<&[String]>) -> Value {
    let (Some(fields), Value::Object(all)) = (fields, &entity) else { return entity };
    let is_kept = |name: &str| name == "id" || name.starts_with('@') || fields.iter().any(|field| field == name);
    let kept: Map<String, Value> =
        all.iter().filter(|(name, _)| is_kept(name)).map(|(name, value)| (name.clone(), value.clone())).collect();
    Value::Object(kept)
}
