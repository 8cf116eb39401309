//! An answer before it is sent: alone, or as a part of a batch.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;

use crate::faults::{Damage, Failing};
use crate::http::Cut;
use crate::spoilt::{self, Spoilt};

pub const JSON: &str = "application/json; charset=UTF-8";

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Body,
    /// The connection ends instead.
    pub cut: Option<Cut>,
    pub spoilt: Spoilt,
    is_truncated: bool,
}

#[derive(Debug)]
pub enum Body {
    Empty,
    Json(Value),
    /// An object, and one more field of it whose text comes in pieces that are shared with other answers.
    JsonWith {
        object: Value,
        field: &'static str,
        text: Vec<Bytes>,
    },
    Other {
        pieces: Vec<Bytes>,
    },
}

impl Answer {
    pub fn new(status: u16, body: Body) -> Self {
        let is_json = matches!(body, Body::Json(_) | Body::JsonWith { .. });
        let mut answer =
            Self { status, headers: Vec::new(), body, cut: None, spoilt: Spoilt::default(), is_truncated: false };
        if is_json {
            answer = answer.with(CONTENT_TYPE, JSON);
        }
        answer
    }

    pub fn json(value: Value) -> Self {
        Self::new(200, Body::Json(value))
    }

    pub fn text(status: u16, kind: &str, text: impl Into<Bytes>) -> Self {
        Self::new(status, Body::Other { pieces: vec![text.into()] }).with(CONTENT_TYPE, kind)
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

    /// Something that is no answer.
    pub fn garbage() -> Self {
        Self::text(200, "text/html", "<html><body>It works!</body></html>\n")
    }

    /// The connection ends without an answer.
    pub fn cut(cut: Cut) -> Self {
        Self { cut: Some(cut), ..Self::new(200, Body::Empty) }
    }

    pub fn spoil<K: Failing>(mut self, faults: &[K]) -> Self {
        for damage in faults.iter().filter_map(Failing::damage) {
            match damage {
                Damage::CutBody => self.spoilt.is_cut = true,
                Damage::Slow { bytes, ms } => self.spoilt.slow = Some((bytes, Duration::from_millis(ms))),
                Damage::TruncatedJson => self.is_truncated = true,
            }
        }
        self
    }

    /// The bytes of the body, in order.
    pub fn into_pieces(self) -> Vec<Bytes> {
        let is_truncated = self.is_truncated;
        let pieces = match self.body {
            Body::Empty => Vec::new(),
            Body::Json(value) => vec![Bytes::from(value.to_string())],
            Body::JsonWith { object, field, text } => {
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
            Body::Other { pieces } => pieces,
        };
        if !is_truncated {
            return pieces;
        }
        let whole = Bytes::from(pieces.concat());
        vec![whole.slice(..whole.len() / 2)]
    }
}

impl IntoResponse for Answer {
    fn into_response(mut self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (spoilt, cut) = (std::mem::take(&mut self.spoilt), self.cut);
        let headers = std::mem::take(&mut self.headers);
        let mut response = spoilt::respond(gathered(self.into_pieces()), &spoilt);
        *response.status_mut() = status;
        response.headers_mut().extend(headers);
        if let Some(cut) = cut {
            response.extensions_mut().insert(cut);
        }
        response
    }
}

/// Small pieces are put together, because each piece on its own costs a frame; large ones stay as they are, shared.
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
