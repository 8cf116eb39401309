//! Graph's JSON batching: several requests by one call. The response has an item with a status of its own for each, in any
//! order, and is read as a stream.

use std::collections::HashMap;

use domain::{ConnectorError, Secret};
use outbound::http::header::{HeaderMap, HeaderName, HeaderValue};
use outbound::http::{StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::api::{GraphClient, GraphResponse, PREFER_IMMUTABLE_IDS};
use super::error_mapping::{GraphOperation, connector_error, is_token_rejected};
use crate::http::{protocol, unavailable};
use crate::json_stream::Base64FieldReader;

/// Graph's limit.
pub const MAX_BATCH_REQUESTS: usize = 20;

/// The response to one request of a batch, without its bytes.
#[derive(Debug, Deserialize)]
pub struct BatchItem {
    pub id: String,
    pub status: u16,
    #[serde(default)]
    headers: HashMap<String, Value>,
    #[serde(default)]
    pub body: Value,
}

impl BatchItem {
    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn headers(&self) -> HeaderMap {
        let headers = self.headers.iter().filter_map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(&value).ok()?))
        });
        headers.collect()
    }

    pub fn is_token_rejected(&self) -> bool {
        is_token_rejected(self.status(), &self.headers())
    }

    /// Returns whether the status is 403, for this item alone or for the whole mailbox.
    pub fn is_forbidden(&self) -> bool {
        self.status() == StatusCode::FORBIDDEN
    }

    pub fn is_success(&self) -> bool {
        self.status().is_success()
    }

    pub fn error(&self, operation: GraphOperation) -> ConnectorError {
        connector_error(operation, self.status(), &self.headers(), self.body.to_string().as_bytes())
    }

    /// Returns the index of the request that it answers.
    pub fn number(&self) -> Result<usize, ConnectorError> {
        self.id.parse().map_err(|_| protocol("a batch item answers no request"))
    }
}

/// Builds a request within a batch.
pub fn request(client: GraphClient<'_>, number: usize, url: &Url) -> Value {
    json!({"id": number.to_string(), "method": "GET", "url": client.batch_path(url), "headers": {"Prefer": PREFER_IMMUTABLE_IDS}})
}

/// Gets each of these URLs and returns the results in their order. An error that concerns the account fails the call.
pub async fn get_all<T: DeserializeOwned>(
    client: GraphClient<'_>,
    operation: GraphOperation,
    urls: Vec<Url>,
) -> Result<Vec<Result<T, ConnectorError>>, ConnectorError> {
    let mut results: Vec<Option<Result<T, ConnectorError>>> = urls.iter().map(|_| None).collect();
    let mut left: Vec<usize> = (0..urls.len()).collect();
    let mut is_renewed = false;
    while !left.is_empty() {
        let requested: Vec<usize> = left.drain(..left.len().min(MAX_BATCH_REQUESTS)).collect();
        client.account.access.acquire_quota(requested.len() as u32).await?;
        let requests: Vec<Value> = requested.iter().map(|number| request(client, *number, &urls[*number])).collect();
        let mut reader = BatchReader::new(client.batch(&requests).await?);
        let mut token_rejected = Vec::new();
        let mut is_forbidden = false;
        while let Some(item) = reader.next(&mut |_, _| Ok(())).await? {
            let number = item.number()?;
            let slot = results.get_mut(number).filter(|_| requested.contains(&number));
            let slot = slot.ok_or_else(|| protocol("a batch item answers no request"))?;
            if item.is_token_rejected() && !is_renewed {
                token_rejected.push(number);
                continue;
            }
            *slot = Some(if item.is_success() {
                serde_json::from_value(item.body).map_err(|_| protocol("a batch item is not the expected JSON"))
            } else {
                match item.error(operation) {
                    ConnectorError::Unauthorized(_) if item.is_forbidden() => {
                        is_forbidden = true;
                        Err(forbidden_item())
                    }
                    e @ (ConnectorError::Throttled { .. } | ConnectorError::Unauthorized(_)) => return Err(e),
                    e => Err(e),
                }
            });
        }
        let token = reader.token().clone();
        // Releases its permit for the next call.
        drop(reader);
        if is_forbidden {
            client.check_inbox().await?;
        }
        if !token_rejected.is_empty() {
            is_renewed = true;
            client.account.access.token(Some(&token)).await?;
        }
        left.extend(token_rejected);
    }
    Ok(results
        .into_iter()
        .map(|results| results.unwrap_or_else(|| Err(unavailable("the batch response has no item for it"))))
        .collect())
}

/// Returns the error of an item that is forbidden while the inbox can be read.
pub fn forbidden_item() -> ConnectorError {
    protocol("access to this item alone is forbidden")
}

/// Reads the items of a batch response as they arrive.
pub struct BatchReader {
    response: GraphResponse,
    has_started: bool,
}

impl BatchReader {
    pub fn new(response: GraphResponse) -> Self {
        Self { response, has_started: false }
    }

    /// Returns the access token of the request.
    pub fn token(&self) -> &Secret<String> {
        &self.response.token
    }

    /// Reads the next item. Its decoded bytes go to `on_bytes` as they arrive, with the part of the item before them.
    pub async fn next(
        &mut self,
        on_bytes: &mut (impl FnMut(&BatchItem, &[u8]) -> Result<(), ConnectorError> + Send),
    ) -> Result<Option<BatchItem>, ConnectorError> {
        if !self.seek_next_item().await? {
            return Ok(None);
        }
        let mut json = Base64FieldReader::new("body");
        let mut item: Option<BatchItem> = None;
        while !json.is_done {
            let bytes = self.response.http.body.fill().await?;
            let mut decoded = Vec::new();
            let used = json.feed::<ConnectorError>(bytes, &mut |bytes: &[u8]| {
                decoded.extend_from_slice(bytes);
                Ok(())
            })?;
            self.response.http.body.consume(used);
            if !decoded.is_empty() {
                let item = match &mut item {
                    Some(item) => item,
                    none => none.insert(parse_item(&[&json.rest[..json.rest_before_field], b"\"\"}"].concat())?),
                };
                on_bytes(item, &decoded)?;
            }
        }
        parse_item(&json.rest).map(Some)
    }

    /// Skips to the beginning of the next item. Returns `false` if there is none.
    async fn seek_next_item(&mut self) -> Result<bool, ConnectorError> {
        let (mut in_string, mut is_escaped) = (false, false);
        loop {
            let byte = self.response.http.body.fill().await?[0];
            let is_structure = !in_string;
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if in_string => is_escaped = true,
                b'"' => in_string = !in_string,
                b'[' if is_structure && !self.has_started => self.has_started = true,
                b']' if is_structure && self.has_started => return Ok(false),
                b'{' if is_structure && self.has_started => return Ok(true),
                _ => {}
            }
            self.response.http.body.consume(1);
        }
    }
}

fn parse_item(json: &[u8]) -> Result<BatchItem, ConnectorError> {
    serde_json::from_slice(json).map_err(|_| protocol("a batch item is not the expected JSON"))
}
