//! Finds the method of a request and validates its parameters and body.

use serde_json::Value;

use super::document::{Document, Method, Parameter};
use super::shape::Shape;

/// A request to a method, with its raw parameters.
#[derive(Debug)]
pub struct MethodCall<'d> {
    pub method: &'d Method,
    path: Vec<(String, String)>,
    query: Vec<(String, String)>,
}

impl<'d> MethodCall<'d> {
    /// Finds the method of a decoded path. Returns `None` if there is none.
    pub fn find(document: &'d Document, verb: &str, path: &str, query: Vec<(String, String)>) -> Option<Self> {
        let path = path.trim_start_matches('/');
        let of_verb = document.methods().iter().filter(|method| method.verb == verb);
        let matching = of_verb.filter_map(|method| Some((method, method.match_path(path)?)));
        // Literal segments take precedence over parameters.
        let (method, values) = matching.min_by_key(|(_, values)| values.len())?;
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(Self { method, path: values, query })
    }

    pub fn path(&self, name: &str) -> &str {
        self.path.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Iterates over the query in order.
    pub fn queries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Iterates over the values of a repeated parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Validates query and body. The error names the mismatch.
    pub fn check(&self, document: &Document, body: Option<&Value>) -> Result<(), String> {
        for (at, (name, value)) in self.query.iter().enumerate() {
            let known = self.method.parameters.get(name).filter(|parameter| !parameter.is_in_path);
            let parameter =
                known.or_else(|| document.common.get(name)).ok_or_else(|| format!("unknown parameter {name:?}"))?;
            check_parameter(parameter, value).map_err(|why| format!("parameter {name:?}: {why}"))?;
            if !parameter.is_repeated && self.query[..at].iter().any(|(before, _)| before == name) {
                return Err(format!("parameter {name:?} comes twice"));
            }
        }
        for (name, parameter) in &self.method.parameters {
            if parameter.is_required && !parameter.is_in_path && self.query(name).is_none() {
                return Err(format!("parameter {name:?} is missing"));
            }
        }
        match (&self.method.request, body) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err("this method takes no body".to_owned()),
            (Some(schema), Some(body)) => document.check(schema, body),
            (Some(_), None) => Err("the body is missing".to_owned()),
        }
    }
}

fn check_parameter(parameter: &Parameter, value: &str) -> Result<(), String> {
    match &parameter.shape {
        Shape::Text(text) => text.check(value),
        Shape::Integer(least, most) => match value.parse::<i64>() {
            Ok(number) if (*least..=*most).contains(&number) => Ok(()),
            _ => Err(format!("{value:?} is not between {least} and {most}")),
        },
        Shape::Boolean if matches!(value, "true" | "false") => Ok(()),
        Shape::Boolean => Err(format!("{value:?} is neither true nor false")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::google::spec::gmail;

    fn checked(verb: &str, path: &str, query: &[(&str, &str)], body: Option<Value>) -> Result<(), String> {
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        MethodCall::find(gmail(), verb, path, query).unwrap().check(gmail(), body.as_ref())
    }

    #[test]
    fn path_leads_to_its_method() {
        let call =
            MethodCall::find(gmail(), "GET", "/gmail/v1/users/me/messages/12/attachments/ab", Vec::new()).unwrap();

        assert_eq!(call.method.id, "gmail.users.messages.attachments.get");
        assert_eq!((call.path("userId"), call.path("messageId"), call.path("id")), ("me", "12", "ab"));
        assert!(MethodCall::find(gmail(), "POST", "/gmail/v1/users/me/messages", Vec::new()).is_none());
        assert!(MethodCall::find(gmail(), "GET", "/gmail/v1/users//messages", Vec::new()).is_none());
    }

    #[test]
    fn unknown_parameters_are_refused() {
        let list = "/gmail/v1/users/me/messages";
        let fine = [("maxResults", "5"), ("labelIds", "INBOX"), ("labelIds", "UNREAD"), ("prettyPrint", "false")];
        assert_eq!(checked("GET", list, &fine, None), Ok(()));

        for wrong in [("pagetoken", "x"), ("maxResults", "-1"), ("maxResults", "many"), ("includeSpamTrash", "1")] {
            assert!(checked("GET", list, &[wrong], None).is_err(), "{wrong:?}");
        }
        assert!(checked("GET", list, &[("q", "a"), ("q", "b")], None).is_err());
        assert!(checked("GET", list, &[("userId", "me")], None).is_err());
        assert!(checked("GET", "/gmail/v1/users/me/messages/1", &[("format", "RAW")], None).is_err());
        assert!(checked("GET", "/gmail/v1/users/me/history", &[("startHistoryId", "x")], None).is_err());
    }

    #[test]
    fn body_must_match_its_schema() {
        let watch = |body| checked("POST", "/gmail/v1/users/me/watch", &[], body);

        assert_eq!(watch(Some(json!({"topicName": "projects/p/topics/t"}))), Ok(()));
        assert!(watch(Some(json!({"topic": "projects/p/topics/t"}))).is_err());
        assert!(watch(None).is_err());
        assert!(checked("POST", "/gmail/v1/users/me/stop", &[], Some(json!({}))).is_err());
    }
}
