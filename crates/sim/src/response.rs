//! A response before it is sent, alone or as a part of a batch.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;

use crate::body_damage::{self, BodyDamage};
use crate::faults::{FaultKind, ResponseDamage};
use crate::form;
use crate::http::ConnectionCut;
use crate::odd_json;

pub const JSON: &str = "application/json; charset=UTF-8";

#[derive(Debug)]
pub struct SimResponse {
    pub status: u16,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: ResponseBody,
    /// Closes the connection instead of responding.
    pub cut: Option<ConnectionCut>,
    pub damage: BodyDamage,
    is_truncated: bool,
}

#[derive(Debug)]
pub enum ResponseBody {
    Empty,
    Json(Value),
    /// An object, and one more field whose text is in pieces shared with other responses.
    JsonWith {
        object: Value,
        field: &'static str,
        text: Vec<Bytes>,
    },
    Other {
        pieces: Vec<Bytes>,
    },
}

impl SimResponse {
    pub fn new(status: u16, body: ResponseBody) -> Self {
        let is_json = matches!(body, ResponseBody::Json(_) | ResponseBody::JsonWith { .. });
        let mut answer =
            Self { status, headers: Vec::new(), body, cut: None, damage: BodyDamage::default(), is_truncated: false };
        if is_json {
            answer = answer.with(CONTENT_TYPE, JSON);
        }
        answer
    }

    pub fn json(value: Value) -> Self {
        Self::new(200, ResponseBody::Json(value))
    }

    pub fn text(status: u16, kind: &str, text: impl Into<Bytes>) -> Self {
        Self::new(status, ResponseBody::Other { pieces: vec![text.into()] }).with(CONTENT_TYPE, kind)
    }

    /// Redirects to a URI with parameters added to its query.
    pub fn redirect(uri: &str, parameters: &[(&str, String)]) -> Self {
        let query: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{name}={}", form::encode(value))).collect();
        let separator = if uri.contains('?') { '&' } else { '?' };
        Self::new(302, ResponseBody::Empty).with(LOCATION, &format!("{uri}{separator}{}", query.join("&")))
    }

    pub fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    pub fn retry_after(self, seconds: Option<u64>) -> Self {
        match seconds {
            Some(seconds) => self.with(RETRY_AFTER, &seconds.to_string()),
            None => self,
        }
    }

    /// Builds a response that is not a valid one.
    pub fn garbage() -> Self {
        Self::text(200, "text/html", "<html><body>It works!</body></html>\n")
    }

    /// Builds a response that closes the connection instead.
    pub fn cut(cut: ConnectionCut) -> Self {
        Self { cut: Some(cut), ..Self::new(200, ResponseBody::Empty) }
    }

    pub fn damaged_by<K: FaultKind>(mut self, faults: &[K]) -> Self {
        for damage in faults.iter().filter_map(FaultKind::damage) {
            match damage {
                ResponseDamage::CutBody => self.damage.is_cut = true,
                ResponseDamage::Slow { bytes, ms } => self.damage.slow = Some((bytes, Duration::from_millis(ms))),
                ResponseDamage::TruncatedJson => self.is_truncated = true,
                ResponseDamage::UnknownFields => self.change_json(odd_json::add_unknown_fields),
                ResponseDamage::ChangedType => self.change_json(odd_json::change_a_type),
            }
        }
        self
    }

    fn change_json(&mut self, change: fn(&mut Value)) {
        match &mut self.body {
            ResponseBody::Json(value) | ResponseBody::JsonWith { object: value, .. } => change(value),
            ResponseBody::Empty | ResponseBody::Other { .. } => {}
        }
    }

    /// Returns the body in pieces.
    pub fn into_pieces(self) -> Vec<Bytes> {
        let is_truncated = self.is_truncated;
        let pieces = match self.body {
            ResponseBody::Empty => Vec::new(),
            ResponseBody::Json(value) => vec![Bytes::from(value.to_string())],
            ResponseBody::JsonWith { object, field, text } => {
                let mut head = object.to_string();
                head.pop();
                head.push_str(if head.len() > 1 { ",\"" } else { "\"" });
                head.push_str(field);
                head.push_str("\":\"");
                let mut pieces = vec![Bytes::from(head)];
                pieces.extend(text);
                pieces.push(Bytes::from_static(b"\"}"));
                pieces
            }
            ResponseBody::Other { pieces } => pieces,
        };
        if !is_truncated {
            return pieces;
        }
        let whole = Bytes::from(pieces.concat());
        vec![whole.slice(..whole.len() / 2)]
    }
}

impl IntoResponse for SimResponse {
    fn into_response(mut self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (damage, cut) = (std::mem::take(&mut self.damage), self.cut);
        let headers = std::mem::take(&mut self.headers);
        let mut response = body_damage::respond(gathered(self.into_pieces()), &damage);
        *response.status_mut() = status;
        response.headers_mut().extend(headers);
        if let Some(cut) = cut {
            response.extensions_mut().insert(cut);
        }
        response
    }
}

/// Joins small pieces, because each costs a frame; large ones stay shared.
fn gathered(pieces: Vec<Bytes>) -> Vec<Bytes> {
    const LARGE: usize = 16_384;
    let mut gathered = Vec::new();
    let mut small: Vec<u8> = Vec::new();
    for piece in pieces {
        if piece.len() < LARGE {
            small.extend_from_slice(&piece);
            continue;
        }
        if !small.is_empty() {
            gathered.push(Bytes::from(std::mem::take(&mut small)));
        }
        gathered.push(piece);
    }
    if !small.is_empty() || gathered.is_empty() {
        gathered.push(Bytes::from(small));
    }
    gathered
}
