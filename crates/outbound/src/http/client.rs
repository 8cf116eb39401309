//! The HTTP client for providers: every call is bounded in time and memory, and every failure becomes a
//! [`ConnectorError`].
//!
//! No text of a response and no URL goes into an error: either may name a person or hold a secret.

use std::time::Duration;

use domain::ConnectorError;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::client_builder::{HttpClientError, builder};
use super::error_mapping::{error_for_status, overall_timeout, transport_error};
use super::response::{ErrorResponse, HttpResponse, ResponseBody};

/// The largest error response that is read; they usually have a few hundred bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// How long the parts of a call may take.
#[derive(Debug, Clone, Copy)]
pub struct HttpTimeouts {
    pub connect: Duration,
    /// Time without a single byte. Shorter than a job's lease, so that a server that hangs costs the attempt and no more.
    pub read: Duration,
    /// Whole call whose response is read into memory. Guards against servers that send a byte now and then.
    pub response: Duration,
    /// Whole call whose response is streamed, with the messages in it.
    pub stream: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            read: Duration::from_secs(30),
            response: Duration::from_secs(120),
            stream: Duration::from_secs(600),
        }
    }
}

/// An HTTP client with one connection pool for all calls.
#[derive(Debug, Clone)]
pub struct HttpClient {
    pub client: Client,
    timeouts: HttpTimeouts,
}

impl HttpClient {
    pub fn new(deadlines: HttpTimeouts) -> Result<Self, HttpClientError> {
        let client = builder()?.connect_timeout(deadlines.connect).read_timeout(deadlines.read).build()?;
        Ok(Self { client, timeouts: deadlines })
    }

    /// Sends a request and returns the JSON of its response.
    pub async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ConnectorError> {
        self.try_json(request).await?.map_err(|response| response.error())
    }

    /// Sends a request and returns the JSON of its response, or its error response as `Ok(Err(…))`. Fails if there is no
    /// response, or not the expected JSON.
    pub async fn try_json<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<Result<T, ErrorResponse>, ConnectorError> {
        match self.call(request).await? {
            Err(response) => Ok(Err(response)),
            Ok(mut body) => body.json().await.map(Ok),
        }
    }

    /// Sends a request and ignores the body of a successful response.
    pub async fn try_send(&self, request: RequestBuilder) -> Result<Result<(), ErrorResponse>, ConnectorError> {
        Ok(self.call(request).await?.map(drop))
    }

    async fn call(&self, request: RequestBuilder) -> Result<Result<ResponseBody, ErrorResponse>, ConnectorError> {
        let deadline = Instant::now() + self.timeouts.response;
        let response = response(request, deadline).await?;
        let status = response.status();
        let headers = response.headers().clone();
        let mut body = ResponseBody::new(response, deadline);
        if status == StatusCode::OK {
            return Ok(Ok(body));
        }
        // The status counts even if the body cannot be read.
        let body = body.read_whole(MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
        Ok(Err(ErrorResponse::new(status, headers, body)))
    }

    /// Gets a public JSON document.
    pub async fn get_json<T: DeserializeOwned>(&self, url: &str) -> Result<T, ConnectorError> {
        self.json(self.client.get(url)).await
    }

    /// Sends a request and returns its response whatever the status, for providers that explain an error in its body.
    pub async fn response(&self, request: RequestBuilder) -> Result<HttpResponse, ConnectorError> {
        let deadline = Instant::now() + self.timeouts.stream;
        let response = response(request, deadline).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(HttpResponse { status, headers, body: ResponseBody::new(response, deadline) })
    }

    /// Sends a request and returns the body of its response as a stream.
    pub async fn stream(&self, request: RequestBuilder) -> Result<ResponseBody, ConnectorError> {
        send(request, Instant::now() + self.timeouts.stream).await
    }
}

async fn response(request: RequestBuilder, deadline: Instant) -> Result<Response, ConnectorError> {
    timeout_at(deadline, request.send()).await.map_err(|_| overall_timeout())?.map_err(|e| transport_error(&e))
}

async fn send(request: RequestBuilder, deadline: Instant) -> Result<ResponseBody, ConnectorError> {
    let response = response(request, deadline).await?;
    match response.status() {
        StatusCode::OK => Ok(ResponseBody::new(response, deadline)),
        status => Err(error_for_status(status, response.headers())),
    }
}
