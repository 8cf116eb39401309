//! Partial responses by the `fields` parameter, as in `nextPageToken,users(id,name/fullName)`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::spec::{Document, Method};

/// A tree of selected fields. A leaf selects everything below it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FieldMask(BTreeMap<String, FieldMask>);

impl FieldMask {
    /// Parses a mask and checks that all of its fields exist in the method's response.
    pub fn read(text: &str, document: &Document, method: &Method) -> Result<Self, String> {
        let (mask, rest) = Self::parse(text).ok_or_else(|| invalid_selection(text))?;
        let schema = method.response.as_deref().ok_or_else(|| invalid_selection(text))?;
        if rest.is_empty() && mask.is_known(document, schema, &mut Vec::new()) {
            Ok(mask)
        } else {
            Err(invalid_selection(text))
        }
    }

    /// Parses up to a closing bracket or the end, and returns the rest.
    fn parse(mut text: &str) -> Option<(Self, &str)> {
        let mut mask = Self::default();
        loop {
            let end = text.find([',', '(', ')', '/']).unwrap_or(text.len());
            let (name, rest) = text.split_at(end);
            if name.is_empty() {
                return None;
            }
            let (below, rest) = match rest.strip_prefix('(') {
                Some(inner) => {
                    let (below, rest) = Self::parse(inner)?;
                    (below, rest.strip_prefix(')')?)
                }
                None => match rest.strip_prefix('/') {
                    Some(inner) => Self::one(inner)?,
                    None => (Self::default(), rest),
                },
            };
            mask.0.entry(name.to_owned()).or_default().0.extend(below.0);
            match rest.strip_prefix(',') {
                Some(next) => text = next,
                None => return Some((mask, rest)),
            }
        }
    }

    /// Parses what follows a slash: one field with its selection.
    fn one(text: &str) -> Option<(Self, &str)> {
        let mut depth = 0_usize;
        let (own, rest) = text.split_at(
            text.find(|letter: char| {
                match letter {
                    '(' => depth += 1,
                    ')' if depth == 0 => return true,
                    ')' => depth -= 1,
                    _ => {}
                }
                letter == ',' && depth == 0
            })
            .unwrap_or(text.len()),
        );
        let (mask, left) = Self::parse(own)?;
        left.is_empty().then_some((mask, rest))
    }

    fn is_known<'a>(&'a self, document: &Document, schema: &str, path: &mut Vec<&'a str>) -> bool {
        self.0.iter().all(|(name, below)| {
            if name == "*" {
                return true;
            }
            path.push(name);
            let is_known = document.has_path(schema, path) && below.is_known(document, schema, path);
            path.pop();
            is_known
        })
    }

    pub fn apply(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply(item)),
            Value::Object(fields) if !self.0.is_empty() && !self.0.contains_key("*") => {
                fields.retain(|name, _| self.0.contains_key(name));
                fields.iter_mut().for_each(|(name, inner)| self.0[name].apply(inner));
            }
            _ => {}
        }
    }
}

fn invalid_selection(text: &str) -> String {
    format!("Invalid field selection {text}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::super::spec::directory;
    use super::*;

    fn masked(fields: &str) -> Result<Value, String> {
        let method = directory().methods().iter().find(|method| method.id == "directory.users.list").unwrap();
        let mut value = json!({
            "kind": "k", "nextPageToken": "t",
            "users": [{"id": "1", "primaryEmail": "a@x.test", "name": {"fullName": "A B", "givenName": "A"}}],
        });
        FieldMask::read(fields, directory(), method)?.apply(&mut value);
        Ok(value)
    }

    #[test]
    fn mask_keeps_only_named_fields() {
        assert_eq!(
            masked("nextPageToken,users(id,name/fullName)"),
            Ok(json!({"nextPageToken": "t", "users": [{"id": "1", "name": {"fullName": "A B"}}]}))
        );
        assert_eq!(masked("users/id,kind"), Ok(json!({"kind": "k", "users": [{"id": "1"}]})));
        let whole = masked("*").unwrap();
        assert_eq!(whole["users"][0]["name"]["givenName"], "A");
    }

    #[test]
    fn mask_of_unknown_fields_is_refused() {
        for wrong in ["user", "users(idd)", "users(id", "users(id))", "users(name/shoe)", "", "users,,kind"] {
            assert!(masked(wrong).is_err(), "{wrong}");
        }
    }
}
