//! A parsed discovery document.

use std::collections::HashMap;

use serde_json::Value;

use super::shape::Shape;

#[derive(Debug)]
pub struct Document {
    methods: Vec<Method>,
    /// Parameters that every method takes.
    pub(super) common: HashMap<String, Parameter>,
    schemas: HashMap<String, Shape>,
}

#[derive(Debug)]
pub struct Method {
    /// The id, as in `gmail.users.messages.get`.
    pub id: String,
    pub verb: String,
    /// The path, as in `gmail/v1/users/{userId}/messages/{id}`.
    pub path: String,
    /// The schema of the request body; that of the response follows.
    pub request: Option<String>,
    pub response: Option<String>,
    /// The schema whose fields can be selected.
    pub entity: Option<String>,
    pub scopes: Vec<String>,
    pub(super) parameters: HashMap<String, Parameter>,
}

#[derive(Debug)]
pub(super) struct Parameter {
    pub shape: Shape,
    pub is_in_path: bool,
    pub is_required: bool,
    pub is_repeated: bool,
}

impl Document {
    pub fn read(text: &str) -> Result<Self, String> {
        let document: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let methods = document["methods"].as_object().into_iter().flatten();
        let schemas = document["schemas"].as_object().into_iter().flatten();
        Ok(Self {
            methods: methods.map(|(_, method)| Method::read(method)).collect::<Result<_, _>>()?,
            common: parameters(&document["parameters"])?,
            schemas: schemas
                .map(|(name, schema)| Ok((name.clone(), Shape::read(schema)?)))
                .collect::<Result<_, String>>()?,
        })
    }

    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    pub(super) fn schema(&self, name: &str) -> Option<&Shape> {
        self.schemas.get(name)
    }

    pub fn has(&self, schema: &str) -> bool {
        self.schemas.contains_key(schema)
    }

    /// Returns whether a schema has a field.
    pub fn has_field(&self, schema: &str, field: &str) -> bool {
        matches!(self.schema(schema), Some(Shape::Object(properties)) if properties.contains_key(field))
    }

    /// Returns whether a path of field names exists in a schema.
    pub fn has_path(&self, schema: &str, path: &[&str]) -> bool {
        let named = Shape::Named(schema.to_owned());
        let mut shape = &named;
        let mut left = path;
        loop {
            shape = match (shape, left) {
                (Shape::Named(name), _) => match self.schema(name) {
                    Some(found) => found,
                    None => return false,
                },
                (_, []) | (Shape::Any, _) => return true,
                (Shape::List(inner) | Shape::Nullable(inner), _) => inner,
                (Shape::Map(inner), [_, rest @ ..]) => {
                    left = rest;
                    inner
                }
                (Shape::Object(properties), [first, rest @ ..]) => match properties.get(*first) {
                    Some(found) => {
                        left = rest;
                        found
                    }
                    None => return false,
                },
                _ => return false,
            }
        }
    }

    /// Lists schemas that are referred to but not defined.
    pub fn dangling(&self) -> Vec<String> {
        let mut named: Vec<String> = Vec::new();
        self.schemas.values().for_each(|schema| schema.named(&mut named));
        named.extend(self.methods.iter().flat_map(|method| method.request.iter().chain(&method.response).cloned()));
        named.retain(|name| !self.schemas.contains_key(name));
        named
    }
}

impl Method {
    fn read(method: &Value) -> Result<Self, String> {
        let scopes = method["scopes"].as_array().into_iter().flatten();
        Ok(Self {
            id: required_text(method, "id")?,
            verb: required_text(method, "httpMethod")?,
            path: required_text(method, "path")?,
            request: referred_schema(method, "request"),
            response: referred_schema(method, "response"),
            entity: method["entity"].as_str().map(str::to_owned),
            scopes: scopes.filter_map(Value::as_str).map(str::to_owned).collect(),
            parameters: parameters(&method["parameters"])?,
        })
    }

    /// Returns the path parameters by name, or `None` if the path is another method's.
    pub(super) fn match_path<'a>(&self, path: &'a str) -> Option<Vec<(&str, &'a str)>> {
        let (mut wanted, mut given) = (self.path.split('/'), path.split('/'));
        let mut values = Vec::new();
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return Some(values),
                (Some(wanted), Some(given)) => match wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                    Some(name) if !given.is_empty() => values.push((name, given)),
                    None if wanted == given => {}
                    _ => return None,
                },
                _ => return None,
            }
        }
    }
}

fn required_text(method: &Value, field: &str) -> Result<String, String> {
    method[field].as_str().map(str::to_owned).ok_or_else(|| format!("no {field}"))
}

fn referred_schema(method: &Value, field: &str) -> Option<String> {
    method[field]["$ref"].as_str().map(str::to_owned)
}

fn parameters(all: &Value) -> Result<HashMap<String, Parameter>, String> {
    all.as_object()
        .into_iter()
        .flatten()
        .map(|(name, described)| {
            let parameter = Parameter {
                shape: Shape::read(described)?,
                is_in_path: described["location"] == "path",
                is_required: described["required"] == true,
                is_repeated: described["repeated"] == true,
            };
            Ok((name.clone(), parameter))
        })
        .collect()
}
