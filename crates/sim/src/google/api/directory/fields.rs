//! `fields`: only what was asked for comes, as in `nextPageToken,users(id,name/fullName)`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::spec::{Document, Method};

/// Fields, each with what is wanted of it; nothing below one: all of it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Mask(BTreeMap<String, Mask>);

impl Mask {
    /// If all of it is there to be asked for.
    pub fn read(text: &str, document: &Document, method: &Method) -> Result<Self, String> {
        let wrong = || format!("Invalid field selection {text}");
        let (mask, rest) = Self::parse(text).ok_or_else(wrong)?;
        let schema = method.response.as_deref().ok_or_else(wrong)?;
        match rest.is_empty() && mask.is_known(document, schema, &mut Vec::new()) {
            true => Ok(mask),
            false => Err(wrong()),
        }
    }

    /// Up to a closing bracket or the end.
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

    /// What comes after a slash: one field, with what is below it.
    fn one(text: &str) -> Option<(Self, &str)> {
        let mut depth = 0_usize;
        let is_end = |letter: char| {
            match letter {
                '(' => depth += 1,
                ')' if depth == 0 => return true,
                ')' => depth -= 1,
                _ => {}
            }
            letter == ',' && depth == 0
        };
        let (own, rest) = text.split_at(text.find(is_end).unwrap_or(text.len()));
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
        Mask::read(fields, directory(), method)?.apply(&mut value);
        Ok(value)
    }

    #[test]
    fn only_what_is_named_stays() {
        assert_eq!(
            masked("nextPageToken,users(id,name/fullName)"),
            Ok(json!({"nextPageToken": "t", "users": [{"id": "1", "name": {"fullName": "A B"}}]}))
        );
        assert_eq!(masked("users/id,kind"), Ok(json!({"kind": "k", "users": [{"id": "1"}]})));
        let whole = masked("*").unwrap();
        assert_eq!(whole["users"][0]["name"]["givenName"], "A");
    }

    #[test]
    fn what_there_is_not_cannot_be_asked_for() {
        for wrong in ["user", "users(idd)", "users(id", "users(id))", "users(name/shoe)", "", "users,,kind"] {
            assert!(masked(wrong).is_err(), "{wrong}");
        }
    }
}
