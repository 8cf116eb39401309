//! Microsoft's API description, against which every request and response is checked.

use std::sync::LazyLock;

use serde_json::Value;

use crate::spec::{Document, MethodCall, spec_document};

static GRAPH: LazyLock<Document> = spec_document!("graph.v1.json");
static UNDOCUMENTED: LazyLock<Document> = spec_document!("graph.undocumented.json");

pub fn graph() -> &'static Document {
    &GRAPH
}

/// Returns the description of what only Microsoft's web pages document.
pub fn undocumented() -> &'static Document {
    &UNDOCUMENTED
}

/// Finds the document that defines a schema.
pub fn holder(schema: &str) -> Option<&'static Document> {
    [graph(), undocumented()].into_iter().find(|document| document.has(schema))
}

/// Checks items of a listing against the document that defines their schema, if it is another one.
pub fn check_foreign(document: &Document, call: &MethodCall<'static>, answer: &Value) -> Result<(), String> {
    let Some(entity) = call.method.entity.as_deref().filter(|entity| !document.has(entity)) else { return Ok(()) };
    answer["value"].as_array().into_iter().flatten().try_for_each(|item| {
        let kind = item["@odata.type"].as_str().map_or(entity, |kind| kind.trim_start_matches('#'));
        holder(kind).ok_or_else(|| format!("there is no schema {kind}"))?.check(kind, item)
    })
}

/// Checks an error body: its schema, code, message and inner error.
pub fn check_error(body: &Value) -> Result<(), String> {
    GRAPH.check("microsoft.graph.ODataErrors.ODataError", body)?;
    let error = &body["error"];
    for field in ["code", "message"] {
        if !error[field].is_string() {
            return Err(format!("error.{field} is missing"));
        }
    }
    UNDOCUMENTED.check("InnerError", &error["innerError"])
}

/// Checks a response of the token endpoint.
pub fn check_token(status: u16, body: &Value) -> Result<(), String> {
    UNDOCUMENTED.check(if status == 200 { "TokenAnswer" } else { "TokenError" }, body)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_null(field: &str) -> Result<(), String> {
        GRAPH.check("microsoft.graph.message", &json!({field: null}))
    }

    #[test]
    fn documents_parse_without_dangling_references() {
        for document in [&GRAPH, &UNDOCUMENTED] {
            assert_eq!(document.dangling(), Vec::<String>::new());
        }
        assert_eq!(GRAPH.methods().len(), 32);
    }

    #[test]
    fn every_method_has_a_route() {
        for method in GRAPH.methods().iter().chain(UNDOCUMENTED.methods()) {
            assert!(super::super::faults::MicrosoftRoute::of(&method.id).is_some(), "{}", method.id);
        }
    }

    #[test]
    fn odata_type_selects_the_schema() {
        let good =
            json!({"value": [{"@odata.type": "#microsoft.graph.fileAttachment", "id": "1", "contentBytes": ""}]});
        let schema = "microsoft.graph.attachmentCollectionResponse";

        assert_eq!(GRAPH.check(schema, &good), Ok(()));
        let mut doctored = good.clone();
        doctored["value"][0]["@odata.type"] = json!("#microsoft.graph.referenceAttachment");
        assert!(GRAPH.check(schema, &doctored).is_err(), "a reference has no bytes");
        doctored = good;
        doctored["value"][0]["size"] = json!("3");
        assert!(GRAPH.check(schema, &doctored).is_err());
    }

    #[test]
    fn null_is_refused_unless_nullable() {
        assert_eq!(check_null("subject"), Ok(()));
        assert_eq!(check_null("from"), Ok(()));
        assert!(check_null("id").is_err());
    }
}
