//! What Microsoft says Graph is: every request and every answer of the simulator is held against it.

use std::sync::LazyLock;

use serde_json::Value;

use crate::spec::{Call, Document};

macro_rules! document {
    ($name:literal) => {
        LazyLock::new(|| {
            let text = include_str!(concat!("../../specs/", $name));
            Document::read(text).expect("the documents are part of the program, and a test reads them")
        })
    };
}

static GRAPH: LazyLock<Document> = document!("graph.v1.json");
static UNDOCUMENTED: LazyLock<Document> = document!("graph.undocumented.json");

pub fn graph() -> &'static Document {
    &GRAPH
}

/// What only Microsoft's pages tell.
pub fn undocumented() -> &'static Document {
    &UNDOCUMENTED
}

/// The document that has a schema.
pub fn holder(schema: &str) -> Option<&'static Document> {
    [graph(), undocumented()].into_iter().find(|document| document.has(schema))
}

/// Where one document lists what another one describes, its items are held against that one.
pub fn check_foreign(document: &Document, call: &Call<'static>, answer: &Value) -> Result<(), String> {
    let Some(entity) = call.method.entity.as_deref().filter(|entity| !document.has(entity)) else { return Ok(()) };
    answer["value"].as_array().into_iter().flatten().try_for_each(|item| {
        let kind = item["@odata.type"].as_str().map_or(entity, |kind| kind.trim_start_matches('#'));
        holder(kind).ok_or_else(|| format!("there is no schema {kind}"))?.check(kind, item)
    })
}

/// An error body: the shape, and that it says what went wrong and when.
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

/// What the token endpoint says.
pub fn check_token(status: u16, body: &Value) -> Result<(), String> {
    UNDOCUMENTED.check(if status == 200 { "TokenAnswer" } else { "TokenError" }, body)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_document_is_read_and_refers_to_nothing_that_is_missing() {
        for document in [&GRAPH, &UNDOCUMENTED] {
            assert_eq!(document.dangling(), Vec::<String>::new());
        }
        assert_eq!(GRAPH.methods().len(), 32);
    }

    #[test]
    fn every_method_has_a_route() {
        for method in GRAPH.methods().iter().chain(UNDOCUMENTED.methods()) {
            assert!(super::super::faults::Route::of(&method.id).is_some(), "{}", method.id);
        }
    }

    #[test]
    fn what_says_its_kind_is_held_against_it() {
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
    fn nothing_is_null_unless_it_may_be() {
        let message = |field: &str| GRAPH.check("microsoft.graph.message", &json!({field: null}));

        assert_eq!(message("subject"), Ok(()));
        assert_eq!(message("from"), Ok(()));
        assert!(message("id").is_err());
    }
}
