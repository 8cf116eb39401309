//! Errors as `application/problem+json` (RFC 9457).

mod invalid_fields;

use std::error::Error;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::{InvalidSetting, redact_for_log};
use engine::archive::search::SearchError;
use engine::operations::Refusal;
use serde::Serialize;
use store::{Precondition, StoreError};
use utoipa::ToSchema;

pub use invalid_fields::{ROOT_PATH, RequestPart, invalid_field};

/// Error response (RFC 9457).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(example = json!({"type": "about:blank", "title": "Not Found", "status": 404, "detail": "there is no such email"}))]
pub struct Problem {
    /// Always `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    /// Explanation for people.
    #[schema(value_type = String)]
    detail: Box<str>,
    /// Path of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "/v1/emails/018f6d0c-2b1f-7c3e-9a55-3c1f2b7d8e90")]
    instance: Option<Box<str>>,
    /// Invalid fields, for status 422.
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    #[schema(value_type = Vec<FieldError>)]
    errors: Box<[FieldError]>,
    /// The number after which events can be read on, for status 410.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    continue_after: Option<Box<u64>>,
    #[serde(skip)]
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

/// An invalid field of a request.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FieldError {
    #[schema(example = "limit")]
    field: String,
    #[schema(example = "must be at most 500")]
    detail: String,
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into().into_boxed_str(),
            instance: None,
            errors: Box::default(),
            continue_after: None,
            headers: Vec::new(),
        }
    }

    /// Returns a 404, also for rows of other tenants, so that nobody learns which ids exist.
    pub fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no such {what}"))
    }

    pub fn unauthorized(detail: &str) -> Self {
        let headers = vec![(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
        Self { headers, ..Self::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// Returns a 429 with `Retry-After`.
    pub fn too_many_requests(detail: &str, wait: Duration) -> Self {
        let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
        let headers = vec![(header::RETRY_AFTER, HeaderValue::from(seconds))];
        Self { headers, ..Self::new(StatusCode::TOO_MANY_REQUESTS, detail) }
    }

    /// Returns a 503 with `Retry-After: 1`.
    pub fn overloaded(detail: &str) -> Self {
        let headers = vec![(header::RETRY_AFTER, HeaderValue::from_static("1"))];
        Self { headers, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("{detail}; try again shortly")) }
    }

    /// Returns a 410 for events that are gone, with the number after which others can be read.
    pub fn gone(detail: impl Into<String>, continue_after: u64) -> Self {
        Self { continue_after: Some(Box::new(continue_after)), ..Self::new(StatusCode::GONE, detail) }
    }

    pub fn payload_too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than this server accepts (limits.api_body)")
    }

    /// Returns a 500 without details: these are for the log, not for clients.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "an internal error occurred; see the server log for this request id",
        )
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub fn with_instance(self, path: String) -> Self {
        Self { instance: Some(path.into_boxed_str()), ..self }
    }

    /// Returns whether the status is 4xx: repeating the request would not help.
    pub fn is_client_error(&self) -> bool {
        (400..500).contains(&self.status)
    }

    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// Returns a 404 for an unknown path, also for one with a malformed id.
    pub fn no_such_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such route")
    }

    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// Returns a 422 for an invalid field; the detail completes the sentence that begins with its name.
    pub fn invalid(field: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let errors = Box::new([FieldError { field: field.to_owned(), detail: detail.clone() }]);
        Self { errors, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{field}: {detail}")) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.json()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.extend(self.headers.iter().cloned());
        // The outermost middleware adds the path and writes the body again.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Precondition> for Problem {
    fn from(failed: Precondition) -> Self {
        let status = match failed {
            Precondition::TenantChanged
            | Precondition::MailboxChanged
            | Precondition::WebhookChanged
            | Precondition::DirectoryChanged => StatusCode::PRECONDITION_FAILED,
            Precondition::UnstorableText => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, failed.to_string())
    }
}

/// Database errors are logged, not sent to clients.
impl From<StoreError> for Problem {
    fn from(e: StoreError) -> Self {
        match e {
            StoreError::Precondition(failed) => return failed.into(),
            _ => tracing::error!(error = redact_for_log(&e), "request failed"),
        }
        match e {
            StoreError::Unavailable(_) | StoreError::BlobsUnavailable(_) | StoreError::Busy(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "the database or blob store is unavailable; try again")
            }
            _ => Self::internal(),
        }
    }
}

impl From<anyhow::Error> for Problem {
    fn from(e: anyhow::Error) -> Self {
        match e.downcast::<StoreError>() {
            Ok(e) => e.into(),
            Err(e) => {
                tracing::error!(error = redact_for_log(&format_args!("{e:#}")), "request failed");
                Self::internal()
            }
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound(what) => Self::not_found(what),
            Refusal::OtherVersion => Self::new(StatusCode::PRECONDITION_FAILED, refusal.to_string()),
            Refusal::Invalid { field, why } => Self::invalid(&field, why),
            Refusal::Conflict(why) => Self::conflict(why),
            Refusal::TenantInactive | Refusal::TenantHeld { .. } | Refusal::DoneBefore => {
                Self::conflict(refusal.to_string())
            }
            Refusal::Store(e) => e.into(),
            Refusal::Other(e) => e.into(),
        }
    }
}

impl From<InvalidSetting> for Problem {
    fn from(InvalidSetting { field, expected }: InvalidSetting) -> Self {
        Self::invalid(field, format!("must be {expected}"))
    }
}

impl From<SearchError> for Problem {
    fn from(e: SearchError) -> Self {
        match e {
            SearchError::Query(e) => Self::invalid("q", e.to_string()),
            SearchError::Cursor => Self::invalid("cursor", e.to_string()),
            SearchError::Store(e) => e.into(),
        }
    }
}

/// What axum's `Query` fails with.
type InvalidParameter = serde_path_to_error::Error<serde::de::value::Error>;

impl From<QueryRejection> for Problem {
    fn from(e: QueryRejection) -> Self {
        let mut causes = std::iter::successors(Some(&e as &(dyn Error + 'static)), |e| (*e).source());
        match causes.find_map(|e| e.downcast_ref::<InvalidParameter>()) {
            Some(e) => invalid_field(RequestPart::Query, &e.path().to_string(), &e.inner().to_string()),
            None => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "the query of the URL is not valid"),
        }
    }
}

impl From<PathRejection> for Problem {
    fn from(_: PathRejection) -> Self {
        Self::no_such_route()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_precondition_has_a_status_and_its_text() {
        for (failed, status) in [
            (Precondition::TenantChanged, 412),
            (Precondition::MailboxChanged, 412),
            (Precondition::WebhookChanged, 412),
            (Precondition::DirectoryChanged, 412),
            (Precondition::MailboxExists, 409),
            (Precondition::UnstorableText, 422),
        ] {
            let problem = Problem::from(StoreError::Precondition(failed));

            assert_eq!((problem.status(), problem.detail()), (status, failed.to_string().as_str()));
        }
    }
}
