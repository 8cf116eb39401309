//! `$select`: limits a response to the requested fields.

use serde_json::Value;

use super::super::spec;

/// Parses `$select` and checks that the entity has all fields. `None`: the default fields.
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

/// Limits a directory object to the requested fields, even without its id.
pub fn exactly(entity: Value, fields: Option<&[String]>) -> Value {
    let (Some(fields), Value::Object(mut all)) = (fields, entity.clone()) else { return entity };
    all.retain(|name, _| name.starts_with('@') || fields.contains(name));
    Value::Object(all)
}

/// Limits an entity to the requested fields, its id and OData annotations.
pub fn only(entity: Value, fields: Option<&[String]>) -> Value {
    let (Some(fields), Value::Object(all)) = (fields, &entity) else { return entity };
    let kept = all.iter().filter(|(name, _)| *name == "id" || name.starts_with('@') || fields.contains(name));
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}
