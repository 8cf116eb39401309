//! A client for URLs that tenants give: they may lead to where nobody outside has any business.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Response, StatusCode, Url};
use tokio::time::{Instant, timeout_at};

use super::address_policy::{AddressPolicy, host_address};
use super::client_builder::{HttpClientError, builder};
use super::resolver::{CheckedResolver, NoAddress, Resolver};

/// As many as requests to one server at once.
const MAX_IDLE_CONNECTIONS: usize = 16;

/// A busy server keeps its connection; others do not.
const IDLE_CONNECTION_TTL: Duration = Duration::from_secs(5);

/// A response with more headers is refused.
const MAX_RESPONSE_HEADERS: usize = 64;

/// Sends requests to addresses that the policy allows, and to no others. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CheckedClient {
    encrypted: Client,
    plain: Client,
    pub policy: AddressPolicy,
}

/// Why there is no response. The texts are for the tenant and reveal nothing of the operator's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestFailure {
    #[error("the address may not be reached")]
    AddressRefused,
    #[error("the host name has no address that may be reached")]
    NoAddress,
    #[error("the request timed out")]
    TimedOut,
    #[error("the connection failed")]
    ConnectFailed,
    #[error("the connection broke, or the response was not HTTP")]
    BrokeOff,
}

/// A response whose body is not read yet.
#[derive(Debug)]
pub struct CheckedResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    response: Response,
}

impl CheckedClient {
    pub fn new(policy: AddressPolicy, resolver: &Arc<dyn Resolver>) -> Result<Self, HttpClientError> {
        let encrypted = build_client(resolver, &policy, true)?;
        let plain = build_client(resolver, &policy, false)?;
        Ok(Self { encrypted, plain, policy })
    }

    /// Sends a request that ends by `until` whatever the server does.
    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Vec<u8>,
        until: Instant,
    ) -> Result<CheckedResponse, RequestFailure> {
        let is_encrypted = url.scheme() == "https";
        // A name is checked by the resolver; an address is connected to without it.
        if host_address(url).is_some_and(|address| !self.policy.allows(address, is_encrypted)) {
            return Err(RequestFailure::AddressRefused);
        }
        let client = if is_encrypted { &self.encrypted } else { &self.plain };
        let request = client.post(url.clone()).headers(headers).body(body);
        let response = timeout_at(until, request.send()).await.map_err(|_| RequestFailure::TimedOut)?;
        let response = response.map_err(|e| request_failure(&e))?;
        Ok(CheckedResponse { status: response.status(), headers: response.headers().clone(), response })
    }
}

impl CheckedResponse {
    /// Reads the beginning of the body: what has come by `until`, at most `max_bytes`.
    pub async fn read_beginning(mut self, max_bytes: usize, until: Instant) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Ok(Ok(Some(chunk))) = timeout_at(until, self.response.chunk()).await {
            bytes.extend_from_slice(&chunk[..chunk.len().min(max_bytes - bytes.len())]);
            if bytes.len() >= max_bytes {
                break;
            }
        }
        bytes
    }
}

fn build_client(
    resolver: &Arc<dyn Resolver>,
    policy: &AddressPolicy,
    is_encrypted: bool,
) -> Result<Client, HttpClientError> {
    let client = builder()?
        .dns_resolver(CheckedResolver::new(resolver.clone(), policy.clone(), is_encrypted))
        // A proxy would connect to wherever the name leads it.
        .no_proxy()
        .https_only(is_encrypted)
        .http1_max_headers(MAX_RESPONSE_HEADERS)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_CONNECTION_TTL)
        .user_agent(concat!("Mailroom/", env!("CARGO_PKG_VERSION")))
        .build()?;
    Ok(client)
}

fn request_failure(e: &reqwest::Error) -> RequestFailure {
    let mut cause: Option<&dyn Error> = Some(e);
    while let Some(error) = cause {
        if error.is::<NoAddress>() {
            return RequestFailure::NoAddress;
        }
        cause = error.source();
    }
    match e {
        e if e.is_timeout() => RequestFailure::TimedOut,
        e if e.is_connect() => RequestFailure::ConnectFailed,
        _ => RequestFailure::BrokeOff,
    }
}
